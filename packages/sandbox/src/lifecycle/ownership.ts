// Ownership of sandboxes: whether the session of one lives, and until when one may exist that outlives its session.
//
// A session proves that it is alive by a unix socket it listens on: the kernel answers for it, however busy it is, and
// stops answering the moment the process ends. No process id, which would be reused, and no heartbeat, which would lie.
// Leases are files in the state directory, since a label cannot change.

import { createHash, randomBytes } from 'node:crypto';
import { lstatSync } from 'node:fs';
import { chmod, lstat, mkdir, readFile, readdir, rename, rm } from 'node:fs/promises';
import { createConnection, createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import { AcodeError } from '../contract/errors.ts';
import { createPrivateFile, readPrivateFile, writePrivateFile } from './directories.ts';

/** What is known about the owner of a sandbox. Unknown counts as alive. */
export type OwnerState = 'alive' | 'dead' | 'unknown';

// The kernel’s limit on the path of a socket, without the closing NUL.
const MAX_PATH = 107;
const CONNECT_MS = 1000;
const OWNERS = 'owners';
const OFFERS = 'commands';
const NETWORKS = 'networks';
const OFFER = /^[0-9a-f]{16}-[0-9a-f]{8}$/;
const HALF_ID = 16;
const OTHERS = 0o077;
// What a socket is called until it answers.
const DRAFT = '~';
const MAX_DRAFT_MS = 60_000;
const OWNER = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Where the owner of a session listens. */
export function ownerSocketPath(runtimeDirectory: string, owner: string): string {
  return join(runtimeDirectory, OWNERS, owner.replaceAll('-', ''));
}

/** Where the owner of commands offers them to the user’s other processes: one of several places of a sandbox. */
export function offerSocketPath(runtimeDirectory: string, sandboxId: string): string {
  return join(runtimeDirectory, OFFERS, `${offersOf(sandboxId)}${randomBytes(4).toString('hex')}`);
}

/** Where the owner of a sandbox’s network offers it to the user’s other processes. */
export function networkSocketPath(runtimeDirectory: string, sandboxId: string): string {
  return join(runtimeDirectory, NETWORKS, `${offersOf(sandboxId)}${randomBytes(4).toString('hex')}`);
}

/** Where the networks of all sandboxes are offered. */
export async function networkSocketPaths(runtimeDirectory: string): Promise<string[]> {
  const names = await offerNames(runtimeDirectory, NETWORKS);
  return names.map(name => join(runtimeDirectory, NETWORKS, name));
}

/** All directories in which commands of a sandbox are offered; none if another user could have created one of them. */
export async function offerSocketPaths(runtimeDirectory: string, sandboxId: string): Promise<string[]> {
  const names = await offerNames(runtimeDirectory);
  return names.filter(name => name.startsWith(offersOf(sandboxId))).map(name => join(runtimeDirectory, OFFERS, name));
}

/** The sandboxes with such an id in which commands are offered: of each id the first half, which is enough to find it. */
export async function offeringSandboxes(runtimeDirectory: string, idPrefix: string): Promise<string[]> {
  const wanted = idPrefix.replaceAll('-', '').slice(0, HALF_ID);
  const names = await offerNames(runtimeDirectory);
  const ids = new Set(names.map(name => name.slice(0, HALF_ID)).filter(id => id.startsWith(wanted)));
  return [...ids].map(id => `${id.slice(0, 8)}-${id.slice(8, 12)}-${id.slice(12)}`);
}

async function offerNames(runtimeDirectory: string, kind = OFFERS): Promise<string[]> {
  const directory = join(runtimeDirectory, kind);
  const found = await lstat(directory).catch(() => null);
  if (!found?.isDirectory() || found.uid !== process.getuid?.() || (found.mode & OTHERS) !== 0) return [];
  return (await readdir(directory).catch(() => [])).filter(name => OFFER.test(name));
}

// Half of the id: the path of a socket may not be long, and no two sandboxes share half of theirs.
function offersOf(sandboxId: string): string {
  return `${sandboxId.replaceAll('-', '').slice(0, HALF_ID)}-`;
}

/** A session’s proof of life, from `listen` to `close`. */
export class OwnerSocket {
  readonly path: string;
  #listening: Listening;
  #renewal: Promise<void> | null = null;

  private constructor(path: string, listening: Listening) {
    this.path = path;
    this.#listening = listening;
  }

  /** Begins to listen. The socket never keeps the process running. */
  static async listen(runtimeDirectory: string, owner: string): Promise<OwnerSocket> {
    const path = ownerSocketPath(runtimeDirectory, owner);
    if (Buffer.byteLength(path) + DRAFT.length > MAX_PATH) {
      const reason = `is too long a path for a socket: use a shorter XDG_RUNTIME_DIR`;
      throw new AcodeError('ACODE-SBX-013', { source: runtimeDirectory, key: '', reason });
    }
    return new OwnerSocket(path, await listenAt(path));
  }

  /** Listens again if the socket was removed, for example by a cleaner of temporary files. */
  async ensure(): Promise<void> {
    this.#renewal ??= this.#renew().finally(() => (this.#renewal = null));
    await this.#renewal;
  }

  /** Stops listening and takes the socket away. */
  async close(): Promise<void> {
    await this.#renewal?.catch(() => undefined);
    await stop(this.#listening.server);
    await rm(this.path, { force: true });
  }

  async #renew(): Promise<void> {
    if (inodeNow(this.path) === this.#listening.inode) return;
    const before = this.#listening.server;
    this.#listening = await listenAt(this.path);
    await stop(before);
  }
}

// Without a pause: it is asked before each command.
function inodeNow(path: string): number | null {
  try {
    return lstatSync(path, { throwIfNoEntry: false })?.ino ?? null;
  } catch {
    return null;
  }
}

/** A socket that listens. */
export interface Listening {
  readonly server: Server;
  /** Which socket it is: another one in its place does not lead here. */
  readonly inode: number;
}

/**
 * Listens on a socket that never keeps the process running. Under another name first: between its making and its first answer
 * a socket looks like that of a dead owner, and another session that saw it then would remove it. By default, a process that connects
 * only wants to know whether the owner listens.
 */
export async function listenAt(
  path: string,
  answer: (connection: Socket) => void = connection => void connection.destroy(),
): Promise<Listening> {
  const draft = `${path}${DRAFT}`;
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await rm(draft, { force: true });
  const server = createServer(answer).unref();
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(draft, resolve);
  });
  server.on('error', () => undefined);
  try {
    const { ino: inode } = await lstat(draft);
    await chmod(draft, 0o600);
    await rename(draft, path);
    return { server, inode };
  } catch (error) {
    await stop(server);
    throw error;
  }
}

