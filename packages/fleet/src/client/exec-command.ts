// Command in a sandbox of the fleet: begun by one call, followed by others until its end.

import { randomUUID } from 'node:crypto';
import type { Readable } from 'node:stream';
import { AcodeError } from '@acode/sandbox';
import type { Command, CommandRequest, RunResult, RunningCommand } from '@acode/sandbox';
import { PART_BYTES } from '../exec/protocol.ts';
import type { CallOf, ExecCall, execAnswers } from '../exec/protocol.ts';
import { Pieces } from './pieces.ts';
import type { Listeners } from './running.ts';

const CANCEL_MS = 30_000;

/** One call of a sandbox. */
export type Ask = <Verb extends ExecCall['verb']>(
  call: CallOf<Verb>,
  options?: { readonly bytes?: Uint8Array | undefined; readonly signal?: AbortSignal | undefined },
) => Promise<{ readonly value: (typeof execAnswers)[Verb]['_output']; readonly bytes: Uint8Array }>;

/** A command in a sandbox of the fleet. */
export class ExecCommand implements RunningCommand {
  readonly ports = [];
  readonly stdout = new Pieces();
  readonly stderr = new Pieces();
  readonly result: Promise<RunResult>;
  readonly #number: string;
  readonly #ask: Ask;
  #isOver = false;
  #writing: Promise<void> = Promise.resolve();
  #written = 0;

  private constructor(number: string, ask: Ask, request: CommandRequest) {
    this.#number = number;
    this.#ask = ask;
    this.result = this.#follow(request);
    // Who only reads a stream is not ended by it.
    this.result.catch(() => undefined);
  }

  /** Starts a command. */
  static async begin(command: Command, request: CommandRequest, ask: Ask): Promise<ExecCommand> {
    const { cwd, env, timeoutMs, stdin, signal } = request;
    if (signal?.aborted === true) throw new AcodeError('ACODE-SBX-014', {});
    const number = randomUUID();
    const input = stdin !== '';
    await ask({
      verb: 'begin',
      number,
      command: typeof command === 'string' ? command : [...command],
      ...(cwd === undefined ? {} : { cwd }),
      ...(env === undefined ? {} : { env }),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
      input,
    });
    const running = new ExecCommand(number, ask, request);
    if (input && stdin !== undefined) void running.#pipe(stdin).catch(() => undefined);
    return running;
  }

  write(data: Uint8Array | string): Promise<void> {
    return this.#write(Buffer.from(data), false);
  }

  closeStdin(): Promise<void> {
    return this.#write(Buffer.alloc(0), true);
  }

  async kill(signal = 'SIGTERM'): Promise<void> {
    await this.#ask({ verb: 'signal', number: this.#number, signal });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isOver) return;
    await this.#cancel().catch(() => undefined);
    await this.result.catch(() => undefined);
  }

  async #cancel(): Promise<void> {
    const call = { verb: 'signal', number: this.#number, signal: null } as const;
    await this.#ask(call, { signal: AbortSignal.timeout(CANCEL_MS) });
  }

  // In order, each piece when the one before it was taken.
  #write(data: Buffer, end: boolean): Promise<void> {
    const writing = this.#writing.then(() => this.#send(data, end));
    this.#writing = writing.catch(() => undefined);
    return writing;
  }

  async #send(data: Buffer, end: boolean): Promise<void> {
    for (let sent = 0; ;) {
      const bytes = data.subarray(sent, sent + PART_BYTES);
      const isLast = sent + bytes.length >= data.length;
      const at = this.#written;
      const call = { verb: 'write', number: this.#number, at, end: end && isLast } as const;
      const { taken } = (await this.#ask(call, bytes.length === 0 ? {} : { bytes })).value;
      // Not yet: the command has not read what was written before.
      if (taken < at + bytes.length) continue;
      sent += bytes.length;
      this.#written = at + bytes.length;
      if (isLast) return;
    }
  }

  async #pipe(stdin: string | Uint8Array | Readable): Promise<void> {
    const pieces: AsyncIterable<unknown> | Iterable<unknown> =
      typeof stdin === 'string' || stdin instanceof Uint8Array ? [stdin] : stdin;
    for await (const piece of pieces) await this.write(piece instanceof Uint8Array ? piece : String(piece));
    await this.closeStdin();
  }

  async #follow({ signal, onStdout, onStderr }: CommandRequest): Promise<RunResult> {
    const cancel = (): void => void this.#cancel().catch(() => undefined);
    if (signal?.aborted === true) cancel();
    signal?.addEventListener('abort', cancel, { once: true });
    try {
      for (let after = 0; ;) {
        const { value, bytes } = await this.#ask({ verb: 'follow', number: this.#number, after });
        let at = 0;
        for (const { stream, length } of value.pieces) {
          this.#print(stream, bytes.subarray(at, at + length), { onStdout, onStderr });
          at += length;
        }
        after = value.last;
        if (value.result) return value.result;
      }
    } finally {
      this.#isOver = true;
      signal?.removeEventListener('abort', cancel);
      this.stdout.end();
      this.stderr.end();
    }
  }

  #print(stream: 1 | 2, bytes: Uint8Array, { onStdout, onStderr }: Listeners): void {
    (stream === 1 ? this.stdout : this.stderr).push(bytes);
    (stream === 1 ? onStdout : onStderr)?.(bytes);
  }
}
