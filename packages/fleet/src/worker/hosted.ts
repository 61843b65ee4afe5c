// A persistent sandbox on a worker: its lease, its limits, and the calls of its tenant, each checked before anything of it is read.

import { AcodeError } from '@acode/sandbox';
import type { FleetEngine } from '../engine/engine.ts';
import type { TaskKey } from '../engine/names.ts';
import { reasonOf } from '../engine/retry.ts';
import { FLEET_ERRORS } from '../errors.ts';
import { admittedCall, signedAnswer } from '../exec/protocol.ts';
import type { ExecAnswer } from '../exec/protocol.ts';
import type { KeyPair } from '../tasks/signature.ts';
import { LeaseKeeper } from './lease-keeper.ts';
import type { LeaseTimes } from './lease-keeper.ts';
import type { HostOutcome, SandboxFacts } from './messages.ts';
import type { CallSandbox, TenantRunner, TenantSandbox } from './tenant.ts';

/** Calls at once; a client has few, which wait a few seconds each. Beyond that nothing is even read. */
const MAX_CALLS = 128;
const LOOK_MS = 500;

/** What a hosted sandbox is made of. */
export interface HostedParts {
  readonly engine: FleetEngine;
  readonly key: TaskKey;
  /** The worker that has it, as its own lease is called. */
  readonly worker: string;
  /** The keys of the worker, which sign answers. */
  readonly keys: KeyPair;
  /** Public keys, one of which has to have signed each call. */
  readonly callers: readonly string[];
  /** How long it may exist, and how long without a call. */
  readonly limits: { readonly expiresInMs: number; readonly idleMs: number };
  /** Times of leases, for tests. */
  readonly lease?: Partial<LeaseTimes> | undefined;
  /** Told when the tenant can use it. */
  readonly onReady: () => void;
}

/** What ended a sandbox from outside. */
export interface HostedLimit {
  /** The state that it means. */
  readonly state: 'timed_out' | 'lost';
  /** What it was. */
  readonly reason: string;
}

/** How a sandbox ended: at a limit, or by what its host says. */
export interface HostedEnd {
  /** Whether it was created. */
  readonly existed: boolean;
  /** The limit at which it was ended; null for none. */
  readonly limit: HostedLimit | null;
  /** What its host says. */
  readonly outcome: HostOutcome;
}

/** Creates a sandbox, and has it until it ends, its signal aborts, a limit is reached or its lease cannot be renewed. */
export async function hostSandbox(
  runner: TenantRunner,
  asked: Omit<TenantSandbox, 'onKept' | 'expiresInMs'>,
  parts: HostedParts,
): Promise<HostedEnd> {
  const hosted = new Hosted(parts);
  const signal = AbortSignal.any([asked.signal, hosted.over]);
  const { expiresInMs } = parts.limits;
  try {
    const outcome = await runner.keep({
      ...asked,
      expiresInMs,
      signal,
      onKept: (facts, call) => void hosted.open(facts, call),
    });
    return { existed: hosted.existed, limit: hosted.limit, outcome };
  } finally {
    await hosted.close();
  }
}

class Hosted {
  readonly #parts: HostedParts;
  readonly #over = new AbortController();
  readonly #expiresAt: number;
  #call: CallSandbox | null = null;
  #opening: Promise<void> = Promise.resolve();
  #serving: AsyncDisposable | null = null;
  #lease: LeaseKeeper | null = null;
  #ticks: NodeJS.Timeout | undefined;
  #usedAt = performance.now();
  #calls = 0;
  readonly #waiting = new Set<() => void>();
  limit: HostedLimit | null = null;

  constructor(parts: HostedParts) {
    this.#parts = parts;
    this.#expiresAt = performance.now() + parts.limits.expiresInMs;
    this.#over.signal.addEventListener('abort', () => this.#waiting.forEach(ended => ended()), { once: true });
  }

  /** Aborted when it has to end. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  get existed(): boolean {
    return this.#call !== null;
  }

  open(facts: SandboxFacts, call: CallSandbox): Promise<void> {
    this.#call = call;
    this.#usedAt = performance.now();
    // Where nobody can reach it, nobody can end it either.
    this.#opening = this.#open(facts).catch(() => this.#end('lost', 'its worker cannot reach the server of the fleet'));
    return this.#opening;
  }

  async close(): Promise<void> {
    clearInterval(this.#ticks);
    this.#over.abort();
    await this.#opening;
    try {
      await this.#serving?.[Symbol.asyncDispose]();
    } finally {
      await this.#lease?.stop(true);
    }
  }

  async #open(facts: SandboxFacts): Promise<void> {
    const { engine, key, worker, limits, lease, onReady } = this.#parts;
    this.#serving = await engine.serve(key, message => this.#answer(message));
    if (this.#over.signal.aborted) return;
    const since = new Date();
    const left = this.#expiresAt - performance.now();
    const body = JSON.stringify({
      ...facts,
      worker,
      since: since.toISOString(),
      expiresAt: new Date(since.getTime() + left).toISOString(),
    });
    const events = {
      body: () => body,
      renewed: () => undefined,
      lost: () => this.#end('lost', 'its worker could not renew its lease'),
    };
    this.#lease = new LeaseKeeper(engine, key, events, lease);
    await this.#lease.begin();
    this.#ticks = setInterval(() => this.#look(limits.idleMs), LOOK_MS);
    onReady();
  }

  #look(idleMs: number): void {
    const now = performance.now();
    if (now >= this.#expiresAt) this.#end('timed_out', 'it reached the end of its time (expiresInMs)');
    else if (this.#calls === 0 && now - this.#usedAt >= idleMs)
      this.#end('timed_out', 'nobody used it for too long (idleMs)');
  }

  #end(state: HostedLimit['state'], reason: string): void {
    if (this.#over.signal.aborted) return;
    this.limit = { state, reason };
    this.#over.abort();
  }

  // Nobody waits for the answer of what is gone.
  #untilOver<Value>(work: Promise<Value>): Promise<Value> {
    return new Promise((resolve, reject) => {
      const ended = (): void => reject(new Error('the sandbox has ended'));
      this.#waiting.add(ended);
      if (this.#over.signal.aborted) ended();
      work.finally(() => this.#waiting.delete(ended)).then(resolve, reject);
    });
  }

  // Null: no answer. Who sends so much has none, before a signature is checked.
  async #answer(message: Uint8Array): Promise<Uint8Array | null> {
    if (this.#calls >= MAX_CALLS) return null;
    this.#calls += 1;
    try {
      return signedAnswer(message, await this.#answered(message), this.#parts.keys);
    } finally {
      this.#calls -= 1;
    }
  }

  async #answered(message: Uint8Array): Promise<ExecAnswer> {
    const { key, callers } = this.#parts;
    try {
      const { call, bytes } = admittedCall(key, message, { keys: callers, now: Date.now() });
      this.#usedAt = performance.now();
      if (!this.#call) throw new Error('it is not there yet');
      const answer = await this.#untilOver(this.#call(call, bytes));
      this.#usedAt = performance.now();
      return answer;
    } catch (error) {
      // A sandbox that is ending answers so until its lease is over, which says the rest.
      const known =
        error instanceof AcodeError
          ? error
          : FLEET_ERRORS.create('ACODE-FLT-050', { sandbox: key.id, reason: reasonOf(error) });
      const { code, message: text, hint, exitStatus } = known.toJSON();
      return { value: { failure: { code, message: text, hint, exitStatus } } };
    }
  }
}