async function stop(server: Server): Promise<void> {
  await new Promise<void>(resolve => void server.close(() => resolve()));
}

/** Whether the owner of a sandbox lives, by connecting to it. */
export async function ownerState(runtimeDirectory: string, owner: string | undefined): Promise<OwnerState> {
  if (owner === undefined || !OWNER.test(owner)) return 'unknown';
  return socketState(ownerSocketPath(runtimeDirectory, owner));
}

/** Removes the sockets of dead owners, which a killed process leaves behind, and those they offered their commands on. */
export async function removeDeadSockets(runtimeDirectory: string): Promise<number> {
  const offers = await Promise.all([OFFERS, NETWORKS].map(kind => socketsIn(join(runtimeDirectory, kind), OFFER)));
  const sockets = [...(await owners(runtimeDirectory)), ...offers.flat()];
  const dead = sockets.filter(({ state }) => state === 'dead');
  await Promise.all([
    ...dead.map(({ path }) => rm(path, { force: true })),
    removeDrafts(join(runtimeDirectory, OWNERS)),
    removeDrafts(join(runtimeDirectory, OFFERS)),
    removeDrafts(join(runtimeDirectory, NETWORKS)),
  ]);
  return dead.length;
}

// Those of processes that were killed before theirs had its name.
async function removeDrafts(directory: string): Promise<void> {
  const names = (await readdir(directory).catch(() => [])).filter(name => name.endsWith(DRAFT));
  for (const name of names) {
    const found = await lstat(join(directory, name)).catch(() => null);
    if (found && Date.now() - found.mtimeMs > MAX_DRAFT_MS) await rm(join(directory, name), { force: true });
  }
}

/** How many owners live here, or may live. */
export async function liveOwners(runtimeDirectory: string): Promise<number> {
  return (await owners(runtimeDirectory)).filter(({ state }) => state !== 'dead').length;
}

function owners(runtimeDirectory: string): Promise<{ path: string; state: OwnerState }[]> {
  return socketsIn(join(runtimeDirectory, OWNERS), /^[0-9a-f]{32}$/);
}

async function socketsIn(directory: string, called: RegExp): Promise<{ path: string; state: OwnerState }[]> {
  const names = (await readdir(directory).catch(() => [])).filter(name => called.test(name));
  return Promise.all(
    names.map(async name => ({ path: join(directory, name), state: await socketState(join(directory, name)) })),
  );
}

/** Whether somebody listens on a socket, by connecting to it. */
export async function socketState(path: string): Promise<OwnerState> {
  return new Promise(resolve => {
    const connection = createConnection(path);
    const settle = (state: OwnerState): void => {
      connection.destroy();
      resolve(state);
    };
    connection.setTimeout(CONNECT_MS, () => settle('unknown'));
    connection.once('connect', () => settle('alive'));
    connection.once('error', (error: NodeJS.ErrnoException) =>
      // A full queue of connections (EAGAIN), or a directory we may not enter, says nothing about death.
      settle(error.code === 'ECONNREFUSED' || error.code === 'ENOENT' ? 'dead' : 'unknown'),
    );
  });
}

