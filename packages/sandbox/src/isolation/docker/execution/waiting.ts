// A container that was started and waits: verified, then given its one command, or removed unused.

import { AcodeError } from '../../../contract/errors.ts';
import type { PublishedPort } from '../../../contract/result.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { CommandIo, Execution, Keeping, OpenSandbox, WaitingSandbox } from '../../backend.ts';
import { STAYING_LINE } from '../../handover/open-script.ts';
import { handoverLine } from '../../handover/script.ts';
import type { Handover } from '../../handover/script.ts';
import { protection, sameness } from '../../process/held.ts';
import type { Held } from '../../process/held.ts';
import type { ProcessIdentity } from '../../process/identity.ts';
import { ContainerExecution } from './execution.ts';
import type { StartedContainer } from './execution.ts';
import { assertNotNested, inspectRunning } from '../verify/inspection.ts';
import { OpenContainer } from './open.ts';
import { podmanVariables } from '../podman/podman.ts';
import { publishedPorts } from '../resources/ports.ts';
import { RestWatch } from './rest.ts';
import type { Creation } from '../resources/creation.ts';
import type { AttachedFacts } from '../resources/attachment.ts';
import { runtimeKind } from '../runtime.ts';
import type { RuntimeKind } from '../runtime.ts';
import { runtimeProcesses } from './runtime-processes.ts';

// How many shells wait in one that stays: the next command has one, and whoever has to end a command too.
const READY = 2;

/** A container that waits for its command. */
export class WaitingContainer implements WaitingSandbox {
  readonly id: string;
  readonly specHash: string;
  readonly keeping: Keeping;
  readonly #spec: SandboxSpec;
  readonly #facts: AttachedFacts;
  readonly #container: StartedContainer;
  readonly #creation: Pick<Creation, 'remove'>;
  #used = false;
  #ports: readonly PublishedPort[] = [];
  /** Throws where what it has mounted is not what was verified; null before it was. */
  #same: (() => void) | null = null;
  #held: Held | null = null;
  /** What it ends with; null where that cannot be seen from here. */
  #lives: readonly ProcessIdentity[] | null = null;
  #isLost = false;
  /** Null where the kernel of this host does not show what runs in it. */
  #rest: RestWatch | null = null;

  constructor(
    spec: SandboxSpec,
    facts: AttachedFacts,
    container: StartedContainer,
    creation: Pick<Creation, 'remove'>,
  ) {
    this.id = container.id;
    this.specHash = spec.hash;
    this.#spec = spec;
    this.#facts = facts;
    this.#container = container;
    this.#creation = creation;
    // An engine that is started anew forgets who waited for an exit, and who was attached.
    const lost = Promise.race([container.exit, container.stream.closed]).finally(() => (this.#isLost = true));
    lost.catch(() => undefined);
    this.keeping = { lost, recheck: signal => this.#recheck(signal), rest: () => this.#rest?.period() ?? null };
  }

  get ports(): readonly PublishedPort[] {
    return this.#ports;
  }

  async verify(signal: AbortSignal): Promise<void> {
    const { engine, mountConflicts: around } = this.#container;
    const expected = { spec: this.#spec, facts: this.#facts, around };
    const { details, held } = await inspectRunning(engine, this.id, expected, signal);
    const { State: state } = details;
    if (state.Running) {
      this.#ports = publishedPorts(this.#spec, details);
      this.#look(state.Pid, held);
      return;
    }
    const reason = state.Error ? state.Error : `its first process ended at once with status ${state.ExitCode}`;
    throw new AcodeError('ACODE-SBX-006', { name: this.#spec.identity.name, reason });
  }

  async execute(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<Execution> {
    if (this.#used) throw new AcodeError('ACODE-SBX-019', { operation: 'execute' });
    this.#used = true;
    this.#rest?.stop();
    signal.throwIfAborted();
    // The last look, with nothing between it and the command: what lies before it took its time.
    if (!this.#isLost) this.#same?.();
    const unset = this.#unset;
    const { network } = this.#facts;
    const counted = { group: this.#kind.hostKernel, traffic: network !== 'none' };
    const line = handoverLine({ ...handover, unset, counted });
    const given = { nonce: handover.nonce, line, network };
    const same = this.#same && protection(this.#spec, this.#held);
    const seen = { ...(this.#lives && { lives: this.#lives }), ...(same && { same }) };
    return new ContainerExecution({ ...this.#container, ...seen }, given, io, signal);
  }

  // Its first process goes on waiting for a line that never comes: at the end of its input, which is what a dead client
  // leaves, it ends, and everything inside with it. Only what outlives its maker is told to stay.
  async keepOpen({ outlives }: { readonly outlives: boolean }, signal: AbortSignal): Promise<OpenSandbox> {
    if (this.#used) throw new AcodeError('ACODE-SBX-019', { operation: 'keepOpen' });
    this.#used = true;
    this.#rest?.stop();
    signal.throwIfAborted();
    const { id, engine, clock, exit, oomWatch, stream } = this.#container;
    if (outlives) await stream.write(STAYING_LINE);
    return new OpenContainer({
      id,
      spec: this.#spec,
      engine,
      clock,
      ports: this.#ports,
      exit,
      oomWatch,
      ready: READY,
      network: this.#facts.network,
      unset: this.#unset,
      same: this.#same ?? sameness(this.#spec, this.#held),
      hostKernel: this.#kind.hostKernel,
      remove: () => this[Symbol.asyncDispose](),
    });
  }

  get #unset(): readonly string[] {
    return this.#facts.podman ? podmanVariables(this.#spec) : [];
  }

  get #kind(): RuntimeKind {
    return runtimeKind(this.#facts.runtime);
  }

  // Under a kernel of its own the host’s sees the runtime’s processes, and nothing of the sandbox.
  #look(pid: number, held: Held | null): void {
    const { processes } = this.#kind;
    this.#held = held;
    this.#same = sameness(this.#spec, held);
    if (this.#held) this.#lives = [this.#held.process];
    if (this.#held) this.#rest ??= new RestWatch(this.#held.process.pid, this.#container.clock);
    else if (processes) this.#lives ??= runtimeProcesses(pid, this.id, processes);
  }

  // Where the kernel shows nothing of it, everything is asked of the engine again.
  async #recheck(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#isLost || this.#used)
      throw new AcodeError('ACODE-SBX-006', { name: this.#spec.identity.name, reason: 'it ended while it waited' });
    if (!this.#held) return this.verify(signal);
    await assertNotNested(this.id, this.#spec, this.#container.mountConflicts, signal);
    this.#same?.();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#used = true;
    this.#rest?.stop();
    this.#container.stream.destroy();
    this.#container.oomWatch.forget(this.id);
    await this.#creation.remove(this.#spec, this.id);
    this.#facts.attachments.release(this.#spec);
  }
}
