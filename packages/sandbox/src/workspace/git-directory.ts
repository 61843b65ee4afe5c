// References of a git directory inside a scanned directory: the directory it shares, and the paths its configuration names.
//
// Paths are byte strings. No link is followed at the end of a path, nothing but ordinary files is read, and no more of them than
// git itself would write.

import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { homedir } from 'node:os';
import { posix } from 'node:path';
import { bytes, fromText, toText, targetInside, writtenInside } from './directory-look.ts';

/** Something inside that the configuration of a repository names. */
export interface NamedInside {
  readonly as: NamedPath['as'];
  /** Relative to the scanned directory, as it is written: there may be links on the way. */
  readonly path: string;
  readonly key: string;
}

/** The files of a git directory that git takes its settings from. */
export const CONFIG_FILES = ['config', 'config.worktree'];
const MAX_POINTER_BYTES = 4096;
const MAX_CONFIG_BYTES = 256 * 1024;
const MAX_FILES = 32;
// Of all files together: a person has a few, and where each leads is asked step by step.
const MAX_INCLUDES = 256;

/** Programs that git runs by these names out of a directory of hooks. */
export const HOOKS: ReadonlySet<string> = new Set(
  'applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg post-commit pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive post-receive post-update reference-transaction push-to-checkout pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit post-index-change'.split(
    ' ',
  ),
);

/** Reads files and links at absolute paths, byte strings: those of the host, or those of a fork. */
export interface TreeReader {
  /** The first bytes of an ordinary file, as text; null where there is none. */
  readonly read: (path: string, most: number, encoding: 'utf8' | 'latin1') => string | null;
  /** Where a link leads; null where there is none. Absent: as on the host. */
  readonly linkAt?: (path: string) => string | null;
}

const ON_HOST: TreeReader = { read: readSmall };

/** The directory that a `.git` file names, as it is written; null where it names none. */
export function gitfileTarget(path: string, { read }: TreeReader = ON_HOST): string | null {
  const text = read(path, MAX_POINTER_BYTES, 'latin1');
  return text === null ? null : (/^gitdir: ([^\0\n\r]+)/.exec(text)?.[1] ?? null);
}

/** The directory that a git directory shares with others, relative to `root`; null where it shares none, or one outside. */
export function commonDirectory(root: string, gitdir: string, tree: TreeReader = ON_HOST): string | null {
  const text = tree.read(`${root}/${gitdir}/commondir`, MAX_POINTER_BYTES, 'latin1');
  const written = text === null ? '' : text.replace(/[\r\n]+$/, '');
  const path = written === '' ? null : writtenInside(root, gitdir, written);
  return path === null ? null : (targetInside(root, path, tree.linkAt)?.path ?? null);
}

/**
 * What configuration files name inside `root`, those that they include among them.
 *
 * @param files absolute paths of the configuration files.
 * @param worktree where git runs what they name, relative to `root`.
 * @param isSpent asked before each file: whether no more of them are to be read.
 * @param tree where the files are.
 */
export function namedInside(
  root: string,
  files: readonly string[],
  worktree: string,
  isSpent: () => boolean = () => false,
  tree: TreeReader = ON_HOST,
): NamedInside[] {
  const named: NamedInside[] = [];
  const known = new Set(files);
  let includes = 0;
  for (const file of known) {
    if (isSpent()) break;
    const found = namedBy(root, file, worktree, tree);
    named.push(...found);
    // A set that grows during the loop: included files come last.
    for (const { as, path } of found) {
      if (as !== 'include' || known.size >= MAX_FILES || includes >= MAX_INCLUDES) continue;
      includes += 1;
      const target = targetInside(root, path, tree.linkAt);
      if (target) known.add(`${root}/${target.path}`);
    }
  }
  return named;
}

function namedBy(root: string, file: string, worktree: string, { read }: TreeReader): NamedInside[] {
  const values = parseGitConfig(read(file, MAX_CONFIG_BYTES, 'utf8') ?? '');
  return pathsNamedBy(values).flatMap(({ as, path: written, key }) => {
    const base = as === 'include' ? baseOf(root, file) : worktree;
    const path = base === null ? null : insidePath(root, base, written);
    return path === null ? [] : [{ as, path, key }];
  });
}

