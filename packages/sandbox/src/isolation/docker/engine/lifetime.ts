// Decides when a call is given up: the caller's signal, its deadline, or the connection being closed, whichever is first.
import { EngineError } from './error.ts';

// setTimeout fires at once for anything longer, so "no practical limit" would mean "none at all".
const longestTimerMs = 2 ** 31 - 1;

/** What a {@link CallLifetime} is bound to. */
export interface LifetimeTerms {
  readonly operation: string;
  readonly signal: AbortSignal;
  readonly deadlineMs: number;
  readonly liveCalls: LiveCalls;
  readonly giveUp: (error: EngineError) => void;
}

/** The time a call may live. Must be released when the call is over, else the signal keeps it in memory. */
export class CallLifetime {
  /** What to end when time is up; replaced when the call moves from its request to its response. */
  giveUp: (error: EngineError) => void;
  readonly #terms: LifetimeTerms;
  #timer: NodeJS.Timeout;
  #deadlineMs: number;
  #over = false;

  constructor(terms: LifetimeTerms) {
    this.#terms = terms;
    this.giveUp = terms.giveUp;
    this.#deadlineMs = terms.deadlineMs;
    this.#timer = this.#timed();
    terms.liveCalls.add(terms.signal, this);
  }

  /** Gives the call up now. */
  end(kind: 'timeout' | 'aborted', cause?: unknown): void {
    this.release();
    const detail = kind === 'timeout' ? `no answer within ${this.#deadlineMs} ms` : 'given up by the caller';
    this.giveUp(new EngineError({ kind, operation: this.#terms.operation, detail, cause }));
  }

  /** From here on only the signal and `close()` end the call. */
  clearDeadline(): void {
    clearTimeout(this.#timer);
  }

  /** Gives the call this much time, from now on. */
  restart(deadlineMs: number): void {
    if (this.#over) return;
    clearTimeout(this.#timer);
    this.#deadlineMs = deadlineMs;
    this.#timer = this.#timed();
  }

  /** The call is over. */
  release(): void {
    this.#over = true;
    clearTimeout(this.#timer);
    this.#terms.liveCalls.delete(this.#terms.signal, this);
  }

  #timed(): NodeJS.Timeout {
    return setTimeout(() => this.end('timeout'), Math.min(this.#deadlineMs, longestTimerMs));
  }
}

interface SignalGroup {
  readonly lifetimes: Set<CallLifetime>;
  readonly onAbort: () => void;
}

/**
 * The calls of one connection that are still alive. Listens once per signal, however many calls share it:
 * Node warns of a leak from the eleventh listener on.
 */
export class LiveCalls {
  readonly #groups = new Map<AbortSignal, SignalGroup>();

  /** Ends `lifetime` when `signal` fires. */
  add(signal: AbortSignal, lifetime: CallLifetime): void {
    const group = this.#groups.get(signal) ?? this.#listen(signal);
    group.lifetimes.add(lifetime);
  }

  /** Forgets a call that is over. */
  delete(signal: AbortSignal, lifetime: CallLifetime): void {
    const group = this.#groups.get(signal);
    if (!group?.lifetimes.delete(lifetime) || group.lifetimes.size > 0) return;
    signal.removeEventListener('abort', group.onAbort);
    this.#groups.delete(signal);
  }

  /** Ends every call. */
  endAll(cause: unknown): void {
    for (const { lifetimes } of this.#groups.values()) endEach(lifetimes, cause);
  }

  #listen(signal: AbortSignal): SignalGroup {
    const lifetimes = new Set<CallLifetime>();
    const group: SignalGroup = { lifetimes, onAbort: () => endEach(lifetimes, signal.reason) };
    signal.addEventListener('abort', group.onAbort, { once: true });
    this.#groups.set(signal, group);
    return group;
  }
}

function endEach(lifetimes: ReadonlySet<CallLifetime>, cause: unknown): void {
  for (const lifetime of lifetimes) lifetime.end('aborted', cause);
}
