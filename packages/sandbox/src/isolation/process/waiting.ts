// A sandbox of processes that were started and wait: verified, then given its one command, or ended unused.

import { AcodeError } from '../../contract/errors.ts';
import type { RestPeriod } from '../../contract/scan.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import type { CommandIo, Execution, Keeping, WaitingSandbox } from '../backend.ts';
import { clockOffsetMs, setBackMs } from '../../workspace/file-times.ts';
import { handoverLine } from '../handover/script.ts';
import type { Handover } from '../handover/script.ts';
import { ProcessExecution } from './execution.ts';
import type { SandboxProcesses } from './execution.ts';
import { assertHeld, hold, protection } from './held.ts';
import type { Held } from './held.ts';

/** What a waiting sandbox is made of. */
export interface WaitingParts {
  readonly spec: SandboxSpec;
  readonly processes: SandboxProcesses;
  /** Compares it with its plan; throws at the first difference. */
  readonly verify: (signal: AbortSignal) => Promise<void>;
  /** The process inside whose mounts are the sandbox’s; absent where it has none of its own. */
  readonly inside?: number;
  /** The hand-over in the words of this level, such as its own paths. */
  readonly translate?: (handover: Handover) => Promise<Handover>;
  /** Ends what is left of it and takes away what it used. */
  readonly remove: () => Promise<void>;
}

/** Processes that wait for their command. */
export class WaitingProcesses implements WaitingSandbox {
  readonly id: string;
  readonly specHash: string;
  readonly ports = [];
  readonly keeping: Keeping;
  readonly #parts: WaitingParts;
  #used = false;
  #held: Held | null = null;
  #removed: Promise<void> | null = null;

  constructor(parts: WaitingParts) {
    this.id = parts.spec.identity.name;
    this.specHash = parts.spec.hash;
    this.#parts = parts;
    // The shell that waits is the host’s own.
    const fromMs = Date.now();
    const offset = clockOffsetMs();
    const rest = (): RestPeriod | null => {
      const toMs = Date.now();
      return setBackMs(offset, clockOffsetMs(), toMs - fromMs) > 0 ? null : { fromMs, toMs };
    };
    this.keeping = { lost: parts.processes.child.exit, recheck: signal => this.#recheck(signal), rest };
  }

  async verify(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const { processes, spec, verify, inside } = this.#parts;
    // Before it is compared: a mount that goes while the others are looked at must not be missing from what is held.
    const held = inside === undefined ? null : hold(inside, '');
    if (!processes.child.ended) await verify(signal);
    if (!processes.child.ended) {
      this.#held = held;
      return;
    }
    const { exitCode } = await processes.child.exit;
    const reason = `its first process ended at once with status ${exitCode}`;
    throw new AcodeError('ACODE-SBX-006', { name: spec.identity.name, reason });
  }

  async execute(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<Execution> {
    if (this.#used) throw new AcodeError('ACODE-SBX-019', { operation: 'execute' });
    this.#used = true;
    const own = (await this.#parts.translate?.(handover)) ?? handover;
    signal.throwIfAborted();
    // What such a sandbox used is counted from outside.
    const line = handoverLine({ ...own, counted: { group: false, traffic: false } });
    const { processes, spec } = this.#parts;
    const same = this.#held && protection(spec, this.#held);
    // The last look, with nothing between it and the command: what lies before it took its time.
    if (this.#held && !processes.child.ended) assertHeld(this.#held, spec);
    return new ProcessExecution(processes, { nonce: own.nonce, line, ...(same && { same }) }, io, signal);
  }

  async #recheck(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#held && !this.#parts.processes.child.ended) assertHeld(this.#held, this.#parts.spec);
    else await this.verify(signal);
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#used = true;
    this.#removed ??= this.#parts.remove();
    return this.#removed;
  }
}
