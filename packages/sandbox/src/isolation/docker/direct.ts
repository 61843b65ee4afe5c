// A sandbox of an image without a shell: nothing can wait in it, so its container is made for the one command it gets.
//
// It is compared with its plan before it starts, by the engine’s account alone; the kernel’s comes only with a process.
// That is why no mount source may lie below anything another sandbox can write.

import { AcodeError } from '../../contract/errors.ts';
import type { PublishedPort } from '../../contract/result.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import type { CommandIo, Execution, WaitingSandbox } from '../backend.ts';
import type { Handover } from '../handover/script.ts';
import { startFailure } from './creation.ts';
import type { Created, Creation, RequestBuilder } from './creation.ts';
import type { Engine } from './engine/index.ts';
import { ContainerExecution } from './execution.ts';
import { inspectCreated, inspectStarted } from './inspection.ts';
import { publishedPorts } from './ports.ts';
import type { EngineFacts } from './request.ts';

/** What a direct start needs. */
export interface DirectParts {
  readonly spec: SandboxSpec;
  readonly facts: EngineFacts;
  readonly engine: Engine;
  readonly creation: Creation;
  readonly buildRequest: RequestBuilder;
  /** Gives the user inside what is theirs in the container that was made. */
  readonly own: (created: Created, signal: AbortSignal) => Promise<void>;
  /** Called when it is gone, or will never be made. */
  readonly over: () => void;
}

/** A sandbox whose container is made when its command is known. */
export class DirectContainer implements WaitingSandbox {
  readonly specHash: string;
  readonly #parts: DirectParts;
  #created: Created | null = null;
  #used = false;
  #ports: readonly PublishedPort[] = [];

  constructor(parts: DirectParts) {
    this.specHash = parts.spec.hash;
    this.#parts = parts;
  }

  get id(): string {
    return this.#created?.id ?? '';
  }

  get ports(): readonly PublishedPort[] {
    return this.#ports;
  }

  // There is nothing to look at yet: `execute` compares what it makes before it starts it.
  async verify(): Promise<void> {}

  async execute(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<Execution> {
    if (this.#used) throw new AcodeError('ACODE-SBX-019', { operation: 'execute' });
    this.#used = true;
    const argv = directCommand(this.#parts.spec, handover);
    const { engine, creation, buildRequest, facts } = this.#parts;
    const build: RequestBuilder = own => ({ ...buildRequest(own), Entrypoint: argv });
    this.#created = await creation.create(this.#parts.spec, build, signal);
    const { id, spec } = this.#created;
    try {
      await this.#parts.own(this.#created, signal);
      await inspectCreated(engine, id, { spec, facts, around: creation.neighbourhood }, argv, signal);
      const exit = await creation.watch(id, signal);
      const container = await creation.start(spec, id, exit, signal);
      const given = { nonce: handover.nonce, line: null, network: facts.network };
      const execution = new ContainerExecution(container, given, io, signal);
      if (spec.ports.length > 0) this.#ports = publishedPorts(spec, await inspectStarted(engine, id, signal));
      return execution;
    } catch (error) {
      throw startFailure(spec, error, signal);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#used = true;
    if (this.#created) {
      this.#parts.creation.oomWatch.forget(this.#created.id);
      await this.#parts.creation.remove(this.#created.spec, this.#created.id);
    }
    this.#parts.over();
  }
}

function directCommand(spec: SandboxSpec, { command, env, cwd }: Handover): readonly string[] {
  const image = spec.image.reference;
  if (typeof command === 'string')
    throw new AcodeError('ACODE-SBX-015', { command: '/bin/sh', image, reason: 'not found' });
  // The runtime would follow links of the workspace to it before anything is verified, and make what is missing, as root.
  if (cwd !== spec.workdir) {
    throw new AcodeError('ACODE-SBX-016', {
      what: `A working directory for ${image}, which has no shell to change to it,`,
      instead: 'Leave cwd out, or use an image with /bin/sh.',
    });
  }
  if (Object.keys(env).length > 0) {
    throw new AcodeError('ACODE-SBX-016', {
      what: `An environment for ${image}, which has no shell to hand it to,`,
      instead:
        'Leave env out, or use an image with /bin/sh: variables given any other way could be read by everyone who may ask the engine.',
    });
  }
  return command;
}
