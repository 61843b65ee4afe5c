// Level bubblewrap: sandboxes as processes in namespaces of their own, made by an ordinary user without an engine.

import { availableParallelism, machine } from 'node:os';
import { AcodeError } from '../../contract/errors.ts';
import type { Level } from '../../contract/levels.ts';
import type { Clock } from '../../contract/ports.ts';
import type { ImageFacts, SandboxSpec } from '../../contract/spec.ts';
import type { Capability, WaitingSandbox, WeakenedBackend, Weakening } from '../backend.ts';
import { Guard } from '../process/guard.ts';
import { HOST_IMAGE } from '../process/host-image.ts';
import { WaitingProcesses } from '../process/waiting.ts';
import { openProgram, seccompProgram } from '../seccomp/bpf.ts';
import { architectureOf } from '../seccomp/profile.ts';
import type { Architecture } from '../seccomp/profile.ts';
import { bubblewrapArguments } from './arguments.ts';
import { ControlGroup, findDelegation, sweepControlGroups } from './control-group.ts';
import type { Delegation } from './control-group.ts';
import { findBubblewrap, whyTooOld } from './find.ts';
import { readHostView } from './host-view.ts';
import { inspectStarted } from './inspection.ts';
import { mayJoin, probeSandbox } from './probe.ts';
import { BubblewrapProcesses } from './processes.ts';
import { refuseUnsupported } from './refusals.ts';
import { circumstances, heldLately, rememberHeld } from './remembered.ts';
import { resourceLimits } from './resource-limits.ts';
import { startBubblewrap } from './start.ts';
import type { Started } from './start.ts';
import { assertPossible, weakenedGround, weakenedSpec } from './weaken.ts';

/** How a backend should behave. */
export interface BubblewrapBackendOptions {
  readonly clock: Clock;
  /** Fires when the session ends. */
  readonly closing: AbortSignal;
  /** Keeps work that outlives its caller, so that closing waits for it. */
  readonly keep: (work: Promise<unknown>) => void;
  /** Whether limits that each process carries alone are enough, where no control group was given to this user. */
  readonly acceptProcessLimits: boolean;
  /** The user’s own directory in which it is remembered, for a few minutes, that a sandbox was tried and held. */
  readonly memory: string;
  /** What its sandboxes lack, where they are controls of the doctor’s. */
  readonly weakness?: Weakness;
}

interface Weakness {
  readonly weakenings: readonly Weakening[];
  readonly beforeCreate: () => Promise<void>;
}

/** What a host has for this level. */
interface HostSupport {
  readonly program: string;
  readonly architecture: Architecture;
  readonly delegation: Delegation | null;
}

const NONE: Weakness = { weakenings: [], beforeCreate: async () => {} };
const LIMITS_MISSING =
  'no control group was given to this user, so memory and processes of a command can be limited one by one only and not together';
const LIMITS_REMEDY =
  'start acode in a group of its own (`systemd-run --user --scope -p Delegate=yes acode …`), or accept that with `sandbox.bubblewrap.accept_process_limits: true` in your own configuration file';

/** The bubblewrap backend. */
export class BubblewrapBackend implements WeakenedBackend {
  readonly level: Level = 'bubblewrap';
  /** What everybody who uses the level should know. */
  readonly notes: readonly string[] = [
    'The command sees this host’s own programs in /usr, read-only; the kernel is shared with it, as in a container.',
  ];
  readonly #options: BubblewrapBackendOptions;
  readonly #weakness: Weakness;
  #ground: Promise<HostSupport> | null = null;
  #perProcess = true;

  constructor(options: BubblewrapBackendOptions) {
    this.#options = options;
    this.#weakness = options.weakness ?? NONE;
  }

  async probe(signal: AbortSignal): Promise<Capability> {
    const reason = await this.#whyNot(signal);
    return {
      level: this.level,
      available: reason === null,
      cpus: availableParallelism(),
      runtimes: {},
      standardRuntime: '',
      ...(reason === null ? {} : { reason }),
    };
  }

  // There is no image: what stands for one is the system of this host.
  async resolveImage(): Promise<ImageFacts> {
    return HOST_IMAGE;
  }

