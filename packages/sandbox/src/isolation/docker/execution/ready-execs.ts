// The shells that wait inside a container that stays, so that a command there need not wait for one to be started.

import { AcodeError } from '../../../contract/errors.ts';
import type { Clock } from '../../../contract/ports.ts';
import { readFirstLine, READY_COMMAND } from '../../handover/script.ts';
import { unlessCancelled } from '../../../lifecycle/clock.ts';
import type { Engine } from '../engine/index.ts';
import { demultiplex, type HijackedStream, type OutputSink } from '../engine/streams.ts';

/** How shells are kept. */
export interface ReadyExecsOptions {
  readonly start: () => Promise<ReadyExec>;
  /** How many wait; none where whoever opened the sandbox runs one command and goes. */
  readonly count: number;
  readonly clock: Clock;
}

// A command that has just begun has the CPU to itself: most are over by then, and the end of one is a better moment.
const REFILL_AFTER_MS = 40;
const AGAIN_MS = 50;

/** Shells that wait, each given out once. */
export class ReadyExecs {
  readonly #options: ReadyExecsOptions;
  readonly #waiting: ReadyExec[] = [];
  /** Those being started that nobody has asked for yet. */
  readonly #starting = new Set<Promise<ReadyExec | null>>();
  #cancelRefill: (() => void) | null = null;
  #count: number;
  #closed = false;

  constructor(options: ReadyExecsOptions) {
    this.#options = options;
    this.#count = options.count;
  }

