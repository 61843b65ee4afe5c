// acode itself, as a program uses it: cold, where every sandbox is made when it is needed, and warm, from a pool.
// @ts-check

import { randomUUID } from 'node:crypto';
import { Acode } from '@acode/sandbox';
import { SESSION } from '../engine/labels.mjs';
import { NAMES } from '../names.mjs';
import { pause } from '../rounds.mjs';
import { echoed, lineTimes } from './candidate.mjs';

/** @typedef {import('./candidate.mjs').Candidate} Candidate */
/** @typedef {import('./candidate.mjs').Sample} Sample */
/** @typedef {import('@acode/sandbox').AcodeOptions} AcodeOptions */
/** @typedef {{ min: number, max: number }} Pool */

// How long the removal of sandboxes, and the making of others in their place, may take.
const SETTLING_MS = 60_000;
const POLL_MS = 5;
// A pool for which there is no room stays smaller than it was asked to be.
const STEADY_MS = 3000;
// For the first sandbox of a pool to wait.
const WARMING_MS = 20_000;
const WAITING = 'acode_containers_waiting';

/** @implements {Candidate} */
export class AcodeCandidate {
  name;
  acode;
  /** @type {import('./candidate.mjs').Parts} */
  parts = { create: [], remove: [] };
  #pool;
  #gauges;
  #underWay = 0;

  /**
   * @param {Acode} acode
   * @param {Pool | null} pool
   * @param {Gauges} gauges
   */
  constructor(acode, pool, gauges) {
    this.name = pool === null ? NAMES.cold : NAMES.warm;
    this.acode = acode;
    this.#pool = pool;
    this.#gauges = gauges;
    acode.events.on('ContainerCreated', ({ durationMs }) => void this.parts.create.push(durationMs));
    acode.events.on('ContainerRemoved', ({ durationMs }) => {
      if (durationMs !== undefined) this.parts.remove.push(durationMs);
    });
    acode.events.on('SandboxTeardown', () => (this.#underWay = Math.max(0, this.#underWay - 1)));
  }

  /**
   * A warm one rejects where no sandbox ever waits.
   *
   * @param {AcodeOptions} options
   * @param {{ pool: Pool | null, signal: AbortSignal }} of
   */
  static async open(options, { pool, signal }) {
    const gauges = new Gauges();
    const acode = await Acode.open({
      ...options,
      sessionId: `${SESSION}${process.pid}-${randomUUID().slice(0, 8)}`,
      metrics: gauges,
      pool: pool === null ? false : { ...pool, idleMs: 3_600_000 },
    });
    const candidate = new AcodeCandidate(acode, pool, gauges);
    try {
      if (pool !== null) await candidate.#warmUp(signal);
      return candidate;
    } catch (error) {
      await acode.close();
      throw error;
    }
  }

  /** How many sandboxes wait. */
  get waiting() {
    return this.#gauges.values.get(WAITING) ?? 0;
  }

  /**
   * @param {readonly string[]} command
   * @param {import('@acode/sandbox').RunRequest} request
   */
  run(command, request) {
    return this.#counted(this.acode.run(command, request));
  }

  /**
   * @param {AbortSignal} signal
   * @returns {Promise<Sample>}
   */
  async echo(signal) {
    const began = performance.now();
    let firstByteMs = Number.NaN;
    const { stdout, exitCode, warm } = await this.#counted(
      this.acode.run(['echo', 'hi'], {
        signal,
        onStdout: () => {
          if (Number.isNaN(firstByteMs)) firstByteMs = performance.now() - began;
        },
      }),
    );
    const resultMs = performance.now() - began;
    echoed(this.name, stdout);
    if (exitCode !== 0) throw new Error(`${this.name}: ended with ${exitCode}`);
    return { firstByteMs, resultMs, warm };
  }

  /**
   * @param {number} bytes
   * @param {AbortSignal} signal
   */
  async print(bytes, signal) {
    let first = Number.NaN;
    let heard = 0;
    const onStdout = (/** @type {Uint8Array} */ chunk) => {
      if (heard === 0) first = performance.now();
      heard += chunk.length;
    };
    const command = ['head', '-c', String(bytes), '/dev/zero'];
    const { exitCode, dropped } = await this.#counted(this.acode.run(command, { signal, onStdout }));
    const seen = heard + dropped.stdout;
    if (exitCode !== 0 || seen !== bytes) throw new Error(`${this.name}: ${seen} of ${bytes} bytes, exit ${exitCode}`);
    return performance.now() - first;
  }

  /**
   * @param {number} count
   * @param {AbortSignal} signal
   */
  async lines(count, signal) {
    /** @type {(chunk: Uint8Array) => void} */
    let listener = () => undefined;
    const running = await this.#counted(this.acode.spawn(['cat'], { signal, onStdout: chunk => listener(chunk) }));
    try {
      const times = await lineTimes(count, signal, {
        write: line => void running.write(line).catch(() => undefined),
        onChunk: heard => (listener = heard),
      });
      await running.closeStdin();
      await running.result;
      return times;
    } finally {
      await running[Symbol.asyncDispose]();
    }
  }

  async settled() {
    const began = performance.now();
    let changed = began;
    for (let last = this.waiting; !this.#isSettled(performance.now() - changed);) {
      if (performance.now() - began > SETTLING_MS) throw new Error(`${this.name}: not settled after ${SETTLING_MS} ms`);
      await pause(POLL_MS);
      if (this.waiting !== last) changed = performance.now();
      last = this.waiting;
    }
  }

  // Here a place among those that run at once is free when the sandbox before is gone.
  async caughtUp() {}

  async close() {
    await this.acode.close();
  }

  /** @param {number} steadyMs */
  #isSettled(steadyMs) {
    if (this.#underWay > 0) return false;
    return this.#pool === null || this.waiting >= this.#pool.min || steadyMs > STEADY_MS;
  }

  /** @param {AbortSignal} signal */
  async #warmUp(signal) {
    const until = performance.now() + WARMING_MS;
    for (;;) {
      const { warm, warmReason } = await this.acode.explain(['echo', 'hi'], { signal });
      if (warm) return this.settled();
      if (performance.now() > until) throw new Error(warmReason);
      await pause(100);
    }
  }

  /**
   * @template Value
   * @param {Promise<Value>} work
   */
  async #counted(work) {
    this.#underWay += 1;
    try {
      return await work;
    } catch (error) {
      // One that never began is not torn down either.
      this.#underWay = Math.max(0, this.#underWay - 1);
      throw error;
    }
  }
}

/** The gauges of a host, as it sets them. */
class Gauges {
  /** @type {Map<string, number>} */
  values = new Map();

  increment() {}

  observe() {}

  /**
   * @param {string} name
   * @param {number} value
   */
  gauge(name, value) {
    this.values.set(name, value);
  }
}