  describe(spec: SandboxSpec): unknown {
    const limits = resourceLimits(spec.limits, this.#perProcess);
    return {
      program: 'bwrap',
      arguments: bubblewrapArguments(spec, { view: readHostView(), limits }),
      limits,
      limitsHeldBy: this.#perProcess ? 'each process' : 'a control group',
    };
  }

  async prepare(spec: SandboxSpec, signal: AbortSignal): Promise<WaitingSandbox> {
    refuseUnsupported(spec, { uid: process.getuid?.() ?? -1, gid: process.getgid?.() ?? -1 });
    const ground = await this.#whenReady();
    if (ground.delegation === null && !this.#options.acceptProcessLimits)
      throw new AcodeError('ACODE-SBX-012', {
        required: 'bubblewrap with limits on the whole command',
        available: `bubblewrap without them (${LIMITS_MISSING})`,
        remedy: LIMITS_REMEDY,
      });
    signal.throwIfAborted();
    return this.#make(spec, ground, signal);
  }

  weakened(weakenings: readonly Weakening[], beforeCreate = NONE.beforeCreate): WeakenedBackend {
    assertPossible(weakenings);
    return new BubblewrapBackend({ ...this.#options, weakness: { weakenings, beforeCreate } });
  }

  // Sandboxes share nothing here, and each takes its own with it.
  async release(): Promise<readonly never[]> {
    return [];
  }

  close(): void {}

  async [Symbol.asyncDispose](): Promise<void> {}

  async #make(spec: SandboxSpec, ground: HostSupport, signal: AbortSignal): Promise<WaitingSandbox> {
    const { weakenings, beforeCreate } = this.#weakness;
    const own = weakenedSpec(spec, weakenings);
    const view = readHostView();
    const limits = resourceLimits(own.limits, ground.delegation === null);
    await beforeCreate();
    const group = ground.delegation && (await ControlGroup.make(ground.delegation, own.limits));
    try {
      const words = bubblewrapArguments(own, { view, limits, ...weakenedGround(weakenings) });
      const seccomp = weakenings.includes('seccomp') ? openProgram() : seccompProgram(ground.architecture);
      const started = await startBubblewrap({ spec, program: ground.program, words, seccomp, group }, signal);
      const expected = { spec, view, limits: resourceLimits(spec.limits, ground.delegation === null), group };
      const verified = !weakenings.includes('verification');
      return this.#waiting(started, spec, group, verified ? () => inspectStarted(started, expected) : null);
    } catch (error) {
      if (group) this.#options.keep(group.remove());
      throw error;
    }
  }

  #waiting(
    started: Started,
    spec: SandboxSpec,
    group: ControlGroup | null,
    verify: (() => Promise<void>) | null,
  ): WaitingSandbox {
    const processes = new BubblewrapProcesses(started, group);
    // Bubblewrap’s own tie to its parent can be cut from inside, by a command that reaches into the first process.
    const guard = Guard.start({ target: started.first.pid, controlGroups: group?.paths ?? [] });
    const remove = async (): Promise<void> => {
      processes.signal('SIGKILL');
      await processes.gone();
      started.child.release();
      await group?.remove();
      guard.dismiss();
    };
    if (!verify) return new WaitingProcesses({ spec, processes, verify: async () => {}, remove });
    return new WaitingProcesses({ spec, processes, verify, remove, inside: started.shell });
  }

  // What is found once stays: a host does not lose bubblewrap in the middle of a session. What fails is tried again.
  #whenReady(): Promise<HostSupport> {
    this.#ground ??= this.#lookAround().catch((error: unknown) => {
      this.#ground = null;
      throw error;
    });
    return this.#ground;
  }

  async #lookAround(): Promise<HostSupport> {
    const found = process.platform === 'linux' ? await findBubblewrap() : { reason: 'it exists on Linux only' };
    if ('reason' in found) throw unavailable(found.reason);
    const architecture = architectureOf(machine());
    if (!architecture) throw unavailable(`there is no system call filter for ${machine()}`);
    const delegation = await findDelegation();
    const usable = delegation && (await mayJoin(delegation)) ? delegation : null;
    if (usable) this.#options.keep(sweepControlGroups(usable));
    this.#perProcess = usable === null;
    return { program: found.path, architecture, delegation: usable };
  }

  async #whyNot(signal: AbortSignal): Promise<string | null> {
    try {
      const ground = await this.#whenReady();
      const refused = await this.#tried(ground, signal);
      if (refused !== null) return refused;
      return ground.delegation || this.#options.acceptProcessLimits ? null : `${LIMITS_MISSING}; ${LIMITS_REMEDY}`;
    } catch (error) {
      if (signal.aborted || !(error instanceof AcodeError && error.is('ACODE-SBX-012'))) throw error;
      return error.context.available;
    }
  }

  async #tried(ground: HostSupport, signal: AbortSignal): Promise<string | null> {
    const { memory: directory, clock } = this.#options;
    const memory = { directory, uid: process.getuid?.() ?? -1, clock };
    const word = await circumstances(ground.program, ground);
    if (this.#weakness === NONE && heldLately(memory, word)) return null;
    const refused = await probeSandbox((spec, soon) => this.#make(spec, ground, soon), signal);
    if (refused !== null) return (await whyTooOld(ground.program)) ?? refused;
    if (this.#weakness === NONE) rememberHeld(memory, word);
    return null;
  }
}

function unavailable(reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-012', { required: 'bubblewrap', available: reason, remedy: reason });
}
