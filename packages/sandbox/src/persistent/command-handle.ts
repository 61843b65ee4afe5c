// A command under way in a sandbox that stays, as whoever started it holds it.

import { AcodeError } from '../contract/errors.ts';
import type { RunResult } from '../contract/result.ts';
import type { CommandHandle, TerminalHandle, TerminalSize } from '../contract/sandbox.ts';
import type { OpenExecution } from '../isolation/backend.ts';
import type { Offered } from './relay/offer.ts';
import type { Running } from '../run/running.ts';

/** A command under way in a sandbox that stays. */
export class Handle implements TerminalHandle, Offered {
  readonly pid: number;
  readonly ports: CommandHandle['ports'];
  readonly stdout: AsyncIterable<Uint8Array>;
  readonly stderr: AsyncIterable<Uint8Array>;
  readonly result: Promise<RunResult>;
  readonly heads: Offered['heads'];
  readonly #running: Running;
  readonly #execution: OpenExecution | null;

  constructor(running: Running, execution: OpenExecution | null) {
    this.#running = running;
    this.#execution = execution;
    this.pid = execution?.pid ?? 0;
    this.ports = running.ports;
    this.stdout = running.stdout;
    this.stderr = running.stderr;
    this.result = running.result;
    this.heads = running.heads;
  }

  write(data: Uint8Array | string): Promise<void> {
    return this.#running.write(data);
  }

  closeStdin(): Promise<void> {
    return this.#running.closeStdin();
  }

  kill(signal?: string): Promise<void> {
    return this.#running.kill(signal);
  }

  wait(): Promise<RunResult> {
    return this.result;
  }

  async disconnect(): Promise<void> {}

  async resize(size: TerminalSize): Promise<void> {
    checkSize(size);
    await this.#execution?.resize?.(size);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#running[Symbol.asyncDispose]();
  }
}

/** Refuses the size of a terminal that is none. */
export function checkSize({ columns, rows }: TerminalSize): void {
  const fits = (count: number): boolean => Number.isInteger(count) && count >= 1 && count <= 10_000;
  if (fits(columns) && fits(rows)) return;
  throw new AcodeError('ACODE-SBX-017', { field: 'size', reason: 'must be 1 to 10000 columns and rows' });
}
