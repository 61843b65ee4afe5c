// Time of a simulation: clocks and timers of this process go as fast as there is work. It is installed before anything else is imported.

import os from 'node:os';
import { syncBuiltinESMExports } from 'node:module';
import timers from 'node:timers/promises';
import { Heap } from '../../packages/fleet/src/engine/heap.ts';

interface Timer {
  readonly act: () => void;
  readonly number: number;
  readonly everyMs: number | null;
  at: number;
}

const real = { setImmediate: globalThis.setImmediate, Date: globalThis.Date };
const CANCELLED = new Error('cancelled');
const LATE = new DOMException('too late', 'TimeoutError');
const START = real.Date.UTC(2026, 0, 1);

/** The time of everything in this process, from now on. */
export class VirtualTime {
  readonly #timers = new Heap<Timer>(
    (one, other) => one.at < other.at || (one.at === other.at && one.number < other.number),
  );
  #now = 0;
  #number = 0;

  /** Milliseconds since the beginning. */
  get now(): number {
    return this.#now;
  }

  /** Puts itself in the place of clocks and timers. */
  install(): void {
    const clock = (): number => this.#now;
    const after = (act: (...given: unknown[]) => void, ms: number = 0, ...given: unknown[]) =>
      this.#handle(() => act(...given), ms, null);
    const every = (act: (...given: unknown[]) => void, ms: number = 0, ...given: unknown[]) =>
      this.#handle(() => act(...given), ms, ms);
    const clear = (handle: unknown): void => {
      if (handle !== null && typeof handle === 'object' && 'timer' in handle)
        this.#timers.remove(handle.timer as Timer);
    };
    class VirtualDate extends real.Date {
      constructor(...given: [] | [number | string | Date]) {
        if (given.length === 0) super(START + clock());
        else super(given[0]);
      }
      static override now(): number {
        return START + clock();
      }
    }
    Object.assign(globalThis, {
      setTimeout: after,
      setInterval: every,
      setImmediate: (act: (...given: unknown[]) => void, ...given: unknown[]) => after(act, 0, ...given),
      clearTimeout: clear,
      clearInterval: clear,
      clearImmediate: clear,
      Date: VirtualDate,
    });
    Object.defineProperty(performance, 'now', { value: clock });
    AbortSignal.timeout = (ms: number): AbortSignal => {
      const end = new AbortController();
      this.#handle(() => end.abort(LATE), ms, null);
      return end.signal;
    };
    os.uptime = () => this.#now / 1000;
    timers.setTimeout = <Value>(
      ms?: number,
      value?: Value,
      { signal }: { readonly signal?: AbortSignal | undefined } = {},
    ): Promise<Value> =>
      new Promise((resolve, reject) => {
        const refuse = (): void => {
          clear(handle);
          reject(CANCELLED);
        };
        const handle = this.#handle(
          () => {
            signal?.removeEventListener('abort', refuse);
            // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as the real one
            resolve(value as Value);
          },
          ms ?? 0,
          null,
        );
        if (signal?.aborted) refuse();
        else signal?.addEventListener('abort', refuse, { once: true });
      });
    syncBuiltinESMExports();
  }

  /** Lets time pass until a moment, or until `isOver`. */
  async run(untilMs: number, isOver: () => boolean = () => false): Promise<void> {
    await settled();
    for (;;) {
      const next = this.#timers.first;
      if (!next || next.at > untilMs || isOver()) break;
      this.#now = Math.max(this.#now, next.at);
      // What is due at the same time happens before anything that follows from it.
      for (let due = this.#timers.first; due && due.at <= this.#now; due = this.#timers.first) this.#fire(due);
      await settled();
    }
    if (!isOver()) this.#now = Math.max(this.#now, untilMs);
  }

  #fire(timer: Timer): void {
    if (timer.everyMs === null) this.#timers.remove(timer);
    else {
      timer.at = this.#now + Math.max(1, timer.everyMs);
      this.#timers.put(timer);
    }
    timer.act();
  }

  #handle(act: () => void, ms: number, everyMs: number | null) {
    this.#number += 1;
    const timer: Timer = { act, number: this.#number, everyMs, at: this.#now + Math.max(0, ms) };
    this.#timers.put(timer);
    const handle = { timer, ref: () => handle, unref: () => handle, hasRef: () => true, refresh: () => handle };
    return handle;
  }
}

// Every promise that could settle has.
function settled(): Promise<void> {
  return new Promise(resolve => void real.setImmediate(resolve));
}
