// A sandbox of an image without a shell: nothing can wait in it, so its container is made for the one command it gets.
//
// It is compared with its plan before it starts, by the engine’s account alone; the kernel’s comes only with a process, and
// then the command has begun. That is why no mount source may lie below anything another sandbox can write.

import { AcodeError } from '../../../contract/errors.ts';
import type { PublishedPort } from '../../../contract/result.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { CommandIo, Execution, WaitingSandbox } from '../../backend.ts';
import type { Handover } from '../../handover/script.ts';
import { protection } from '../../process/held.ts';
import type { Held } from '../../process/held.ts';
import { startFailure } from '../resources/creation.ts';
import type { Created, Creation, RequestBuilder } from '../resources/creation.ts';
import type { Engine } from '../engine/index.ts';
import { ContainerExecution } from './execution.ts';
import type { StartedContainer } from './execution.ts';
import { inspectCreated, inspectStarted } from '../verify/inspection.ts';
import type { Expected } from '../verify/inspection.ts';
import { publishedPorts } from '../resources/ports.ts';
import type { AttachedFacts } from '../resources/attachment.ts';

const BEGUN =
  'The image has no shell, so the command had begun when that was seen. Run it again when no other sandbox can write there.';

/** What a direct start needs. */
export interface DirectParts {
  readonly spec: SandboxSpec;
  readonly facts: AttachedFacts;
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
      const expected = { spec, facts, around: creation.mountConflicts, argv };
      await inspectCreated(engine, id, expected, signal);
      const exit = await creation.watch(id, signal);
      const container = await creation.start(spec, id, exit, signal);
      let held: Held | null = null;
      const checked = this.#compare(container, expected, signal).then(found => (held = found));
      const same = (): void => protection(spec, held)();
      const given = { nonce: handover.nonce, line: null, network: facts.network };
      const execution = new ContainerExecution({ ...container, same, checked }, given, io, signal);
      // Why it cannot be used is said by its ending.
      if (spec.ports.length > 0) await checked.catch(() => undefined);
      return execution;
    } catch (error) {
      throw startFailure(spec, error, signal);
    }
  }

  // The command has begun: what is found is its end, and no refusal of it.
  async #compare({ id, engine }: StartedContainer, expected: Expected, signal: AbortSignal): Promise<Held | null> {
    try {
      const { details, held } = await inspectStarted(engine, id, expected, signal);
      this.#ports = publishedPorts(expected.spec, details);
      return held;
    } catch (error) {
      if (!(error instanceof AcodeError && error.is('ACODE-SBX-010'))) throw error;
      const { sandboxId: sandbox } = expected.spec.identity;
      throw new AcodeError('ACODE-SBX-025', { sandbox, reason: error.context.detail, remedy: BEGUN }, { cause: error });
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