  /** Has as many as there should be, without anybody waiting for them. */
  refill(): void {
    this.#cancelRefill?.();
    this.#cancelRefill = null;
    if (this.#closed) return;
    this.#prune();
    while (this.#waiting.length + this.#starting.size < this.#count) this.#begin();
  }

  /** One will be taken in a moment: where none waits, the next is on its way by then. */
  expect(): void {
    this.#prune();
    if (!this.#closed && this.#waiting.length + this.#starting.size === 0) this.#begin();
  }

  /** One that waits, or the next that is there. */
  async take(signal: AbortSignal): Promise<ReadyExec> {
    this.#prune();
    const waiting = this.#waiting.shift();
    this.#refillSoon();
    if (waiting) return waiting;
    // One that is being started comes sooner than one that is started now, unless it fails.
    const [coming] = this.#starting;
    if (coming) {
      this.#starting.delete(coming);
      const found = await taken(coming, signal);
      if (found) return found;
    }
    return taken(this.#started(), signal);
  }

  /** Lets those go that wait and those on their way; from then on each is started when it is needed. */
  async keepNone(): Promise<void> {
    this.#count = 0;
    this.#cancelRefill?.();
    this.#cancelRefill = null;
    for (const one of this.#waiting.splice(0)) one.stream.destroy();
    const coming = [...this.#starting];
    this.#starting.clear();
    for (const one of await Promise.all(coming)) one?.stream.destroy();
  }

  close(): void {
    this.#closed = true;
    this.#cancelRefill?.();
    for (const one of this.#waiting.splice(0)) one.stream.destroy();
  }

  // Where a command that filled the sandbox was ended just now, its processes may still be counted.
  async #started(): Promise<ReadyExec> {
    const { start, clock } = this.#options;
    try {
      return await start();
    } catch (error) {
      if (this.#closed) throw error;
      await new Promise<void>(resolve => void clock.after(AGAIN_MS, resolve));
      return await start();
    }
  }

  #begin(): void {
    const starting = this.#options.start().then(
      one => {
        const isClaimed = !this.#starting.delete(starting);
        if (this.#closed) one.stream.destroy();
        else if (!isClaimed) this.#waiting.push(one);
        return one;
      },
      // Whoever needs one tries again and hears why.
      () => {
        this.#starting.delete(starting);
        return null;
      },
    );
    this.#starting.add(starting);
  }

  #refillSoon(): void {
    if (this.#closed) return;
    this.#cancelRefill ??= this.#options.clock.after(REFILL_AFTER_MS, () => this.refill());
  }

  #prune(): void {
    for (let at = this.#waiting.length - 1; at >= 0; at -= 1)
      if (this.#waiting[at]?.waits !== true) this.#waiting.splice(at, 1);
  }
}

// What was started for a caller who has left goes.
async function taken<One extends ReadyExec | null>(starting: Promise<One>, signal: AbortSignal): Promise<One> {
  try {
    return await unlessCancelled(starting, signal);
  } catch (error) {
    starting.then(
      one => one?.stream.destroy(),
      () => undefined,
    );
    throw error;
  }
}

// A process inside a container that stays: a shell that has said who it is and waits for one line.

const CALL_MS = 10_000;
const SHOWN_BYTES = 512;

/** A shell that waits. */
export class ReadyExec {
  readonly execId: string;
  readonly stream: HijackedStream;
  /** Settles when its streams have ended. */
  readonly drained: Promise<void>;
  #pid = 0;
  #sink: OutputSink;
  #first = Buffer.alloc(0);
  #isOver = false;

  private constructor(execId: string, stream: HijackedStream, said: (error?: Error) => void) {
    this.execId = execId;
    this.stream = stream;
    const hear = (data: Buffer): void => this.#hear(data, said);
    this.#sink = { stdout: hear, stderr: hear };
    const take = (name: keyof OutputSink) => (data: Buffer) => this.#sink[name](data);
    this.drained = demultiplex(stream, { stdout: take('stdout'), stderr: take('stderr') }).finally(() => {
      this.#isOver = true;
      said(new Error(`it did not start${this.#shown()}`));
    });
    this.drained.catch(() => undefined);
  }

  /** Has the engine make ready for one; nothing runs yet. */
  static prepare(engine: Engine, containerId: string, signal: AbortSignal): Promise<string> {
    return engine.exec.create(containerId, { argv: READY_COMMAND, stdin: true }, { signal, deadlineMs: CALL_MS });
  }

  /**
   * Starts one that was prepared; `signal` ends it whenever it fires. It is there when it has said who it is: only then does
   * anybody write to it, so that one that says something else has run nothing.
   */
  static async start(engine: Engine, execId: string, signal: AbortSignal): Promise<ReadyExec> {
    const stream = await engine.exec.start(execId, { signal, deadlineMs: CALL_MS });
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => said(new Error('it does not answer')), CALL_MS);
      const said = (error?: Error): void => {
        clearTimeout(late);
        if (!error) return resolve(ready);
        stream.destroy();
        const operation = 'starting a shell in the sandbox';
        reject(new AcodeError('ACODE-SBX-018', { operation, reason: error.message }, { cause: error }));
      };
      const ready = new ReadyExec(execId, stream, said);
    });
  }

  /** Its process, as the sandbox counts them; also the number of its process group. */
  get pid(): number {
    return this.#pid;
  }

  /** Whether it can still be handed anything. */
  get waits(): boolean {
    return !this.#isOver;
  }

  /** Gives it its one line; what it prints from now on goes to `sink`. */
  async handOver(line: string, sink: OutputSink): Promise<void> {
    this.#sink = sink;
    await this.stream.write(line);
  }

  #hear(data: Buffer, said: (error?: Error) => void): void {
    if (this.#pid > 0) return;
    this.#first = Buffer.concat([this.#first, data]).subarray(0, SHOWN_BYTES);
    try {
      const first = readFirstLine(this.#first);
      if (!first) return;
      this.#pid = first.pid;
      said();
    } catch (error) {
      said(new Error(`${error instanceof Error ? error.message : String(error)}${this.#shown()}`));
    }
  }

  #shown(): string {
    const text = this.#first.toString('utf8').trim();
    return text === '' ? '' : `: ${text}`;
  }
}
