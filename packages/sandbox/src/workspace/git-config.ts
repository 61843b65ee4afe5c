// What the configuration of a git repository names that git executes or obeys. Pure; git itself is never asked.

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
