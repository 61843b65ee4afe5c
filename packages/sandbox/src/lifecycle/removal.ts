// Step 8 of the pipeline: removes containers in the background, with retries, one operation at a time per container.

import { ExponentialBackoff, handleAll, retry } from 'cockatiel';
import { AcodeError } from '../contract/errors.ts';
import type { Clock } from '../contract/ports.ts';

// One operation at a time per container: overlapping calls on the same id wait for each other, others do not.

/** Runs operations with the same key one after the other, in the order of the calls. */
export class Serial {
  readonly #tails = new Map<string, Promise<unknown>>();

  /** Runs `operation` after all earlier ones with the same key, whether they succeeded or not. */
  async run<Value>(key: string, operation: () => Promise<Value>): Promise<Value> {
    const before = this.#tails.get(key) ?? Promise.resolve();
    const mine = before.then(operation, operation);
    const tail = mine.then(
      () => undefined,
      () => undefined,
    );
    this.#tails.set(key, tail);
    try {
      return await mine;
    } finally {
      if (this.#tails.get(key) === tail) this.#tails.delete(key);
    }
  }
}

/** Removes by id; removing what does not exist is a success. */
export type Remove = (id: string, signal: AbortSignal) => Promise<void>;

/** Who is told how removals end. */
export interface RemovalReports {
  removed(id: string, durationMs: number): void;
  notRemoved(id: string, error: AcodeError): void;
}

/** Retry and reporting options of removals. */
export interface RemovalOptions {
  readonly reports: RemovalReports;
  readonly attempts: number;
  readonly deadlineMs: number;
  readonly clock: Pick<Clock, 'monotonic'>;
}

/** The removals of one session. */
export class Removals {
  readonly #options: RemovalOptions;
  readonly #serial = new Serial();
  readonly #underWay = new Map<Promise<void>, string>();
  readonly #left = new Map<string, Remove>();

  constructor(options: RemovalOptions) {
    this.#options = options;
  }

  /** Ids that could not be removed. */
  get left(): readonly string[] {
    return [...this.#left.keys()];
  }

  /** Begins to remove a container. The promise resolves when it is removed or abandoned for now; it never rejects. */
  begin(id: string, remove: Remove): Promise<void> {
    const removal = this.#serial.run(id, () => this.#remove(id, remove));
    this.#underWay.set(removal, id);
    return removal.finally(() => this.#underWay.delete(removal));
  }

  /**
   * Retries abandoned removals. Called when success is likely: the engine has just removed something else, or is about
   * to receive a request for a new sandbox.
   */
  again(): void {
    const busy = new Set(this.#underWay.values());
    for (const [id, remove] of this.#left) if (!busy.has(id)) void this.begin(id, remove);
  }

  /** Waits for every started removal, and retries failed ones once. */
  async settled(): Promise<void> {
    await this.#quiet();
    await Promise.all([...this.#left].map(([id, remove]) => this.begin(id, remove)));
    await this.#quiet();
  }

  // Work that ends may have started more work in the meantime.
  async #quiet(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay.keys());
  }

  async #remove(id: string, remove: Remove): Promise<void> {
    const before = this.#options.clock.monotonic();
    const policy = retry(handleAll, {
      maxAttempts: this.#options.attempts,
      backoff: new ExponentialBackoff({ initialDelay: 50, maxDelay: 2000 }),
    });
    const signal = AbortSignal.timeout(this.#options.deadlineMs);
    try {
      await policy.execute(() => remove(id, signal), signal);
    } catch (cause) {
      this.#left.set(id, remove);
      const reason = cause instanceof Error ? cause.message : String(cause);
      this.#options.reports.notRemoved(id, new AcodeError('ACODE-CTN-004', { id, reason }, { cause }));
      return;
    }
    this.#left.delete(id);
    this.#options.reports.removed(id, this.#options.clock.monotonic() - before);
    this.again();
  }
}
