// A container that was started and waits: verified, then given its one command, or removed unused.

import { AcodeError } from '../../contract/errors.ts';
import type { PublishedPort } from '../../contract/result.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import type { CommandIo, Execution, WaitingSandbox } from '../backend.ts';
import { handoverLine } from '../handover/script.ts';
import type { Handover } from '../handover/script.ts';
import { ContainerExecution } from './execution.ts';
import type { StartedContainer } from './execution.ts';
import { inspectRunning } from './inspection.ts';
import { podmanVariables } from './podman.ts';
import { publishedPorts } from './ports.ts';
import type { EngineFacts } from './request.ts';

/** A container that waits for its command. */
export class WaitingContainer implements WaitingSandbox {
  readonly id: string;
  readonly specHash: string;
  readonly #spec: SandboxSpec;
  readonly #facts: EngineFacts;
  readonly #container: StartedContainer;
  readonly #remove: () => Promise<void>;
  #used = false;
  #ports: readonly PublishedPort[] = [];

  constructor(spec: SandboxSpec, facts: EngineFacts, container: StartedContainer, remove: () => Promise<void>) {
    this.id = container.id;
    this.specHash = spec.hash;
    this.#spec = spec;
    this.#facts = facts;
    this.#container = container;
    this.#remove = remove;
  }

  get ports(): readonly PublishedPort[] {
    return this.#ports;
  }

  async verify(signal: AbortSignal): Promise<void> {
    const expected = { spec: this.#spec, facts: this.#facts };
    const details = await inspectRunning(this.#container.engine, this.id, expected, signal);
    const { State: state } = details;
    if (state.Running) {
      this.#ports = publishedPorts(this.#spec, details);
      return;
    }
    const reason = state.Error ? state.Error : `its first process ended at once with status ${state.ExitCode}`;
    throw new AcodeError('ACODE-SBX-006', { name: this.#spec.identity.name, reason });
  }

  async execute(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<Execution> {
    if (this.#used) throw new AcodeError('ACODE-SBX-019', { operation: 'execute' });
    this.#used = true;
    signal.throwIfAborted();
    const unset = this.#facts.podman ? podmanVariables(this.#spec) : [];
    const line = handoverLine({ ...handover, unset });
    const given = { nonce: handover.nonce, line, network: this.#facts.network };
    return new ContainerExecution(this.#container, given, io, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#used = true;
    this.#container.stream.destroy();
    this.#container.oomWatch.forget(this.id);
    await this.#remove();
  }
}
