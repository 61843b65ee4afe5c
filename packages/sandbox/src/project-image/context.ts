// Finds what of a project goes into its image: no link is followed, nothing secret is taken, and there is an end to it.

import { constants } from 'node:fs';
import { readlink } from 'node:fs/promises';
import { join, posix } from 'node:path';
import { readBoundedFile } from '../config/bounded-file.ts';
import { AcodeError } from '../contract/errors.ts';
import { formatBytes } from '../config/units.ts';
import { DirectoryLook, fromText, toText } from '../workspace/directory-look.ts';
import type { IgnoreRules, Verdict } from './ignore.ts';
import { isSecret } from './secrets.ts';
import type { TarEntry } from './tar.ts';

/** A file, directory or link of a project. */
export interface ContextEntry extends TarEntry {
  /** Which object of the file system it was, and in which version: what is read later must be the same. */
  readonly version: FileVersion;
}

/** What tells one version of one file from another. Nobody but the kernel can set the time of the last change. */
export interface FileVersion {
  readonly device: number;
  readonly inode: number;
  readonly size: number;
  readonly modifiedMs: number;
  readonly changedMs: number;
}

/** What of a directory is taken. */
export interface ContextRules {
  readonly mostBytes: number;
  readonly mostFiles: number;
  /** What the project leaves out itself; null to take everything, also what has a secret’s name. */
  readonly ignore: IgnoreRules | null;
  /** Whether links may lead out of the directory: they then lead to places of the image. */
  readonly linksOut: boolean;
}

/** What goes into an image. */
export interface Context {
  readonly root: string;
  /** Every directory before what is in it, otherwise by name. */
  readonly entries: readonly ContextEntry[];
  readonly bytes: number;
  /** What images never hold. */
  readonly withheld: readonly string[];
}

/** The most bytes of files, unless told otherwise. */
export const MOST_BYTES = 2 * 1024 ** 3;
/** The most files and directories, unless told otherwise. */
export const MOST_FILES = 200_000;

// Of what is left out too: a directory without an end would otherwise be looked through for ever.
const MOST_LOOKED_AT = 1_000_000;
const DEEPEST = 100;
const LARGEST_IGNORE = 256 * 1024;
const IGNORE_FILE = '.dockerignore';
// Directories are read without a pause; in between others get their turn, and a signal is heard.
const PAUSE_AFTER = 500;

/** The text of a project’s `.dockerignore`; empty where there is none. */
export async function readIgnoreFile(root: string): Promise<string> {
  const remedy = `Make ${IGNORE_FILE} an ordinary file of at most ${formatBytes(LARGEST_IGNORE)}, or remove it.`;
  const file = await readBoundedFile(join(root, IGNORE_FILE), LARGEST_IGNORE, constants.O_NOFOLLOW).catch(
    (cause: unknown) => {
      if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return null;
      throw refused(IGNORE_FILE, 'it is not an ordinary file that can be read', remedy, cause);
    },
  );
  if (file && file.size > LARGEST_IGNORE) throw refused(IGNORE_FILE, 'it is too large', remedy);
  return file?.text ?? '';
}

/** Looks through a directory. */
export async function readContext(root: string, rules: ContextRules, signal: AbortSignal): Promise<Context> {
  const walk = new Walk(root, rules);
  await walk.directory('', 0, null, signal);
  return walk.context();
}

class Walk {
  readonly #root: string;
  readonly #rules: ContextRules;
  readonly #entries: ContextEntry[] = [];
  readonly #withheld: string[] = [];
  // Other names of what is withheld.
  readonly #secretFiles = new Set<string>();
  #bytes = 0;
  #lookedAt = 0;

  constructor(root: string, rules: ContextRules) {
    this.#root = root;
    this.#rules = rules;
  }

