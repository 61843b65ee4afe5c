// Store of swarms: records, events and logs in the user’s state directory, and the readable copy in the workspace.

import { createHash } from 'node:crypto';
import {
  appendFileSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
} from 'node:fs';
import { join } from 'node:path';
import {
  Locks,
  directoriesOf,
  ensurePrivateDirectory,
  homeOf,
  readPrivateFile,
  writePrivateFile,
} from '@acode/sandbox';
import type { Acode, Directories } from '@acode/sandbox';
import { swarmError } from './errors.ts';
import { copyOf, recordSchema, stateCopySchema } from './record.ts';
import type { SwarmRecord, TaskRecord } from './record.ts';

/** The readable copy, relative to the workspace. */
export const STATE_FILE = '.agent/swarm-state.json';
const MAX_RECORD = 64 * 1024 ** 2;
const MAX_COPY = 8 * 1024 ** 2;
const MAX_LOG = 16 * 1024 ** 2;
const LOCK_MS = 30_000;

const clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(ms: number, work: () => void) {
    const timer = setTimeout(work, ms);
    return () => clearTimeout(timer);
  },
};

/** Something that happened to a swarm, for people and programs that watch. */
export type SwarmEvent = { readonly at: string; readonly event: string } & Readonly<Record<string, unknown>>;

/** What the readable copy in a workspace is. */
export type CopyState = 'none' | 'own' | 'changed' | 'foreign' | 'corrupt';

/** The swarms of a user. */
export class SwarmStore {
  readonly #top: string;
  readonly #directories: Directories;
  readonly #uid: number;
  readonly #locks: Locks;

  private constructor(directories: Directories, uid: number) {
    this.#directories = directories;
    this.#uid = uid;
    this.#top = join(directories.state, 'swarms');
    this.#locks = new Locks({ directory: directories.runtime, uid, clock });
  }

  /** The store of the user of this process. */
  static async open(env: NodeJS.ProcessEnv = process.env): Promise<SwarmStore> {
    const uid = process.getuid?.() ?? 0;
    const directories = directoriesOf({ env, home: homeOf(env), uid });
    const store = new SwarmStore(directories, uid);
    for (const path of [directories.state, store.#top, directories.runtime]) await ensurePrivateDirectory(path, uid);
    return store;
  }

  /** Where the sockets of orchestrators are. */
  socketPath(id: string): string {
    return join(this.#directories.runtime, `swarm-${id.slice(0, 8)}.sock`);
  }

  /** The directory of one swarm. */
  directory(id: string): string {
    return join(this.#top, id);
  }

  /** Every swarm of a workspace, or of all; the latest first. Records that cannot be read are left out. */
  list(workspace?: string): SwarmRecord[] {
    const found = readdirSync(this.#top).flatMap(id => {
      try {
        return [this.read(id)];
      } catch {
        return [];
      }
    });
    return found
      .filter(record => workspace === undefined || record.workspace === workspace)
      .sort((one, other) => other.createdAt.localeCompare(one.createdAt));
  }

  /** A swarm by its id, the beginning of it, or the latest of a workspace. */
  find(workspace: string, reference?: string): SwarmRecord {
    const all = this.list(workspace);
    const found =
      reference === undefined ? all[0] : all.find(({ id }) => id.startsWith(reference) && reference.length >= 4);
    if (found) return found;
    const known = all.map(({ id }) => id.slice(0, 8));
    throw swarmError('ACODE-SWM-007', { what: 'swarm', name: reference ?? 'latest', known });
  }

  /** One record. Throws where it is not what this version writes. */
  read(id: string): SwarmRecord {
    const file = this.recordFile(id);
    const found = readPrivateFile(file, { maxBytes: MAX_RECORD, uid: this.#uid });
    if (!found) throw swarmError('ACODE-SWM-005', { file, reason: 'does not exist, or is not yours alone' });
    const parsed = recordSchema.safeParse(jsonOrNull(found.text));
    if (!parsed.success) throw swarmError('ACODE-SWM-005', { file, reason: 'is not a record of a swarm' });
    return parsed.data;
  }

  /** A new record. */
  async create(record: SwarmRecord): Promise<void> {
    await ensurePrivateDirectory(this.directory(record.id), this.#uid);
    mkdirSync(join(this.directory(record.id), 'logs'), { mode: 0o700, recursive: true });
    await this.#locked(record.id, () => this.#write(record));
  }

  /** Changes a record, as it is now: no other process changes it meanwhile. */
  update(id: string, change: (record: SwarmRecord) => void): Promise<SwarmRecord> {
    return this.#locked(id, () => {
      const record = this.read(id);
      change(record);
      record.updatedAt = new Date().toISOString();
      this.#write(record);
      return record;
    });
  }

  /** Removes everything of a swarm. */
  remove(id: string): void {
    rmSync(this.directory(id), { recursive: true, force: true });
  }

  /** Does work while no other process is the orchestrator of this swarm; null where one is. */
  alone<Value>(id: string, work: () => Promise<Value>): Promise<Value | null> {
    return this.#alone(`swarm ${id}`, work);
  }

  async #alone<Value>(key: string, work: () => Promise<Value>): Promise<Value | null> {
    let began = false;
    const once = (): Promise<Value> => {
      began = true;
      return work();
    };
    try {
      return await this.#locks.during(key, { deadlineMs: 0, signal: new AbortController().signal }, once);
    } catch (error) {
      if (began) throw error;
      return null;
    }
  }

  /** Does work while the terminal of this process is the one that is attached to a task; null where another one is. */
  async attached<Value>(id: string, task: string, work: () => Promise<Value>): Promise<Value | null> {
    return this.#alone(`swarm ${id} attached ${task}`, work);
  }

  /** Whether a terminal is attached to a task. */
  async isAttached(id: string, task: string): Promise<boolean> {
    return (await this.attached(id, task, () => Promise.resolve(true))) === null;
  }

  /** Adds an event. */
  event(id: string, event: string, fields: Readonly<Record<string, unknown>> = {}): void {
    const line = { at: new Date().toISOString(), event, ...fields };
    appendFileSync(this.eventsFile(id), `${JSON.stringify(line)}\n`, { mode: 0o600 });
  }

  /** The file of events. */
  eventsFile(id: string): string {
    return join(this.directory(id), 'events.ndjson');
  }

  /** The file of the record: it changes with it. */
  recordFile(id: string): string {
    return join(this.directory(id), 'record.json');
  }

  /** The log of a task: what its programs printed, as bytes. */
  logFile(id: string, task: string): string {
    return join(this.directory(id), 'logs', `${task}.log`);
  }

  /** Adds to the log of a task, up to a limit. */
  log(id: string, task: string, bytes: Uint8Array): void {
    const file = this.logFile(id, task);
    const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
    if (size < MAX_LOG) appendFileSync(file, bytes.subarray(0, MAX_LOG - size), { mode: 0o600 });
  }

  /** Whether the readable copy of a workspace is what this user wrote last on this machine. It is only ever reported. */
  copyState(workspace: string): { readonly state: CopyState; readonly swarmId: string | null } {
    const text = readCopy(workspace);
    if (text === null) return { state: 'none', swarmId: null };
    const parsed = stateCopySchema.safeParse(jsonOrNull(text));
    if (!parsed.success) return { state: 'corrupt', swarmId: null };
    const { swarmId } = parsed.data;
    const own = this.list(workspace).find(({ id }) => id === swarmId);
    if (!own) return { state: 'foreign', swarmId };
    return { state: own.copy.includes(digest(text)) ? 'own' : 'changed', swarmId };
  }

  /** Writes the readable copy again, whatever is there. */
  repair(id: string): Promise<void> {
    return this.#locked(id, () => {
      const record = this.read(id);
      this.#write(record, true);
    });
  }

  #locked<Value>(id: string, work: () => Value): Promise<Value> {
    const waiting = { deadlineMs: LOCK_MS, signal: new AbortController().signal };
    return this.#locks.during(`swarm record ${id}`, waiting, () => Promise.resolve(work()));
  }

