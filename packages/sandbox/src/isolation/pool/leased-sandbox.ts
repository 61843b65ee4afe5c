// A sandbox that waited and was given out: from then on it ends with its command, and not with the pool it came from.

import { AcodeError } from '../../contract/errors.ts';
import type { PublishedPort } from '../../contract/result.ts';
import type { CommandIo, Execution, OpenSandbox, WaitingSandbox } from '../backend.ts';
import type { Handover } from '../handover/script.ts';

/** One that was given out. What it waits for of its engine is given up through `stop` when its command is cancelled. */
export class LeasedSandbox implements WaitingSandbox {
  readonly #sandbox: WaitingSandbox;
  readonly #stop: AbortController;
  #unhear: () => void = () => undefined;

  constructor(sandbox: WaitingSandbox, stop: AbortController) {
    this.#sandbox = sandbox;
    this.#stop = stop;
  }

  get id(): string {
    return this.#sandbox.id;
  }

  get specHash(): string {
    return this.#sandbox.specHash;
  }

  get ports(): readonly PublishedPort[] {
    return this.#sandbox.ports;
  }

  verify(signal: AbortSignal): Promise<void> {
    return this.#sandbox.verify(signal);
  }

  execute(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<Execution> {
    const leave = (): void => this.#stop.abort(signal.reason);
    signal.addEventListener('abort', leave, { once: true });
    if (signal.aborted) leave();
    this.#unhear = () => signal.removeEventListener('abort', leave);
    return this.#sandbox.execute(handover, io, signal);
  }

  async keepOpen(how: { readonly outlives: boolean }, signal: AbortSignal): Promise<OpenSandbox> {
    if (!this.#sandbox.keepOpen) throw new AcodeError('ACODE-SBX-019', { operation: 'keepOpen' });
    return this.#sandbox.keepOpen(how, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#unhear();
    await this.#sandbox[Symbol.asyncDispose]();
  }
}
