// A process inside a container that stays: a shell that has said who it is and waits for one line.

import { AcodeError } from '../../../contract/errors.ts';
import { READY_COMMAND, readFirstLine } from '../../handover/open-script.ts';
import { demultiplex } from '../engine/demultiplex.ts';
import type { OutputSink } from '../engine/demultiplex.ts';
import type { HijackedStream } from '../engine/hijack.ts';
import type { Engine } from '../engine/index.ts';

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
