// A command with a terminal in a container that stays. Its stream is raw: what a terminal would show.

import type { CommandIo, Ending, OpenExecution } from '../../backend.ts';
import type { TerminalSize } from '../../../contract/sandbox.ts';
import { unlessCancelled } from '../../waiting.ts';
import { readBegun, readFirstLine } from '../../handover/open-script.ts';
import type { HijackedStream } from '../engine/hijack.ts';
import type { Engine } from '../engine/index.ts';
import { ENDED_MS } from './exec-execution.ts';
import type { ExecSurroundings } from './exec-execution.ts';

const CALL_MS = 10_000;
const MAX_BEFORE = 64 * 1024;
// What the small program before the command ends with where it cannot enter the directory.
const CWD = 125;

/** What was started. */
export interface StartedTerminal {
  readonly execId: string;
  readonly size: TerminalSize;
  readonly stream: HijackedStream;
}

/** A command with a terminal. */
export class DockerTerminal implements OpenExecution {
  readonly ended: Promise<Ending>;
  readonly dead: Promise<unknown>;
  readonly over: Promise<unknown>;
  /** Settles when the command was started, or will never be. */
  readonly begun: Promise<void>;
  readonly #started: StartedTerminal;
  readonly #engine: Engine;
  readonly #around: ExecSurroundings;
  readonly #signal: AbortSignal;
  /** Settles when it is known who it is, or will never be. */
  readonly #known: Promise<void>;
  #knows: () => void = () => undefined;
  #pid = 0;
  #patience: number | undefined;

  constructor(engine: Engine, started: StartedTerminal, io: CommandIo, around: ExecSurroundings, signal: AbortSignal) {
    this.#engine = engine;
    this.#started = started;
    this.#around = around;
    this.#signal = signal;
    let begin = (): void => undefined;
    this.#known = new Promise(resolve => (this.#knows = resolve));
    this.begun = new Promise(resolve => (begin = resolve));
    this.ended = this.#run(io, begin);
    this.ended.catch(() => undefined);
    this.dead = this.ended;
    this.over = around.over;
  }

  get pid(): number {
    return this.#pid;
  }

  write(data: Uint8Array | string): Promise<void> {
    return this.#started.stream.write(data);
  }

  closeStdin(): Promise<void> {
    return this.#started.stream.closeWrite();
  }

  async kill(name: string): Promise<void> {
    if (this.#pid > 0) await this.#around.signal(this.#pid, name);
    // With the other end of its terminal gone, whatever still has it is told to hang up.
    if (name !== 'SIGKILL') return;
    this.#patience = ENDED_MS;
    this.#started.stream.destroy();
  }

  disconnect(): Promise<void> {
    return this.#around.disconnect();
  }

  async resize(size: TerminalSize): Promise<void> {
    await this.#engine.exec.resize(this.#started.execId, size, { signal: this.#signal, deadlineMs: CALL_MS });
  }

  async #run(io: CommandIo, begin: () => void): Promise<Ending> {
    const { stream, execId } = this.#started;
    let givenUp = Promise.resolve();
    const leave = (): void => {
      const end = (): void => stream.destroy();
      givenUp = this.#known.then(() => this.#endInside()).then(end, end);
    };
    if (this.#signal.aborted) leave();
    else this.#signal.addEventListener('abort', leave, { once: true });
    const stopListening = this.#around.gone.listen(() => stream.destroy());
    try {
      await this.#pump(stream, io, begin).catch(() => undefined);
      this.#knows();
      begin();
      // Told of only when it is so: whoever hears of it may end this process, and with it the way inside.
      await givenUp;
      this.#signal.throwIfAborted();
      const exitCode = await this.#around.gone.unless(this.#around.exitOf(execId, this.#signal, this.#patience));
      const neverStarted = this.#pid === 0 && exitCode === CWD ? { neverStarted: 'cwd' as const } : {};
      return { exitCode, ...neverStarted, oomKilled: false, pidsRefused: false };
    } finally {
      stopListening();
      this.#signal.removeEventListener('abort', leave);
    }
  }

  async #endInside(): Promise<void> {
    if (this.#pid > 0) await this.#around.end(this.#pid, this.#started.execId);
  }

  async #pump(stream: HijackedStream, io: CommandIo, begin: () => void): Promise<void> {
    let held: Buffer | null = Buffer.alloc(0);
    for await (const chunk of stream) {
      if (held === null) {
        io.stdout(chunk);
        await this.#room(io);
        continue;
      }
      held = Buffer.concat([held, chunk]);
      if (this.#pid === 0) await this.#introduce(held);
      const output = readBegun(held);
      if (output === null && held.length > MAX_BEFORE) throw new Error('the terminal does not begin');
      if (output === null) continue;
      held = null;
      begin();
      if (output.length > 0) io.stdout(output);
    }
  }

  // What a terminal does not show yet waits inside: a reader that is gone for good ends with the signal.
  async #room(io: CommandIo): Promise<void> {
    if (io.room) await unlessCancelled(io.room(), this.#signal);
  }

  async #introduce(held: Buffer): Promise<void> {
    const first = readFirstLine(held);
    if (!first) return;
    this.#pid = first.pid;
    this.#knows();
    // Given up before it began: it is ended where it waits for its line.
    if (this.#signal.aborted) return;
    // A terminal that cannot be sized is still a terminal.
    await this.resize(this.#started.size).catch(() => undefined);
    await this.#started.stream.write('\n');
  }
}
