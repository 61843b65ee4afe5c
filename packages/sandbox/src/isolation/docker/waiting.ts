// A container that was started and waits: verified, then given its one command, or removed unused.

import { AcodeError } from '../../contract/errors.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import type { CommandIo, Execution, WaitingSandbox } from '../backend.ts';
import type { Handover } from '../handover/script.ts';
import { ContainerExecution } from './execution.ts';
import type { StartedContainer } from './execution.ts';
import { engineFailure } from './failure.ts';
import { readKernelView } from './kernel.ts';
import { compareWithEngine, compareWithKernel } from './verify.ts';

const CALL_MS = 10_000;

/** A container that waits for its command. */
export class WaitingContainer implements WaitingSandbox {
  readonly id: string;
  readonly specHash: string;
  readonly #spec: SandboxSpec;
  readonly #container: StartedContainer;
  readonly #remove: () => Promise<void>;
  #used = false;

  constructor(spec: SandboxSpec, container: StartedContainer, remove: () => Promise<void>) {
    this.id = container.id;
    this.specHash = spec.hash;
    this.#spec = spec;
    this.#container = container;
    this.#remove = remove;
  }

  async verify(signal: AbortSignal): Promise<void> {
    const details = await this.#inspect(signal);
    const view = await readKernelView(details.State.Pid, this.id, this.#spec);
    // A process that ended while it was looked at has no view; a container without a shell ends like that.
    if (!details.State.Running || (view === null && !(await this.#inspect(signal)).State.Running))
      throw this.#didNotStart(details.State);
    const differences = [
      ...compareWithEngine(this.#spec, details),
      ...(view ? compareWithKernel(this.#spec, view) : []),
    ];
    const [first] = differences;
    if (!first) return;
    throw new AcodeError('ACODE-SBX-010', {
      violation: first.violation,
      detail: differences.map(({ detail }) => detail).join('; '),
    });
  }

  async execute(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<Execution> {
    if (this.#used) throw new AcodeError('ACODE-SBX-019', { operation: 'execute' });
    this.#used = true;
    signal.throwIfAborted();
    return new ContainerExecution(this.#container, handover, io, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#used = true;
    this.#container.stream.destroy();
    this.#container.oomWatch.forget(this.id);
    await this.#remove();
  }

  async #inspect(signal: AbortSignal) {
    try {
      return await this.#container.engine.containers.inspect(this.id, { signal, deadlineMs: CALL_MS });
    } catch (error) {
      throw engineFailure(error, signal);
    }
  }

  #didNotStart(state: { readonly ExitCode: number; readonly Error?: string | undefined }): AcodeError {
    const reason = state.Error
      ? state.Error
      : `its first process ended at once with status ${state.ExitCode}; does the image have a shell at /bin/sh?`;
    return new AcodeError('ACODE-SBX-006', { name: this.#spec.identity.name, reason });
  }
}
