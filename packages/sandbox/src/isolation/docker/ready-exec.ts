// A process inside a container that stays: a shell that has said who it is and waits for one line.

import { READY_COMMAND, readFirstLine } from '../handover/open-script.ts';
import { demultiplex } from './engine/demultiplex.ts';
import type { OutputSink } from './engine/demultiplex.ts';
import type { HijackedStream } from './engine/hijack.ts';
import type { Engine } from './engine/index.ts';

const CALL_MS = 10_000;
const SHOWN_BYTES = 512;
// The two streams come each in its own time: a command that was handed over early may be heard before its shell.
const MOST_HELD_BYTES = 1024 ** 2;

/** A shell that waits, or will in a moment. */
export class ReadyExec {
  readonly execId: string;
  readonly stream: HijackedStream;
  /** Settles when its streams have ended. */
  readonly drained: Promise<void>;
  /** Settles when it has said who it is; nothing of it ran where that fails. */
  readonly said: Promise<void>;
  #pid = 0;
  #sink: OutputSink | null = null;
  #first = Buffer.alloc(0);
  #held = Buffer.alloc(0);
  #settle: (error?: Error) => void = () => undefined;
  #isOver = false;

  private constructor(execId: string, stream: HijackedStream) {
    this.execId = execId;
    this.stream = stream;
    this.said = this.#whenSaid();
    this.said.catch(() => stream.destroy());
    const sink = { stdout: (data: Buffer) => this.#stdout(data), stderr: (data: Buffer) => this.#stderr(data) };
    this.drained = demultiplex(stream, sink).finally(() => {
      this.#isOver = true;
      this.#settle(new Error(`the sandbox started no shell${this.#shown()}`));
    });
    this.drained.catch(() => undefined);
  }

  /** Has the engine make ready for one; nothing runs yet. */
  static prepare(engine: Engine, containerId: string, signal: AbortSignal): Promise<string> {
    return engine.exec.create(containerId, { argv: READY_COMMAND, stdin: true }, { signal, deadlineMs: CALL_MS });
  }

  /** Starts one that was prepared, which says who it is in a moment; `signal` ends it whenever it fires. */
  static async start(engine: Engine, execId: string, signal: AbortSignal): Promise<ReadyExec> {
    return new ReadyExec(execId, await engine.exec.start(execId, { signal, deadlineMs: CALL_MS }));
  }

  /** Its process, as the sandbox counts them; also the number of its process group. */
  get pid(): number {
    return this.#pid;
  }

  /** Whether it can still be handed anything. */
  get waits(): boolean {
    return !this.#isOver;
  }

  /** Gives it its one line; what it prints from then on goes to `sink`. It need not have said who it is. */
  async handOver(line: string, sink: OutputSink): Promise<void> {
    this.#sink = sink;
    await this.stream.write(line);
  }

  #whenSaid(): Promise<void> {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => this.#settle(new Error('the sandbox’s shell does not answer')), CALL_MS);
      this.#settle = error => {
        clearTimeout(late);
        if (error) reject(error);
        else resolve();
      };
    });
  }

  #stdout(data: Buffer): void | Promise<void> {
    return this.#pid > 0 ? this.#sink?.stdout(data) : this.#hear(data);
  }

  #stderr(data: Buffer): void | Promise<void> {
    if (this.#pid > 0) return this.#sink?.stderr(data);
    this.#held = Buffer.concat([this.#held, data]);
    if (this.#held.length > MOST_HELD_BYTES) this.#settle(new Error(`the shell did not say who it is${this.#shown()}`));
  }

  async #hear(data: Buffer): Promise<void> {
    this.#first = Buffer.concat([this.#first, data]);
    try {
      const first = readFirstLine(this.#first);
      if (!first) return;
      this.#pid = first.pid;
      this.#settle();
      if (this.#held.length > 0) await this.#sink?.stderr(this.#held);
      if (first.rest.length > 0) await this.#sink?.stdout(first.rest);
    } catch (error) {
      this.#settle(new Error(`${error instanceof Error ? error.message : String(error)}${this.#shown()}`));
    }
  }

  #shown(): string {
    const text = Buffer.concat([this.#first, this.#held]).toString('utf8', 0, SHOWN_BYTES).trim();
    return text === '' ? '' : `: ${text}`;
  }
}