const TOKEN = /^[0-9a-f]{32}\n$/;

/** A hash that is the same for every process of this host that shares `runtimeDirectory`, and never again after that directory was removed. */
export async function hostIdentity(runtimeDirectory: string): Promise<string> {
  const path = tokenPath(runtimeDirectory);
  const token = readToken(path) ?? makeToken(path);
  return identityOf(token);
}

/**
 * Whether the runtime directory is still the one of an identity. Where it was removed or replaced, the sockets of owners are
 * gone with it, and that says nothing about the owners.
 */
export async function isStillHost(runtimeDirectory: string, identity: string): Promise<boolean> {
  const token = readToken(tokenPath(runtimeDirectory));
  return token !== null && (await identityOf(token)) === identity;
}

// A token and not the number of the inode: file systems give those to the next directory, a login later or a moment.
function tokenPath(runtimeDirectory: string): string {
  return join(runtimeDirectory, 'host');
}

async function identityOf(token: string): Promise<string> {
  return createHash('sha256')
    .update(`${await bootId()}\n${token}`)
    .digest('hex')
    .slice(0, 32);
}

function readToken(path: string): string | null {
  const token = readPrivateFile(path, { maxBytes: 64 })?.text ?? '';
  return TOKEN.test(token) ? token : null;
}

// Of two processes that make it at once, both use the one that was there first.
function makeToken(path: string): string {
  const made = `${randomBytes(16).toString('hex')}\n`;
  try {
    createPrivateFile(path, made);
  } catch {
    // A file system without links: the rename below does the same, but for a race.
  }
  // What is there and cannot be understood is replaced.
  if (readToken(path) === null) writePrivateFile(path, made);
  return readToken(path) ?? made;
}

// Only Linux has a boot id; elsewhere the host name is the nearest thing that does not change while sandboxes live.
async function bootId(): Promise<string> {
  try {
    return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
  } catch {
    return hostname();
  }
}

const MAX_BYTES = 1024;

/** The hard maximum of a sandbox’s life, which its labels carry. */
export const HARD_MAXIMUM_MS = 25 * 3600 * 1000;

const SANDBOX = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Whether a text is the id of a sandbox: what an engine’s labels say becomes no part of a path before. */
export function isSandboxId(text: string): boolean {
  return SANDBOX.test(text);
}

/** The leases of one user. A lease never reaches beyond the hard maximum in the labels, whatever it says. */
export class Leases {
  readonly #directory: string;

  constructor(stateDirectory: string) {
    this.#directory = join(stateDirectory, 'leases');
  }

  /** What labels call this place: not its path, which anybody could read who may ask the engine. */
  get place(): string {
    return createHash('sha256').update(this.#directory).digest('hex').slice(0, 16);
  }

  /** When the lease of a sandbox ends; null where it has none, or none that can be read. */
  read(sandboxId: string): number | null {
    const file = isSandboxId(sandboxId) ? readPrivateFile(this.pathOf(sandboxId), { maxBytes: MAX_BYTES }) : null;
    const until = Date.parse(file?.text.split(/\s/)[0] ?? '');
    return Number.isFinite(until) ? until : null;
  }

  /** Whether the lease of a sandbox ends later than now. */
  isCurrent(sandboxId: string, now: number): boolean {
    return (this.read(sandboxId) ?? 0) > now;
  }

  /** Grants or changes a lease. A reader sees the old one or the new one, never half of either. */
  async grant(sandboxId: string, until: Date): Promise<void> {
    if (!isSandboxId(sandboxId)) throw new TypeError(`${sandboxId} is not the id of a sandbox`);
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    // A second time as a number of seconds: a keeper is a shell, and has no calendar.
    writePrivateFile(this.pathOf(sandboxId), `${until.toISOString()} ${Math.ceil(until.getTime() / 1000)}\n`);
  }

  /** Ends a lease: its sandbox was removed. */
  async drop(sandboxId: string): Promise<void> {
    if (isSandboxId(sandboxId)) await rm(this.pathOf(sandboxId), { force: true });
  }

  /** Where the lease of a sandbox is, or would be. */
  pathOf(sandboxId: string): string {
    return join(this.#directory, sandboxId);
  }

  /**
   * Drops the leases that say nothing any more. That a sandbox is not on this engine is not enough: a user may have several,
   * and a lease too few would let a kept sandbox on another one live longer. Once it is past the hard maximum, its labels say
   * the same.
   */
  async prune(existing: ReadonlySet<string>, now: number): Promise<void> {
    const names = await readdir(this.#directory).catch(() => []);
    for (const name of names.filter(one => isSandboxId(one) && !existing.has(one))) {
      const until = this.read(name);
      if (until === null || until + HARD_MAXIMUM_MS < now) await rm(join(this.#directory, name), { force: true });
    }
  }
}
