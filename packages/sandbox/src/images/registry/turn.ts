// Whose turn it is to pull an image, or to write the index, when several processes of a user want to. The lock is the audit
// log’s: a symbolic link that names its holder, so that a holder who died is noticed and nobody waits for them.

import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { thisHolder } from '../../lifecycle/lock-holder.ts';
import type { Holder } from '../../lifecycle/lock-holder.ts';
import { endTurn, takeTurn } from '../../lifecycle/lock.ts';
import { ensurePrivateDirectory } from '../../lifecycle/directories.ts';
import type { Clock } from '../../contract/ports.ts';

/** Where turns are kept, and whose they are. */
export interface TurnsOptions {
  /** The user’s runtime directory. */
  readonly directory: string;
  readonly uid: number;
  readonly clock: Clock;
}

/** How long somebody waits for their turn. */
export interface Waiting {
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
  /** Called once where somebody else has it. */
  readonly onWait?: () => void;
}

/** A turn that did not come in time. */
export class LockTimeoutError extends Error {
  override readonly name = 'LockTimeoutError';
}

// A turn here is not one in a row of many, as the audit log’s are: each lock has a directory of its own, and this number.
const ONLY = 1;
const FIRST_PAUSE_MS = 5;
const MAX_PAUSE_MS = 100;

/** The turns of one user. */
export class Turns {
  readonly #options: TurnsOptions;
  #holder: Holder | null = null;

  constructor(options: TurnsOptions) {
    this.#options = options;
  }

  /** Does work while nobody else on this machine does work under the same key. */
  async during<Value>(key: string, waiting: Waiting, work: () => Promise<Value>): Promise<Value> {
    const directory = join(
      this.#options.directory,
      'pulls',
      createHash('sha256').update(key).digest('hex').slice(0, 32),
    );
    await ensurePrivateDirectory(join(this.#options.directory, 'pulls'), this.#options.uid);
    await ensurePrivateDirectory(directory, this.#options.uid);
    const generation = await this.#take(directory, waiting);
    try {
      return await work();
    } finally {
      // Only one’s own: the lock of a holder who died below it still keeps others from taking that place.
      endTurn(directory, ONLY, generation, false);
    }
  }

  async #take(directory: string, { deadlineMs, signal, onWait }: Waiting): Promise<number> {
    const { clock } = this.#options;
    this.#holder ??= thisHolder();
    const deadline = clock.monotonic() + deadlineMs;
    for (let waits = 0; ; waits += 1) {
      signal.throwIfAborted();
      const turn = takeTurn(directory, ONLY, this.#holder, true);
      if (turn.held) return turn.generation;
      if (waits === 0) onWait?.();
      if (clock.monotonic() > deadline) {
        const who = turn.holder === null ? turn.path : `process ${turn.holder.pid} (${turn.path})`;
        throw new LockTimeoutError(`${who} had it for ${deadlineMs / 1000} s`);
      }
      const ms = Math.min(FIRST_PAUSE_MS * 2 ** Math.min(waits, 8), MAX_PAUSE_MS) * (0.5 + Math.random() / 2);
      await new Promise<void>(resolve => void clock.after(ms, resolve));
    }
  }
}