/** The names at the top of `root` that the configuration of a git directory names as directories of hooks. Both paths are text. */
export function hooksAtTop(root: string, gitdir: string): string[] {
  const files = CONFIG_FILES.map(file => fromText(`${gitdir}/${file}`));
  const named = namedInside(fromText(root), files, '').filter(({ as }) => as === 'hooks');
  const paths = named.map(({ path }) => posix.normalize(`./${toText(path)}`).replace(/\/$/, ''));
  return [...new Set(paths)].filter(path => path !== '.' && path !== '..' && !path.includes('/'));
}

// What a file outside includes by a relative path is outside as well.
function baseOf(root: string, file: string): string | null {
  return file.startsWith(`${root}/`)
    ? file.slice(root.length + 1, Math.max(root.length + 1, file.lastIndexOf('/')))
    : null;
}

function insidePath(root: string, base: string, written: string): string | null {
  if (written.includes('\0')) return null;
  if (written.startsWith('~/')) return writtenInside(root, base, fromText(`${homedir()}${written.slice(1)}`));
  return written.startsWith('~') ? null : writtenInside(root, base, fromText(written));
}

/** The beginning of a file of the host, without following a link; null where there is none. */
export function readSmall(path: string, most: number, encoding: 'utf8' | 'latin1'): string | null {
  let descriptor: number;
  try {
    descriptor = openSync(bytes(path), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return null;
  }
  try {
    if (!fstatSync(descriptor).isFile()) return null;
    const buffer = Buffer.alloc(most);
    return buffer.toString(encoding, 0, readSync(descriptor, buffer, 0, most, 0));
  } catch {
    return null;
  } finally {
    closeSync(descriptor);
  }
}

/** One value of a configuration file. */
export interface ConfigValue {
  /** Section, subsection and key, as git writes them: section and key in lower case. */
  readonly section: string;
  readonly subsection: string | null;
  readonly key: string;
  readonly value: string;
}

/** Something that a configuration names. */
export interface NamedPath {
  /**
   * `hooks` is a directory of programs; `include` a file of more configuration, relative to the one that names it; `attributes` a file
   * that assigns filters; `command` a word of a command line, which may be a file.
   */
  readonly as: 'hooks' | 'include' | 'attributes' | 'command';
  readonly path: string;
  /** The key that names it, such as `core.hookspath` or `filter.*.clean`. */
  readonly key: string;
}

const MAX_VALUES = 5000;
const MAX_WORDS = 64;

// The spaces before a subsection belong to it alone: were they optional on both sides of a missing one, a long run of them would take
// quadratic time.
const SECTION = /^\[\s*([-.A-Za-z0-9]+)(?:\s*"((?:[^"\\\n]|\\.)*)")?\s*\]/;
const KEY = /^([A-Za-z][-A-Za-z0-9]*)[ \t]*(=?)/;

/** Reads a configuration file as git does; what git would refuse is left out, and what follows it is read. */
export function parseGitConfig(text: string): ConfigValue[] {
  const values: ConfigValue[] = [];
  let section = '';
  let subsection: string | null = null;
  let rest = text.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n');
  while (rest !== '' && values.length < MAX_VALUES) {
    rest = rest.replace(/^\s+/, '');
    const header = SECTION.exec(rest);
    const key = KEY.exec(rest);
    if (header) {
      [section, subsection] = sectionOf(header[1] ?? '', header[2]);
      rest = rest.slice(header[0].length);
    } else if (key && section !== '') {
      const { value, length } = key[2] === '=' ? valueIn(rest.slice(key[0].length)) : { value: '', length: 0 };
      values.push({ section, subsection, key: (key[1] ?? '').toLowerCase(), value });
      rest = rest.slice(key[0].length + length);
    } else rest = rest.slice(lineEnd(rest));
  }
  return values;
}

// `[a "b"]`, or the older `[a.b]`.
function sectionOf(name: string, quoted: string | undefined): [section: string, subsection: string | null] {
  if (quoted !== undefined) return [name.toLowerCase(), quoted.replaceAll(/\\(.)/g, '$1')];
  const dot = name.indexOf('.');
  return dot < 0 ? [name.toLowerCase(), null] : [name.slice(0, dot).toLowerCase(), name.slice(dot + 1).toLowerCase()];
}

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', b: '\b', '"': '"', '\\': '\\', '\n': '' };