  context(): Context {
    const isSecond = ({ kind, version }: ContextEntry): boolean =>
      kind === 'file' && this.#secretFiles.has(keyOf(version));
    const entries = this.#entries.filter(entry => !isSecond(entry));
    const seconds = this.#entries.filter(isSecond).map(({ path }) => path);
    return { root: this.#root, entries, bytes: this.#bytes, withheld: [...this.#withheld, ...seconds] };
  }

  async directory(path: string, depth: number, verdict: Verdict | null, signal: AbortSignal): Promise<void> {
    if (depth > DEEPEST) throw tooMuch(path, `it lies deeper than ${DEEPEST} directories`);
    for (const entry of this.#listed(path)) {
      await this.#count(path, signal);
      if (this.#withholds(entry)) continue;
      const judged = this.#rules.ignore?.judge(entry.path, verdict) ?? null;
      if (!isIgnored(judged)) this.#take(await this.#withTarget(entry));
      if (entry.kind === 'directory' && this.#enters(entry.path, judged))
        await this.directory(entry.path, depth + 1, judged, signal);
    }
  }

  async #count(path: string, signal: AbortSignal): Promise<void> {
    this.#lookedAt += 1;
    if (this.#lookedAt > MOST_LOOKED_AT) throw tooMuch(path, `there are more than ${MOST_LOOKED_AT} files`);
    if (this.#lookedAt % PAUSE_AFTER === 0) await pause(signal);
  }

  #enters(path: string, verdict: Verdict | null): boolean {
    return !isIgnored(verdict) || this.#rules.ignore?.bringsBackBelow(path) === true;
  }

  // Sockets, devices and FIFOs are nothing that an image could hold.
  #withholds(entry: Found): boolean {
    const secret = this.#rules.ignore !== null && isSecret(entry.path);
    if (!secret && entry.kind !== 'special') return false;
    this.#withheld.push(entry.path);
    if (secret && entry.kind === 'file') this.#secretFiles.add(keyOf(entry.version));
    return true;
  }

  #take(entry: ContextEntry): void {
    this.#entries.push(entry);
    if (entry.kind === 'file') this.#bytes += entry.size;
    const { mostBytes, mostFiles } = this.#rules;
    if (this.#entries.length > mostFiles)
      throw tooMuch(entry.path, `there are more than ${mostFiles} files and directories`);
    if (this.#bytes > mostBytes) throw tooMuch(entry.path, `the files are larger than ${formatBytes(mostBytes)}`);
  }

  #listed(path: string): Found[] {
    const look = DirectoryLook.open(fromText(path === '' ? this.#root : join(this.#root, path)));
    if (typeof look === 'string') throw unreadable(path === '' ? '.' : path, look);
    using directory = look;
    const before = path === '' ? '' : `${path}/`;
    const found: Found[] = [];
    for (let entry = directory.next(); entry !== null; entry = directory.next()) {
      if (entry === 'unreadable') throw unreadable(path === '' ? '.' : path, entry);
      if (this.#lookedAt + found.length > MOST_LOOKED_AT)
        throw tooMuch(path, `there are more than ${MOST_LOOKED_AT} files`);
      const stats = directory.lstat(entry.name);
      if (stats) found.push(foundOf(`${before}${nameOf(entry.name, path)}`, stats));
    }
    // So that the order is the same on every host.
    return found.sort((one, other) => (one.path < other.path ? -1 : 1));
  }

  async #withTarget(entry: Found): Promise<ContextEntry> {
    const { path, kind } = entry;
    if (kind === 'special') throw new TypeError('special files are withheld');
    if (kind !== 'link') return { ...entry, kind };
    const target = await readlink(join(this.#root, path));
    if (!this.#rules.linksOut && leadsOut(path, target))
      throw refused(
        path,
        'it is a link that leads out of the project',
        `Replace it by what it leads to, or list it in ${IGNORE_FILE}.`,
      );
    return { ...entry, kind, target };
  }
}

/** As it was found; a special file is none that can be taken. */
interface Found extends Omit<ContextEntry, 'kind'> {
  readonly kind: ContextEntry['kind'] | 'special';
}

function isIgnored(verdict: Verdict | null): boolean {
  return verdict?.ignored === true;
}

function foundOf(path: string, stats: NonNullable<ReturnType<DirectoryLook['lstat']>>): Found {
  const kind = stats.isFile()
    ? 'file'
    : stats.isDirectory()
      ? 'directory'
      : stats.isSymbolicLink()
        ? 'link'
        : 'special';
  return {
    path,
    kind,
    mode: modeOf(kind, stats.mode),
    size: kind === 'file' ? stats.size : 0,
    version: {
      device: stats.dev,
      inode: stats.ino,
      size: stats.size,
      modifiedMs: stats.mtimeMs,
      changedMs: stats.ctimeMs,
    },
  };
}

// Whether it can be executed is all that an image keeps: never setuid, and never closed to the sandbox’s user.
function modeOf(kind: Found['kind'], mode: number): number {
  if (kind === 'link') return 0o777;
  return kind === 'directory' || (mode & 0o100) !== 0 ? 0o755 : 0o644;
}

function nameOf(bytes: string, directory: string): string {
  const name = toText(bytes);
  if (fromText(name) === bytes && !name.includes('\\')) return name;
  throw refused(
    posix.join(directory, name),
    'its name is not text that every engine understands',
    `Rename it, or list its directory in ${IGNORE_FILE}.`,
  );
}

function leadsOut(path: string, target: string): boolean {
  if (target.startsWith('/')) return true;
  const end = posix.normalize(posix.join(posix.dirname(path), target));
  return end === '..' || end.startsWith('../');
}

function keyOf({ device, inode }: FileVersion): string {
  return `${device}:${inode}`;
}

async function pause(signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  await new Promise(resolve => setImmediate(resolve));
}

function unreadable(path: string, why: string): AcodeError {
  return refused(
    path,
    why === 'elsewhere' ? 'it was exchanged while it was looked into' : 'it cannot be read',
    `Make it readable, or list it in ${IGNORE_FILE}.`,
  );
}

function tooMuch(path: string, reason: string): AcodeError {
  return refused(path, reason, `List in ${IGNORE_FILE} what the image need not have, such as build output.`);
}

function refused(path: string, reason: string, remedy: string, cause?: unknown): AcodeError {
  return new AcodeError('ACODE-IMG-002', { path, reason, remedy }, cause === undefined ? {} : { cause });
}
