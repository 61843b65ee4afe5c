// Test process: streams that remember, signals that can be sent.

import { EventEmitter } from 'node:events';
import { PassThrough, Writable } from 'node:stream';
import { runCli } from './cli.ts';
import type { Io, OutputStream } from './io.ts';

/** A stream that keeps what is written to it. */
export class Recorder extends Writable {
  readonly isTTY: boolean;
  readonly columns: number;
  text = '';

  constructor(terminal = false, columns = 80) {
    super({ decodeStrings: false });
    this.isTTY = terminal;
    this.columns = columns;
  }

  override _write(chunk: string | Uint8Array, _encoding: BufferEncoding, done: () => void): void {
    this.text += typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString();
    done();
  }
}

/** What one call did. */
export interface Called {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Surroundings for one call. */
export function testIo(given: Partial<Io> = {}): Io & { readonly signals: EventEmitter } {
  const stdin = new PassThrough();
  stdin.end();
  return {
    stdin,
    stdout: new Recorder(),
    stderr: new Recorder(),
    env: {},
    outputsAreOne: false,
    cwd: () => process.cwd(),
    now: () => Date.parse('2026-01-02T03:04:05Z'),
    atExit: () => ({ [Symbol.dispose]: () => undefined }),
    leave: () => undefined,
    ...given,
    signals: new EventEmitter(),
  };
}

/** Calls the command in this process. */
export async function call(argv: readonly string[], given: Partial<Io> = {}): Promise<Called> {
  const stdout: OutputStream & { text: string } = new Recorder();
  const stderr: OutputStream & { text: string } = new Recorder();
  const status = await runCli(argv, testIo({ stdout, stderr, ...given }));
  return { status, stdout: stdout.text, stderr: stderr.text };
}