// One piece of a value: quoted text, an escaped sign or line end, spaces, or plain text.
const PIECE = /"((?:[^"\\\n]|\\[^])*)"?|\\([^])|([ \t\r\f\v]+)|([^"\\\s#;]+)/y;

// A value ends with its line, unless a backslash is before the end; quotes keep spaces and comment signs.
function valueIn(text: string): { readonly value: string; readonly length: number } {
  let value = '';
  let spaces = '';
  PIECE.lastIndex = 0;
  let length = 0;
  for (let piece = PIECE.exec(text); piece; piece = PIECE.exec(text)) {
    length = PIECE.lastIndex;
    const [, quoted, escaped, space, plain] = piece;
    if (space !== undefined) {
      // Spaces at the beginning and the end are not part of it.
      if (value !== '') spaces += space;
      continue;
    }
    value += spaces + (plain ?? (quoted === undefined ? (ESCAPES[escaped ?? ''] ?? '') : unescaped(quoted)));
    spaces = '';
  }
  return { value, length: length + lineEnd(text.slice(length)) };
}

function unescaped(text: string): string {
  return text.replaceAll(/\\([^])/g, (_, sign: string) => ESCAPES[sign] ?? '');
}

function lineEnd(text: string): number {
  const end = text.indexOf('\n');
  return end < 0 ? text.length : end + 1;
}

// Keys whose value is a command line, by section: `*` is any subsection, and where there is none.
const COMMANDS_BY_SECTION = {
  core: 'fsmonitor sshcommand editor pager askpass gitproxy alternaterefscommand',
  sequence: 'editor',
  filter: 'clean smudge process',
  diff: 'external command textconv',
  merge: 'driver',
  mergetool: 'cmd path',
  difftool: 'cmd path',
  browser: 'cmd path',
  man: 'cmd path',
  guitool: 'cmd',
  interactive: 'difffilter',
  credential: 'helper',
  gpg: 'program defaultkeycommand',
  uploadpack: 'packobjectshook',
  remote: 'uploadpack receivepack url pushurl vcs',
  submodule: 'update',
  sendemail: 'smtpserver tocmd cccmd headercmd sendmailcmd',
  trailer: 'command cmd',
  web: 'browser',
  imap: 'tunnel',
  instaweb: 'httpd browser',
  tar: 'command',
  hook: 'command',
  // Of custom transfers and of extensions.
  lfs: 'path clean smudge',
};
// Maps: a section may be called like something that every object has.
const COMMANDS: ReadonlyMap<string, ReadonlySet<string>> = new Map(
  Object.entries(COMMANDS_BY_SECTION).map(([section, keys]) => [section, new Set(keys.split(' '))]),
);
// Of these every key is a command.
const ALL_COMMANDS = new Set(['alias', 'pager']);

const PATHS: ReadonlyMap<string, NamedPath['as']> = new Map([
  ['core.hookspath', 'hooks'],
  ['core.attributesfile', 'attributes'],
  ['include.path', 'include'],
  ['includeif.path', 'include'],
]);

/** What the values name: whatever of it exists in the workspace is executed or obeyed by git on the host. */
export function pathsNamedBy(values: readonly ConfigValue[]): NamedPath[] {
  return values.flatMap(({ section, subsection, key: own, value }) => {
    // A subsection is anybody’s text, and this is shown to people.
    const key = subsection === null ? `${section}.${own}` : `${section}.*.${own}`;
    const as = PATHS.get(`${section}.${own}`);
    if (as) return value === '' ? [] : [{ as, path: value, key }];
    const isCommand = ALL_COMMANDS.has(section) || COMMANDS.get(section)?.has(own);
    return isCommand ? wordsOf(value).map(path => ({ as: 'command', path, key })) : [];
  });
}

// Every word may be what is executed: `sh tools/filter.sh`, `!f() { ./x; }; f`. A word that names nothing costs one question.
function wordsOf(command: string): string[] {
  const words = command
    .split(/[\s;|&()<>{}"'`$=!]+|ext::/)
    .filter(word => /[^-.\d]/.test(word) && !word.startsWith('-'));
  return [...new Set(words)].slice(0, MAX_WORDS);
}
