// How much memory all sandboxes of a user may be limited to together: three quarters of the machine’s. Whoever comes beyond
// that waits, across every process of the user.
//
// Each running sandbox has an entry in the runtime directory, whose name says whose it is and how much it may use. An entry is
// made before the others are counted, so that of two who come at once at least one sees the other. Sandboxes of a warm pool
// have none until they are given a command: until then they use next to nothing, and the pool has a bound of its own.

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
  /** Whether it outlives this process. */
  readonly keep?: boolean;
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
const ENTRY = /^(?:(\d+)-(\d+)|kept)\.([0-9a-f-]{36})\.(\d+)$/;

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
    const entry = join(this.#directory, this.#nameOf(wanted));
    const began = clock.monotonic();
    for (let waits = 0; ; waits += 1) {
      signal.throwIfAborted();
      mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
      closeSync(openSync(entry, 'w', 0o600));
      const release = (): void => this.#release(entry, wanted);
      const others = this.#others(entry, most - wanted.memoryBytes);
      if (others === 0 || others + wanted.memoryBytes <= most) return release;
      release();
      if (clock.monotonic() - began >= deadlineMs)
        throw new AcodeError('ACODE-CTN-013', { mostBytes: most, othersBytes: others, waitedMs: deadlineMs });
      if (waits === 0) onWait(others, most);
      // Not all at the same moment, or two who see each other would step back together for ever.
      await this.#pause(PAUSE_MS * (0.5 + Math.random()), signal);
    }
  }

  // One that outlives this process keeps its share; that it is gone shows by its record.
  #release(entry: string, { keep = false, sandboxId }: Wanted): void {
    if (!keep || !this.#options.isKept(sandboxId)) rmSync(entry, { force: true });
  }

  #nameOf({ sandboxId, memoryBytes, keep = false }: Wanted): string {
    const { pid, startTime } = this.#options.self;
    return `${keep ? 'kept' : `${pid}-${startTime}`}.${sandboxId}.${memoryBytes}`;
  }

  // Who lives is asked only where it matters: mostly there is room even if all of them do.
  #others(own: string, room: number): number {
    const entries = readdirSync(this.#directory).flatMap(name => {
      const [, pid, startTime, sandboxId = '', bytes] = ENTRY.exec(name) ?? [];
      const path = join(this.#directory, name);
      return bytes === undefined || path === own ? [] : [{ path, pid, startTime, sandboxId, bytes: Number(bytes) }];
    });
    const sum = (of: typeof entries): number => of.reduce((total, { bytes }) => total + bytes, 0);
    if (sum(entries) <= room) return sum(entries);
    const { isAlive, isKept } = this.#options;
    const living = entries.filter(({ path, pid, startTime, sandboxId }) => {
      const lives = pid === undefined ? isKept(sandboxId) : isAlive({ pid: Number(pid), startTime: startTime ?? '' });
      if (!lives) rmSync(path, { force: true });
      return lives;
    });
    return sum(living);
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
