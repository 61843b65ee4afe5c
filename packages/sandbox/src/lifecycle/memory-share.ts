// Memory share: how much memory all sandboxes of a user have together, in files that every process of the user reads.

import { closeSync, mkdirSync, openSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { AcodeError } from '../contract/errors.ts';
import type { Clock } from '../contract/ports.ts';

/** The process an entry belongs to; a number alone would be used again. */
export interface EntryOwner {
  readonly pid: number;
  readonly startTime: string;
}

/** Where entries are, and who lives. */
export interface MemoryShareOptions {
  /** The user’s own runtime directory. */
  readonly directory: string;
  readonly clock: Clock;
  readonly self: EntryOwner;
  readonly isAlive: (owner: EntryOwner) => boolean;
  /** Whether a persistent sandbox that outlived its maker still exists. */
  readonly isKept: (sandboxId: string) => boolean;
}

/** A sandbox that wants its share. */
export interface Wanted {
  readonly sandboxId: string;
  readonly memoryBytes: number;
  /** The memory of the machine. */
  readonly machineBytes: number;
  /** Whether it is a persistent sandbox, and not one for a single command. */
  readonly persistent?: boolean;
}

/** How long to wait. */
export interface Waiting {
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
  /** Called once, when it has to wait. */
  readonly onWait: (others: number, most: number) => void;
}

const DIRECTORY = 'memory';
const SHARE = 0.75;
const PAUSE_MS = 250;
const PERSISTENT_PART = 0.5;
const ENTRY = /^(?:(\d+)-(\d+)|kept)\.([0-9a-f-]{36})\.(\d+)(\.persistent)?$/;
const WAITING = /^waiting\.(\d+)-(\d+)\.([0-9a-f-]{36})\.(\d+)\.(\d+)(\.persistent)?$/;

interface Entry {
  readonly path: string;
  /** Null where the sandbox outlives its process. */
  readonly owner: EntryOwner | null;
  readonly sandboxId: string;
  readonly bytes: number;
  readonly persistent: boolean;
}

interface Waiter {
  readonly sandboxId: string;
  readonly since: number;
  readonly persistent: boolean;
}

/** The memory that sandboxes of one user share. */
export class MemoryShare {
  readonly #options: MemoryShareOptions;
  readonly #directory: string;

  constructor(options: MemoryShareOptions) {
    this.#options = options;
    this.#directory = join(options.directory, DIRECTORY);
  }

  /** Waits until there is room; the returned function gives it back. One that is alone always has room. */
  async take(wanted: Wanted, { deadlineMs, signal, onWait }: Waiting): Promise<() => void> {
    const { clock } = this.#options;
    const most = Math.floor(wanted.machineBytes * SHARE);
    const began = clock.monotonic();
    const since = clock.now();
    const place = join(this.#directory, this.#waitingName(wanted, since, since + deadlineMs));
    try {
      for (let waits = 0; ; waits += 1) {
        signal.throwIfAborted();
        mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
        const others = this.#tryToTake(wanted, since, most);
        if (others === 'taken') return () => this.#release(wanted);
        if (clock.monotonic() - began >= deadlineMs)
          throw new AcodeError('ACODE-CTN-013', { mostBytes: most, othersBytes: others, waitedMs: deadlineMs });
        if (waits === 0) onWait(others, most);
        touch(place);
        // Not all at the same moment, or two who see each other would step back together for ever.
        await this.#pause(PAUSE_MS * (0.5 + Math.random()), signal);
      }
    } finally {
      rmSync(place, { force: true });
    }
  }

  /**
   * Keeps the share of a sandbox beyond this process. To be called when its record is written: until then the entry says that
   * this process lives, since others remove the entry of a kept sandbox that has no record.
   */
  keep(sandbox: Pick<Wanted, 'sandboxId' | 'memoryBytes'>): void {
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    touch(this.#keptPath(sandbox));
    rmSync(this.#ownPath({ ...sandbox, persistent: true }), { force: true });
  }

  /** The sandboxes that have a share now: of commands that run, and persistent ones. */
  holders(): readonly { readonly sandboxId: string; readonly persistent: boolean }[] {
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    return this.#living(this.#entries(''));
  }

  // One that outlives this process keeps its share; its record shows when it is removed.
  #release(wanted: Wanted): void {
    rmSync(this.#ownPath(wanted), { force: true });
    if (wanted.persistent === true && !this.#options.isKept(wanted.sandboxId))
      rmSync(this.#keptPath(wanted), { force: true });
  }

  /** How much others have, where this one must wait. */
  #tryToTake(wanted: Wanted, since: number, most: number): number | 'taken' {
    const entry = this.#ownPath(wanted);
    if (this.#waitsBehind(wanted, since)) return sum(this.#living(this.#entries(entry)));
    touch(entry);
    const entries = this.#entries(entry);
    if (fits(wanted, entries, most)) return 'taken';
    // Who lives is asked only where it matters: mostly there is room even if all of them do.
    const living = this.#living(entries);
    if (fits(wanted, living, most)) return 'taken';
    rmSync(entry, { force: true });
    return sum(living);
  }

  #waitsBehind({ sandboxId, persistent = false }: Wanted, since: number): boolean {
    return this.#waiters().some(other => {
      if (other.sandboxId === sandboxId || (other.persistent && !persistent)) return false;
      return other.since < since || (other.since === since && other.sandboxId < sandboxId);
    });
  }

  #waiters(): readonly Waiter[] {
    const now = this.#options.clock.now();
    return readdirSync(this.#directory).flatMap(name => {
      const [, pid, startTime = '', sandboxId = '', since, until, kind] = WAITING.exec(name) ?? [];
      if (pid === undefined) return [];
      if (Number(until) >= now && this.#options.isAlive({ pid: Number(pid), startTime }))
        return [{ sandboxId, since: Number(since), persistent: kind !== undefined }];
      rmSync(join(this.#directory, name), { force: true });
      return [];
    });
  }

  #ownPath({ sandboxId, memoryBytes, persistent = false }: Omit<Wanted, 'machineBytes'>): string {
    const { pid, startTime } = this.#options.self;
    return join(this.#directory, `${pid}-${startTime}.${sandboxId}.${memoryBytes}${persistent ? '.persistent' : ''}`);
  }

  #keptPath({ sandboxId, memoryBytes }: Pick<Wanted, 'sandboxId' | 'memoryBytes'>): string {
    return join(this.#directory, `kept.${sandboxId}.${memoryBytes}`);
  }

  #waitingName({ sandboxId, persistent = false }: Wanted, since: number, until: number): string {
    const { pid, startTime } = this.#options.self;
    const times = `${Math.floor(since)}.${Math.ceil(until)}`;
    return `waiting.${pid}-${startTime}.${sandboxId}.${times}${persistent ? '.persistent' : ''}`;
  }

  #entries(own: string): readonly Entry[] {
    return readdirSync(this.#directory).flatMap(name => {
      const [, pid, startTime = '', sandboxId = '', bytes, kind] = ENTRY.exec(name) ?? [];
      const path = join(this.#directory, name);
      if (bytes === undefined || path === own) return [];
      const owner = pid === undefined ? null : { pid: Number(pid), startTime };
      return [{ path, owner, sandboxId, bytes: Number(bytes), persistent: owner === null || kind !== undefined }];
    });
  }

  #living(entries: readonly Entry[]): readonly Entry[] {
    const { isAlive, isKept } = this.#options;
    return entries.filter(({ path, owner, sandboxId }) => {
      const lives = owner === null ? isKept(sandboxId) : isAlive(owner);
      if (!lives) rmSync(path, { force: true });
      return lives;
    });
  }

  async #pause(ms: number, signal: AbortSignal): Promise<void> {
    await new Promise<void>(resolve => {
      const done = (): void => {
        cancel();
        signal.removeEventListener('abort', done);
        resolve();
      };
      const cancel = this.#options.clock.after(ms, done);
      signal.addEventListener('abort', done, { once: true });
    });
  }
}

function fits({ memoryBytes, persistent = false }: Wanted, others: readonly Entry[], most: number): boolean {
  if (persistent) return others.length === 0 || sum(others) + memoryBytes <= most;
  const commands = others.filter(other => !other.persistent);
  if (commands.length === 0) return true;
  const idle = Math.min(sum(others.filter(other => other.persistent)), Math.floor(most * PERSISTENT_PART));
  return sum(commands) + idle + memoryBytes <= most;
}

function sum(entries: readonly Entry[]): number {
  return entries.reduce((total, { bytes }) => total + bytes, 0);
}

function touch(path: string): void {
  closeSync(openSync(path, 'w', 0o600));
}
