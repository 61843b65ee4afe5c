// Call queue: limits how many calls run and wait at once, and refuses the others.

import { AcodeError } from '@acode/sandbox';
import { mcpError } from './errors.ts';

/** How much may go on at once. */
export interface TurnBounds {
  readonly running: number;
  readonly waiting: number;
  /** What all calls together may weigh, in characters of their arguments. */
  readonly weight: number;
}

interface Waiting {
  readonly begin: () => void;
}

/** A queue with an end. */
export class Turns {
  readonly #bounds: TurnBounds;
  readonly #queue = new Set<Waiting>();
  #running = 0;
  #weight = 0;

  constructor(bounds: TurnBounds) {
    this.#bounds = bounds;
  }

  /** Does the work when it is its turn. ACODE-MCP-003 where too many wait already; the signal’s reason where it fires first. */
  async during<Value>(weight: number, signal: AbortSignal, work: () => Promise<Value>): Promise<Value> {
    if (this.#isFull(weight)) {
      throw mcpError('ACODE-MCP-003', { running: this.#running, waiting: this.#queue.size });
    }
    this.#weight += weight;
    try {
      await this.#turn(signal);
      try {
        return await work();
      } finally {
        this.#pass();
      }
    } finally {
      this.#weight -= weight;
    }
  }

  #isFull(weight: number): boolean {
    const { running, waiting, weight: most } = this.#bounds;
    const mustWait = this.#running >= running;
    return (mustWait && this.#queue.size >= waiting) || (this.#weight > 0 && this.#weight + weight > most);
  }

  async #turn(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#running < this.#bounds.running) {
      this.#running += 1;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const given = (): void => {
        this.#queue.delete(waiting);
        reject(signal.reason instanceof Error ? signal.reason : new AcodeError('ACODE-SBX-014', {}));
      };
      const waiting: Waiting = {
        begin: () => {
          signal.removeEventListener('abort', given);
          resolve();
        },
      };
      this.#queue.add(waiting);
      signal.addEventListener('abort', given, { once: true });
    });
  }

  // The slot goes straight to the next call in the queue: a new call cannot take it.
  #pass(): void {
    const [next] = this.#queue;
    if (!next) {
      this.#running -= 1;
      return;
    }
    this.#queue.delete(next);
    next.begin();
  }
}
