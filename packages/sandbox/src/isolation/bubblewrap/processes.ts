// The processes of one bubblewrap sandbox, seen from outside: how they are signalled, waited for and counted.

import { AcodeError } from '../../contract/errors.ts';
import { signalNamed } from '../process/child.ts';
import type { Child } from '../process/child.ts';
import type { Observed, SandboxProcesses } from '../process/execution.ts';
import { isAlive } from '../process/identity.ts';
import type { ProcessIdentity } from '../process/identity.ts';
import type { ControlGroup } from './control-group.ts';
import type { Started } from './start.ts';

const FIRST_LOOK_MS = 1;
const SLOWEST_LOOK_MS = 20;
const MAX_MS = 5000;

/** The processes of a sandbox. */
export class BubblewrapProcesses implements SandboxProcesses {
  readonly child: Child;
  readonly #first: ProcessIdentity;
  readonly #group: ControlGroup | null;

  constructor({ child, first }: Started, group: ControlGroup | null) {
    this.child = child;
    this.#first = first;
    this.#group = group;
  }

  signal(name: string): void {
    const signal = signalNamed(name);
    if (!signal) throw new AcodeError('ACODE-SBX-017', { field: 'signal', reason: `there is no signal ${name}` });
    if (signal === 'SIGKILL') this.#end();
    // The group of the first process, which ignores what it has no handler for; a session of the command’s own is not in it.
    else this.#send(-this.#first.pid, signal);
  }

  async gone(): Promise<void> {
    const deadline = Date.now() + MAX_MS;
    for (let wait = FIRST_LOOK_MS; isAlive(this.#first); wait = Math.min(wait * 2, SLOWEST_LOOK_MS)) {
      if (Date.now() > deadline)
        throw new AcodeError('ACODE-SBX-018', {
          operation: 'ending the sandbox',
          reason: 'its first process lives on',
        });
      // The command can reach into the first process and make it outlive bubblewrap; from outside it cannot be kept alive.
      if (this.child.ended) this.#send(this.#first.pid, 'SIGKILL');
      await new Promise(resolve => void setTimeout(resolve, wait));
    }
  }

  async observe(): Promise<Observed> {
    if (!this.#group) return { oomKilled: false, pidsRefused: false };
    const { oomKills, pidsRefused, usage } = await this.#group.counters();
    return { oomKilled: oomKills > 0, pidsRefused: pidsRefused > 0, ...(usage ? { usage } : {}) };
  }

  // With the first process the kernel ends every other one of its namespace, whatever session it is in.
  #end(): void {
    this.child.kill('SIGKILL');
    this.#send(this.#first.pid, 'SIGKILL');
  }

  #send(target: number, signal: NodeJS.Signals): void {
    if (!isAlive(this.#first)) return;
    try {
      process.kill(target, signal);
    } catch {
      // It ended between the look and the signal.
    }
  }
}
