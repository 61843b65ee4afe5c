// What acode itself has done inside a container that stays, by the shells that wait there.

import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { AcodeError } from '../../../contract/errors.ts';
import { handoverLine } from '../../handover/script.ts';
import { HandedStreams } from '../../handover/status.ts';
import type { Inside, InsideEnd, InsideProgram, InsideResult } from '../../backend.ts';
import type { ExecSurroundings } from './exec-execution.ts';
import type { ReadyExec } from './ready-execs.ts';

/** What the inside is made of. */
export interface InsideParts {
  readonly take: (signal: AbortSignal) => Promise<ReadyExec>;
  readonly around: ExecSurroundings;
  readonly workdir: string;
  readonly image: string;
  /** Called when a program has ended. */
  readonly over: () => void;
  /** Variables of the container that programs must not see. */
  readonly unset: readonly string[];
}

const MAX_BYTES = 16 * 1024 ** 2;
const MAX_STDERR = 64 * 1024;
// Programs of acode’s own say what they have to say in one language.
const ENVIRONMENT = { LC_ALL: 'C' };
const NOTHING_COUNTED = { group: false, traffic: false };

/** The inside of one container. */
export class ExecInside implements Inside {
  readonly #parts: InsideParts;

  constructor(parts: InsideParts) {
    this.#parts = parts;
  }

  async call(
    argv: readonly string[],
    {
      input,
      maxBytes = MAX_BYTES,
      signal,
    }: { readonly input?: Uint8Array | string; readonly maxBytes?: number; readonly signal: AbortSignal },
  ): Promise<InsideResult> {
    const program = await this.open(argv, signal);
    const feeding = feed(program, input);
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of program.stdout as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > maxBytes) {
        program.destroy();
        throw new AcodeError('ACODE-FIL-003', { path: argv[0] ?? '', limit: `${maxBytes} bytes` });
      }
      chunks.push(chunk);
    }
    await feeding;
    return { ...(await program.ended), stdout: Buffer.concat(chunks) };
  }

  async open(argv: readonly string[], signal: AbortSignal): Promise<InsideProgram> {
    const { take, workdir, unset } = this.#parts;
    const nonce = randomBytes(16).toString('hex');
    const handover = { command: argv, cwd: workdir, env: ENVIRONMENT, nonce, unset, counted: NOTHING_COUNTED };
    const exec = await take(signal);
    const program = new ExecProgram(exec, nonce, { ...this.#parts, program: argv[0] ?? '' }, signal);
    await exec.handOver(handoverLine(handover), program.sink);
    return program;
  }
}

// A program that ends without reading all of its input is no error.
async function feed(program: InsideProgram, input: Uint8Array | string | undefined): Promise<void> {
  try {
    if (input !== undefined) await program.write(input);
    await program.closeStdin();
  } catch {
    // How it ended its status says.
  }
}

class ExecProgram implements InsideProgram {
  readonly stdout: Readable;
  readonly ended: Promise<InsideEnd>;
  readonly #exec: ReadyExec;
  readonly #parts: InsideParts & { readonly program: string };
  readonly #signal: AbortSignal;
  readonly #streams: HandedStreams;
  readonly #stderr: Buffer[] = [];
  #stderrBytes = 0;
  #wantsMore: (() => void) | null = null;
  #isFull = false;

  constructor(exec: ReadyExec, nonce: string, parts: InsideParts & { readonly program: string }, signal: AbortSignal) {
    this.#exec = exec;
    this.#parts = parts;
    this.#signal = signal;
    this.stdout = new Readable({
      read: () => this.#more(),
      destroy: (error, done) => {
        this.#more();
        done(error);
      },
    });
    // Who only asks how it ended gets the failure there.
    this.stdout.on('error', () => undefined);
    this.#streams = new HandedStreams(nonce, {
      stdout: data => {
        if (!this.stdout.destroyed) this.#isFull = !this.stdout.push(data);
      },
      stderr: data => this.#keep(data),
    });
    this.ended = this.#run();
    this.ended.catch(() => undefined);
  }

  get sink(): { stdout(data: Buffer): Promise<void> | void; stderr(data: Buffer): void } {
    return {
      stdout: data => {
        this.#streams.stdout(data);
        if (!this.#isFull || this.stdout.destroyed) return undefined;
        return new Promise<void>(resolve => (this.#wantsMore = resolve));
      },
      stderr: this.#streams.stderr,
    };
  }

  write(data: Uint8Array | string): Promise<void> {
    return this.#exec.stream.write(data);
  }

  closeStdin(): Promise<void> {
    return this.#exec.stream.closeWrite();
  }

  destroy(): void {
    const end = (): void => this.#exec.stream.destroy();
    this.#parts.around.end(this.#exec.pid, this.#exec.execId).then(end, end);
    this.stdout.destroy();
  }

  #more(): void {
    this.#isFull = false;
    this.#wantsMore?.();
    this.#wantsMore = null;
  }

  #keep(data: Buffer): void {
    const kept = data.subarray(0, Math.max(0, MAX_STDERR - this.#stderrBytes));
    this.#stderrBytes += kept.length;
    if (kept.length > 0) this.#stderr.push(Buffer.from(kept));
  }

  async #run(): Promise<InsideEnd> {
    const { around, over } = this.#parts;
    const leave = (): void => this.destroy();
    this.#signal.addEventListener('abort', leave, { once: true });
    const drained = this.#exec.drained.catch(() => undefined);
    try {
      await around.gone.unless(Promise.race([this.#streams.claimed, drained]));
      this.#signal.throwIfAborted();
      const end = await around.gone.unless(this.#end());
      this.stdout.push(null);
      return end;
    } catch (error) {
      this.stdout.destroy(error instanceof Error ? error : new Error(String(error)));
      throw error;
    } finally {
      this.#signal.removeEventListener('abort', leave);
      over();
    }
  }

  async #end(): Promise<InsideEnd> {
    const { around, image, program } = this.#parts;
    const never = this.#streams.neverStarted;
    if (never && never !== 'cwd')
      throw new AcodeError('ACODE-SBX-015', {
        command: program,
        image,
        reason: never === 'missing' ? 'not found' : 'not executable',
      });
    const claim = this.#streams.exit;
    const exitCode = claim ? claim.exitCode : await around.exitOf(this.#exec.execId, this.#signal);
    return { exitCode, stderr: Buffer.concat(this.#stderr).toString('utf8') };
  }
}
