// Level none: the command as it is, on this host. No security boundary; it exists so that it can be asked for by name.

import type { Level } from '../../contract/levels.ts';
import type { Clock } from '../../contract/ports.ts';
import type { ImageFacts, SandboxSpec } from '../../contract/spec.ts';
import type { Capability, WaitingSandbox, WeakenedBackend, Weakening } from '../backend.ts';
import { WAITING_COMMAND } from '../handover/script.ts';
import { HOST_IMAGE, LEAKED_VARIABLES } from '../process/child.ts';
import { assertWeakenable, capabilityOnHost, NO_BOUNDARY, prepareOnHost, refuseOnHost } from '../process/on-host.ts';

/** How a backend should behave. */
export interface NoneBackendOptions {
  readonly clock: Clock;
  /** Fires when the session ends. */
  readonly closing: AbortSignal;
  /** Keeps work that outlives its caller, so that closing waits for it. */
  readonly keep: (work: Promise<unknown>) => void;
  /** What its sandboxes lack, where they are controls of the doctor’s. */
  readonly weakness?: { readonly weakenings: readonly Weakening[]; readonly beforeCreate: () => Promise<void> };
}

const WEAKENABLE: readonly Weakening[] = ['environment'];
const NONE = { weakenings: [], beforeCreate: async () => {} };

/** The backend of level none. */
export class NoneBackend implements WeakenedBackend {
  readonly level: Level = 'none';
  /** What everybody who uses the level should know. */
  readonly notes = NO_BOUNDARY;
  readonly #options: NoneBackendOptions;

  constructor(options: NoneBackendOptions) {
    this.#options = options;
  }

  async probe(): Promise<Capability> {
    return capabilityOnHost(this.level);
  }

  async resolveImage(): Promise<ImageFacts> {
    return HOST_IMAGE;
  }

  describe(): unknown {
    return { program: WAITING_COMMAND[0], limits: 'none', notes: this.notes };
  }

  async prepare(spec: SandboxSpec, signal: AbortSignal): Promise<WaitingSandbox> {
    refuseOnHost(spec, this.level);
    const { weakenings, beforeCreate } = this.#options.weakness ?? NONE;
    const [shell = '/bin/sh', ...words] = WAITING_COMMAND;
    const variables = weakenings.includes('environment') ? LEAKED_VARIABLES : {};
    const verify = async (): Promise<void> => {};
    return prepareOnHost({ spec, argv: [shell, ...words], variables, verify, beforeCreate }, signal);
  }

  weakened(weakenings: readonly Weakening[], beforeCreate = NONE.beforeCreate): WeakenedBackend {
    assertWeakenable(weakenings, WEAKENABLE, this.level);
    return new NoneBackend({ ...this.#options, weakness: { weakenings, beforeCreate } });
  }

  // Sandboxes share nothing here.
  async release(): Promise<readonly never[]> {
    return [];
  }

  close(): void {}

  async [Symbol.asyncDispose](): Promise<void> {}
}
