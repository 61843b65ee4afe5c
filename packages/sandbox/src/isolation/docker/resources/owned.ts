// Lost creates: a create whose reply was lost may have made something, now or a moment later. acode searches for it until the
// engine has said often enough that there is nothing more.

import type { Remove } from '../../../lifecycle/removal.ts';
import type { Containers } from '../engine/containers.ts';
import type { Clock } from '../../../contract/ports.ts';
import { EngineError } from '../engine/error.ts';

/** What late looks depend on. */
export interface LateLookOptions {
  readonly clock: Clock;
  /** Fires when the session ends: from then on the reaper looks, where the engine is away. */
  readonly closing: AbortSignal;
}

type Look = () => Promise<void>;

const LATE_MS = [500, 1500];
const MAX_MS = 60_000;

/** The creates of one kind that were not answered. */
export class LostCreateCleanup {
  readonly #options: LateLookOptions;
  readonly #unanswered = new Map<string, Look>();
  readonly #underWay = new Set<string>();

  constructor(options: LateLookOptions) {
    this.#options = options;
  }

  /** The nonces of creates of which the engine has not said what became of them. Somebody else has to look for those. */
  get unanswered(): readonly string[] {
    return [...this.#unanswered.keys()];
  }

  /** Looks for what a create has made, again and later. Rejects where the engine did not answer; `unanswered` tells then too. */
  async follow(nonce: string, look: Look): Promise<void> {
    const { clock, closing } = this.#options;
    const before = clock.monotonic();
    const isOver = (): boolean => closing.aborted || clock.monotonic() - before > MAX_MS;
    this.#unanswered.set(nonce, look);
    this.#underWay.add(nonce);
    try {
      for (const ms of LATE_MS) {
        await new Promise<void>(resolve => void clock.after(ms, resolve));
        await whenItAnswers(look, { clock, isOver });
      }
    } finally {
      this.#underWay.delete(nonce);
    }
    this.#unanswered.delete(nonce);
  }

  /** Looks once more for what had been given up: whoever is about to make something takes the engine for well again. */
  async again(): Promise<void> {
    const given = [...this.#unanswered].filter(([nonce]) => !this.#underWay.has(nonce));
    await Promise.allSettled(given.map(([nonce, look]) => this.follow(nonce, look)));
  }
}

/**
 * Removes containers by id, however long the engine is away: until its caller cancels, or the session closes and leaves the rest to
 * the reaper.
 */
export function removerOf(
  containers: Pick<Containers, 'remove'>,
  { clock, closing }: LateLookOptions,
  removed: (id: string) => void,
): Remove {
  return async (id, signal) => {
    const isOver = (): boolean => signal.aborted || closing.aborted;
    await whenItAnswers(() => containers.remove(id, { force: true, volumes: true, signal }), { clock, isOver });
    removed(id);
  };
}

// Goes on asking while the engine is away: a restart takes seconds, and what is to be removed must not be forgotten meanwhile.

/** How long to go on. */
interface Patience {
  readonly clock: Clock;
  /** Whether there is no point in going on: nobody waits any more, or somebody else will do it. */
  readonly isOver: () => boolean;
}

const FIRST_MS = 50;
// Short: everything is to be gone two seconds after the engine answers again, and a socket nobody listens on costs nothing.
const MAX_PAUSE_MS = 500;

/** Repeats a call until the engine has answered it, well or not. */
export async function whenItAnswers<Value>(call: () => Promise<Value>, { clock, isOver }: Patience): Promise<Value> {
  for (let wait = FIRST_MS; ; wait = Math.min(2 * wait, MAX_PAUSE_MS)) {
    try {
      return await call();
    } catch (error) {
      if (isOver() || !isAway(error)) throw error;
    }
    // Jittered: many wait for the same engine, and would all come back in the same moment.
    const ms = wait * (0.5 + Math.random() / 2);
    await new Promise<void>(resolve => void clock.after(ms, resolve));
  }
}

function isAway(error: unknown): boolean {
  return error instanceof EngineError && ['unreachable', 'disconnected', 'timeout'].includes(error.kind);
}
