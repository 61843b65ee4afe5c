// Admission: the beginning of every operation on a host. Its abort signals, its slot, its share of the memory, and the record
// of a refusal are stated here once.

import { AcodeError } from '../contract/errors.ts';
import { isBoundary } from '../contract/levels.ts';
import { formatBytes } from '../contract/units.ts';
import { METRICS } from '../records/telemetry/operation.ts';
import type { Operation } from '../records/telemetry/operation.ts';
import type { Host, Planned } from './host.ts';
import { recordRefusal } from './trail.ts';
import type { Recorded } from './trail.ts';

/** An operation before it is admitted. */
export interface Admitting {
  readonly name: string;
  /** The caller’s signal. The request is checked later, so that this may be anything. */
  readonly signal?: unknown;
  /** The request that the audit log names when the operation is refused; without it a refusal is only logged. */
  readonly run?: Omit<Recorded, 'host' | 'operation'>;
  /** The signals end the making only: what was made does not end with them. */
  readonly detached?: true;
}

/** An admitted operation: it ends with its host, with its caller’s signal, or when `stop` is aborted. */
export class Admission {
  readonly operation: Operation;
  readonly stop = new AbortController();
  readonly signal: AbortSignal;
  /** When it began, by the monotonic clock. */
  readonly began: number;
  readonly #host: Host;
  readonly #run: Admitting['run'];
  readonly #held: (() => void)[] = [];
  readonly #relayed: { readonly signal: AbortSignal; readonly abort: () => void }[] = [];

  constructor(host: Host, { name, signal: callers, run, detached }: Admitting) {
    this.#host = host;
    this.#run = run;
    this.operation = host.telemetry.begin(name);
    this.began = host.telemetry.clock.monotonic();
    const from = [host.closing, ...(callers instanceof AbortSignal ? [callers] : [])];
    this.signal = detached ? this.#relay(from) : AbortSignal.any([...from, this.stop.signal]);
  }

  /** Waits for a slot, as long as the host’s settings allow. */
  async takeSlot(): Promise<void> {
    this.#held.push(await this.#host.slots.take(this.#host.settings.queueMs, this.signal));
    this.#gauge();
  }

  /** Waits until the sandbox of a plan has its share of the memory that all sandboxes of the user have together. */
  async takeMemory({ spec, machineBytes }: Planned, persistent: boolean): Promise<void> {
    // Without walls nothing holds a command to its limit, so that a sum of limits would say nothing.
    if (!isBoundary(spec.level)) return;
    const { sandboxId } = spec.identity;
    const { memoryBytes } = spec.limits;
    const onWait = (others: number, most: number): void =>
      this.operation.step(
        'warn',
        `waiting for memory: your sandboxes may use ${formatBytes(most)} together; others hold ${formatBytes(others)} or wait for it, and this one asks for ${formatBytes(memoryBytes)}`,
      );
    const terms = { deadlineMs: this.#host.settings.queueMs, signal: this.signal, onWait };
    this.#held.push(await this.#host.memory.take({ sandboxId, memoryBytes, machineBytes, persistent }, terms));
  }

  /** Gives slot and memory back. A second call does nothing. */
  readonly release = (): void => {
    if (this.#held.length === 0) return;
    for (const give of this.#held.splice(0).reverse()) give();
    this.#gauge();
  };

  /** The work is over, whether it succeeded or not: what was made detached no longer ends with the signals. */
  end(): void {
    for (const { signal, abort } of this.#relayed) signal.removeEventListener('abort', abort);
  }

  /** Gives everything back and records the refusal. Returns the error for the caller. */
  refuse(error: unknown): unknown {
    this.release();
    const failure = this.signal.aborted ? cancelled(error) : error;
    const { operation } = this;
    const host = this.#host;
    if (this.#run) {
      if (failure instanceof AcodeError && failure.is('ACODE-SBX-005')) host.telemetry.increment(METRICS.networkDenied);
      recordRefusal({ ...this.#run, host, operation }, failure);
    }
    operation.fail(failure);
    return failure;
  }

  // Not `AbortSignal.any`, which cannot be detached from its sources.
  #relay(from: readonly AbortSignal[]): AbortSignal {
    for (const signal of from) {
      const abort = (): void => this.stop.abort(signal.reason);
      signal.addEventListener('abort', abort, { once: true });
      this.#relayed.push({ signal, abort });
      if (signal.aborted) abort();
    }
    return this.stop.signal;
  }

  #gauge(): void {
    this.#host.telemetry.gauge(METRICS.active, this.#host.slots.taken);
  }
}

/** Admits an operation and does its work. */
export async function admitted<Value>(
  host: Host,
  admitting: Admitting,
  work: (admission: Admission) => Promise<Value>,
): Promise<Value> {
  const admission = new Admission(host, admitting);
  try {
    admission.signal.throwIfAborted();
    return await work(admission);
  } catch (error) {
    throw admission.refuse(error);
  } finally {
    admission.end();
  }
}

/** The error of a cancelled operation, whatever the reason the signal carried. */
export function cancelled(error: unknown): AcodeError {
  const known = error instanceof AcodeError && error.is('ACODE-SBX-014');
  return known ? error : new AcodeError('ACODE-SBX-014', {}, { cause: error });
}