  // The record names the copy before it is written, and the one before: whichever of them is there after a kill is this user’s.
  #write(record: SwarmRecord, whatever = false): void {
    const copy = `${JSON.stringify(copyOf(record), null, 2)}\n`;
    const mayReplace = whatever || this.#mayReplaceCopy(record);
    if (mayReplace) record.copy = [digest(copy), ...record.copy.slice(0, 1)];
    this.#save(record);
    if (mayReplace) writeCopy(record.workspace, copy);
  }

  #save(record: SwarmRecord): void {
    writePrivateFile(this.recordFile(record.id), `${JSON.stringify(recordSchema.parse(record))}\n`);
  }

  // A copy that another person, another machine or another program wrote stays as it is, until it is repaired.
  #mayReplaceCopy(record: SwarmRecord): boolean {
    const { state } = this.copyState(record.workspace);
    return state === 'none' || state === 'own';
  }
}

function jsonOrNull(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function readCopy(workspace: string): string | null {
  if (lstatSync(join(workspace, '.agent'), { throwIfNoEntry: false })?.isDirectory() !== true) return null;
  let file: number;
  try {
    file = openSync(join(workspace, STATE_FILE), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    // A link in its place is none of ours.
    return error instanceof Error && 'code' in error && error.code === 'ENOENT' ? null : '';
  }
  try {
    const found = fstatSync(file);
    return found.isFile() && found.size <= MAX_COPY ? readFileSync(file, 'utf8') : '';
  } finally {
    closeSync(file);
  }
}

function writeCopy(workspace: string, text: string): void {
  const directory = join(workspace, '.agent');
  const found = lstatSync(directory, { throwIfNoEntry: false });
  if (!found) mkdirSync(directory);
  else if (!found.isDirectory()) return;
  writePrivateFile(join(workspace, STATE_FILE), text, { mode: 0o644, durable: false });
}

/** A task of a record. */
export function taskIn(record: SwarmRecord, id: string): TaskRecord {
  const found = record.tasks.find(task => task.id === id);
  if (found) return found;
  throw swarmError('ACODE-SWM-007', { what: 'task', name: id, known: record.tasks.map(task => task.id) });
}

/** Removes every fork of a swarm, and what its agents kept. Says which forks. */
export async function discardForks(
  acode: Pick<Acode, 'forks' | 'removeState'>,
  { id, tasks }: Pick<SwarmRecord, 'id' | 'tasks'>,
): Promise<string[]> {
  const own = (await acode.forks.list()).flatMap(({ name }) =>
    name !== null && name.startsWith(`sw-${id.slice(0, 8)}`) ? [name] : [],
  );
  for (const name of own) await acode.forks.discard(name);
  for (const { agent, fork } of tasks) if (agent !== null) await acode.removeState(fork);
  return own;
}
