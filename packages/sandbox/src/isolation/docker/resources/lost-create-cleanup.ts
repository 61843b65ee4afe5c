// Lost creates: a create whose reply was lost may have made something, now or a moment later. acode searches for it until the
// engine has said often enough that there is nothing more.

import type { Clock } from '../../../contract/ports.ts';
import { whenItAnswers } from './persist.ts';

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
