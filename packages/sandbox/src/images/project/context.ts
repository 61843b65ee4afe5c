// Build context of a project: no link is followed, nothing secret is taken, and its size is bounded.

import { constants } from 'node:fs';
import { readlink } from 'node:fs/promises';
import { join, posix } from 'node:path';
import { readBoundedFile } from '../../lifecycle/directories.ts';
import { AcodeError } from '../../contract/errors.ts';
import type { MaskedPath } from '../../contract/masks.ts';
import { formatBytes } from '../../contract/units.ts';
import { DirectoryLook, fromText, toText } from '../../workspace/directory-look.ts';
import type { IgnoreRules, Verdict } from './pattern.ts';
import { Pauses } from '../../lifecycle/clock.ts';
import type { TarEntry } from '../../workspace/archive/context-tar.ts';
import { CREDENTIALS } from '../../workspace/locate.ts';

/** A file, directory or link of a project. */
export interface ContextEntry extends TarEntry {
  /** Which object of the file system it was, and in which version: what is read later must be the same. */
  readonly version: FileVersion;
  /** How many names a file has, here and elsewhere. */
  readonly links: number;
}

/** Identity of one version of one file. Only the kernel can set the time of the last change. */
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
  /** What is masked in a sandbox of the project: an image does not have it either. */
  readonly masked?: readonly Pick<MaskedPath, 'path' | 'device' | 'inode'>[];
  /** Whether links may lead out of the directory: they then lead to places of the image. */
  readonly linksOut: boolean;
}

/** The files of an image. */
export interface Context {
  readonly root: string;
  /** Every directory before what is in it, otherwise by name. */
  readonly entries: readonly ContextEntry[];
  readonly bytes: number;
  /** What images never hold. */
  readonly withheld: readonly string[];
}

/** The most bytes of files by default. */
export const MAX_BYTES = 2 * 1024 ** 3;
/** The most files and directories by default. */
export const MAX_FILES = 200_000;

// Of what is left out too: a directory without an end would otherwise be looked through for ever.
const MAX_LOOKED_AT = 1_000_000;
// Put in order in one go.
const MAX_SIDE_BY_SIDE = 200_000;
const MAX_DEPTH = 100;
const MAX_IGNORE = 256 * 1024;
const IGNORE_FILE = '.dockerignore';
// It is looked into although it is left out, since a file of the project may be another name of one in it.
const MOVE_AWAY = 'Make it readable, or move it out of the project.';
// In a layer such a name is not a file: it takes away the file of the same name in the layers below.
const WHITEOUT = '.wh.';

/** The text of a project’s `.dockerignore`; empty where there is none. */
export async function readIgnoreFile(root: string): Promise<string> {
  const remedy = `Make ${IGNORE_FILE} an ordinary file of at most ${formatBytes(MAX_IGNORE)}, or remove it.`;
  const file = await readBoundedFile(join(root, IGNORE_FILE), MAX_IGNORE, constants.O_NOFOLLOW).catch(
    (cause: unknown) => {
      if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return null;
      throw refused(IGNORE_FILE, 'it is not an ordinary file that can be read', remedy, cause);
    },
  );
  if (file && file.size > MAX_IGNORE) throw refused(IGNORE_FILE, 'it is too large', remedy);
  return file?.text ?? '';
}

/** Looks through a directory. */
export async function readContext(root: string, rules: ContextRules, signal: AbortSignal): Promise<Context> {
  const walk = new Walk(root, rules, signal);
  await walk.directory('', 0, rules.ignore?.top ?? null);
  return walk.context();
}

class Walk {
  readonly #root: string;
  readonly #rules: ContextRules;
  readonly #pauses: Pauses;
  readonly #entries: ContextEntry[] = [];
  readonly #withheld: string[] = [];
  readonly #secretDirectories: string[] = [];
  // Other names of what is withheld.
  readonly #secretFiles = new Set<string>();
  readonly #masked: ReadonlySet<string>;
  #bytes = 0;
  #lookedAt = 0;

  constructor(root: string, rules: ContextRules, signal: AbortSignal) {
    this.#root = root;
    this.#rules = rules;
    this.#pauses = new Pauses(signal);
    const masked = rules.masked ?? [];
    this.#masked = new Set(masked.map(({ path }) => path));
    // Under whatever name: a command may have renamed a directory above it since.
    for (const { device, inode } of masked) this.#secretFiles.add(`${device}:${inode}`);
  }

