// The processes of a sandbox that is a process group of this host and nothing more: how they are signalled and waited for.

import { AcodeError } from '../../contract/errors.ts';
import { signalNamed } from './child.ts';
import type { Child } from './child.ts';
import type { Observed, SandboxProcesses } from './execution.ts';
import { groupLives } from './identity.ts';
import { endMarked } from './survivors.ts';

const LOOK_MS = 5;
const MAX_MS = 5000;

/** A process group. */
export class GroupProcesses implements SandboxProcesses {
  readonly child: Child;
  readonly #sandboxId: string;
  #escaped = 0;
  #isGone = false;

  constructor(child: Child, sandboxId: string) {
    this.child = child;
    this.#sandboxId = sandboxId;
    // With the shell the command is over; what it left in its group goes with it. At once: a number is used again only much later.
    child.exit.then(() => this.#send('SIGKILL')).catch(() => undefined);
  }

  /** How many processes had left the group and were found and ended all the same. */
  get escaped(): number {
    return this.#escaped;
  }

  signal(name: string): void {
    const signal = signalNamed(name);
    if (!signal) throw new AcodeError('ACODE-SBX-017', { field: 'signal', reason: `there is no signal ${name}` });
    this.#send(signal);
  }

  async gone(): Promise<void> {
    const deadline = Date.now() + MAX_MS;
    while (groupLives(this.child.pid)) {
      if (Date.now() > deadline)
        throw new AcodeError('ACODE-SBX-018', { operation: 'ending the command', reason: 'its processes live on' });
      await new Promise(resolve => void setTimeout(resolve, LOOK_MS));
    }
    this.#isGone = true;
    this.#escaped += endMarked(this.#sandboxId);
  }

  // Nothing counts what a process group uses.
  async observe(): Promise<Observed> {
    return { oomKilled: false, pidsRefused: false };
  }

  // The number of a group that is gone may be given to another.
  #send(signal: NodeJS.Signals): void {
    if (this.#isGone) return;
    try {
      process.kill(-this.child.pid, signal);
    } catch {
      // None is left.
    }
  }
}