  async context(): Promise<Context> {
    const linked = this.#entries.some(({ kind, links }) => kind === 'file' && links > 1);
    // Only a file of several names can be one of theirs; history alone may be as large as the project.
    if (linked) for (const path of this.#secretDirectories) await this.#secretsIn(path, 0);
    const isSecond = ({ kind, version }: ContextEntry): boolean =>
      kind === 'file' && this.#secretFiles.has(keyOf(version));
    const entries = this.#entries.filter(entry => !isSecond(entry));
    const seconds = this.#entries.filter(isSecond).map(({ path }) => path);
    const bytes = entries.reduce((sum, { size }) => sum + size, 0);
    return { root: this.#root, entries, bytes, withheld: [...this.#withheld, ...seconds] };
  }

  async directory(path: string, depth: number, verdict: Verdict | null): Promise<void> {
    if (depth > MAX_DEPTH) throw tooMuch(path, `it lies deeper than ${MAX_DEPTH} directories`);
    for (const entry of await this.#listed(path)) {
      await this.#count(path);
      if (this.#withholds(entry)) continue;
      const judged =
        verdict && this.#rules.ignore ? this.#rules.ignore.judge(posix.basename(entry.path), verdict) : null;
      if (!isIgnored(judged)) this.#take(await this.#withTarget(entry));
      if (entry.kind === 'directory' && this.#enters(judged)) await this.directory(entry.path, depth + 1, judged);
    }
  }

  async #count(path: string): Promise<void> {
    this.#lookedAt += 1;
    if (this.#lookedAt > MAX_LOOKED_AT) throw tooMuch(path, `there are more than ${MAX_LOOKED_AT} files`);
    if (this.#pauses.isDue) await this.#pauses.take();
  }

  #enters(verdict: Verdict | null): boolean {
    return verdict === null || !verdict.ignored || this.#rules.ignore?.bringsBackBelow(verdict) === true;
  }

  // Sockets, devices and FIFOs are nothing that an image could hold.
  #withholds(entry: Found): boolean {
    const secret = (this.#rules.ignore !== null && isSecret(entry.path)) || this.#isMasked(entry);
    if (!secret && entry.kind !== 'special') return false;
    this.#withheld.push(entry.path);
    if (secret && entry.kind === 'file') this.#secretFiles.add(keyOf(entry.version));
    if (secret && entry.kind === 'directory') this.#secretDirectories.push(entry.path);
    return true;
  }

  #isMasked({ path, version }: Found): boolean {
    return this.#masked.has(path) || (this.#masked.size > 0 && this.#secretFiles.has(keyOf(version)));
  }

  async #secretsIn(path: string, depth: number): Promise<void> {
    if (depth > MAX_DEPTH) throw tooMuch(path, `it lies deeper than ${MAX_DEPTH} directories`);
    for (const entry of await this.#listed(path, MOVE_AWAY)) {
      await this.#count(path);
      if (entry.kind === 'file' && entry.links > 1) this.#secretFiles.add(keyOf(entry.version));
      if (entry.kind === 'directory') await this.#secretsIn(entry.path, depth + 1);
    }
  }

  #take(entry: ContextEntry): void {
    if (posix.basename(entry.path).startsWith(WHITEOUT)) throw this.#whiteout(entry.path);
    this.#entries.push(entry);
    if (entry.kind === 'file') this.#bytes += entry.size;
    const { mostBytes, mostFiles } = this.#rules;
    if (this.#entries.length > mostFiles)
      throw tooMuch(entry.path, `there are more than ${mostFiles} files and directories`);
    if (this.#bytes > mostBytes) throw tooMuch(entry.path, `the files are larger than ${formatBytes(mostBytes)}`);
  }

  #whiteout(path: string): AcodeError {
    const remedy =
      this.#rules.ignore === null ? 'Have the install command remove it.' : `Rename it, or list it in ${IGNORE_FILE}.`;
    return refused(path, `in an image a name that begins with ${WHITEOUT} takes away another file`, remedy);
  }

  async #listed(path: string, remedy?: string): Promise<Found[]> {
    const look = DirectoryLook.open(fromText(join(this.#root, path)));
    const shown = path || '.';
    if (typeof look === 'string') throw unreadable(shown, look, remedy);
    using directory = look;
    const found: Found[] = [];
    for (let entry = directory.next(); entry !== null; entry = directory.next()) {
      if (entry === 'unreadable') throw unreadable(shown, entry, remedy);
      if (found.length >= MAX_SIDE_BY_SIDE)
        throw tooMuch(shown, `there are more than ${MAX_SIDE_BY_SIDE} files side by side in it`);
      const stats = directory.lstat(entry.name);
      if (stats) found.push(foundOf(posix.join(path, nameOf(entry.name, path)), stats));
      if (this.#pauses.isDue) await this.#pauses.take();
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
        `Replace it with its target, or list it in ${IGNORE_FILE}.`,
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
    links: stats.nlink,
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

function unreadable(path: string, why: string, remedy = `Make it readable, or list it in ${IGNORE_FILE}.`): AcodeError {
  return refused(path, why === 'elsewhere' ? 'it was replaced while acode read it' : 'it cannot be read', remedy);
}

function tooMuch(path: string, reason: string): AcodeError {
  return refused(path, reason, `List in ${IGNORE_FILE} what the image need not have, such as build output.`);
}

function refused(path: string, reason: string, remedy: string, cause?: unknown): AcodeError {
  return new AcodeError('ACODE-IMG-002', { path, reason, remedy }, cause === undefined ? {} : { cause });
}

// Of repositories and agents: history holds what was deleted, and hooks are for the host.
const NEVER = ['.git', '.hg', '.svn', '.bzr', '.agent'];

const SECRET_NAMES = new Set(
  [
    ...NEVER,
    ...CREDENTIALS.filter(name => !name.includes('/')),
    '_netrc',
    '.dockercfg',
    '.dockerconfigjson',
    '.htpasswd',
    '.s3cfg',
    '.boto',
    'kubeconfig',
    'credentials',
    'credentials.json',
    'credentials.toml',
    'credentials.yml',
    'credentials.yaml',
    'secrets.json',
    'secrets.toml',
    'secrets.yml',
    'secrets.yaml',
    'master.key',
    '.secrets',
    '.kubeconfig',
    '.yarnrc',
    '.my.cnf',
    '.mylogin.cnf',
    '.smbcredentials',
    '.fetchmailrc',
    '.msmtprc',
    '.terraformrc',
    '.vault_pass',
    '.vault_password',
    '.lesshst',
    '.viminfo',
    'rclone.conf',
    'auth.json',
    'application_default_credentials.json',
  ].map(name => name.toLowerCase()),
);

const SECRET_PATTERNS = [
  /^\.env/,
  /\.env$/,
  /\.(?:pem|key|p8|p12|pfx|pkcs8|pkcs12|jks|jceks|bks|keystore|keytab|kdbx?|ppk|ovpn|gpg|age|kubeconfig)$/,
  /^id_(?:rsa|dsa|ecdsa|ed25519)/,
  /^ssh_host_.*_key/,
  /^wg\d+\.conf$/,
  /(?:^|[-_.])(?:credentials?|secrets?)\.(?:json|ya?ml|toml|xml|ini|properties|txt)$/,
  /^client_secret.*\.json$|firebase-adminsdk.*\.json$/,
  /^(?:service[-_]?account|gcp[-_]key).*\.json$/,
  /\.tfstate(?:\.|$)|\.tfvars(?:\.|$)/,
  /^\..*_history$/,
];

// Those that are secret by where they are: `.config/gcloud`.
const SECRET_PLACES = CREDENTIALS.filter(name => name.includes('/')).map(name => name.toLowerCase());

/**
 * Whether a path of a project, or a directory by that path, holds secrets by its name. Letter case does not matter, since it
 * does not on the file systems of some hosts.
 */
export function isSecret(path: string): boolean {
  const key = path.toLowerCase();
  const name = key.slice(key.lastIndexOf('/') + 1);
  if (SECRET_NAMES.has(name) || SECRET_PATTERNS.some(pattern => pattern.test(name))) return true;
  return SECRET_PLACES.some(place => key === place || key.endsWith(`/${place}`));
}
