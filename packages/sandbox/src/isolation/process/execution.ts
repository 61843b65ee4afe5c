// Step 6 of the pipeline for sandboxes that are processes on this machine: runs one command, from its first byte to its
// end.

import { type ChildProcess, spawn } from 'node:child_process';
import { AcodeError } from '../../contract/errors.ts';
import type { Usage } from '../../contract/result.ts';
import type { RestPeriod } from '../../contract/scan.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { clockOffsetMs, setBackMs } from '../../workspace/directory-look.ts';
import type { CommandIo, Ending, Execution, Keeping, WaitingSandbox } from '../backend.ts';
import { type Handover, handoverLine } from '../handover/script.ts';
import { HandedStreams, within } from '../handover/status.ts';
import type { Child } from './child.ts';
import { assertHeld, type Held, hold, protection } from './held.ts';

/** What the host saw of a command that has ended. */
export interface Observed {
  readonly oomKilled: boolean;
  readonly pidsRefused: boolean;
  readonly usage?: Usage;
}

/** The processes of a sandbox. */
export interface SandboxProcesses {
  /** The one that was started, and holds the streams. */
  readonly child: Child;
  /** Sends a signal to every process of the command; none left is no error. */
  signal(name: string): void;
  /** Stops every process of the command, or lets them go on; absent where they cannot be found. */
  freeze?(action: 'pause' | 'resume'): void;
  /** Settles when none is left; what a level cannot follow does not count. */
  gone(): Promise<void>;
  /** What the host counted. */
  observe(): Promise<Observed>;
}

// After the first process has ended, what is in the pipes comes at once; this bounds a process that holds one open.
const DRAIN_MS = 1000;
const VERDICT_MS = 5000;

/** A command in a sandbox of processes. */
class ProcessExecution implements Execution {
  readonly ended: Promise<Ending>;
  readonly dead: Promise<void>;
  readonly assertSame?: () => void;
  readonly #processes: SandboxProcesses;
  readonly #streams: HandedStreams;

  constructor(
    processes: SandboxProcesses,
    { nonce, line, same }: { readonly nonce: string; readonly line: string; readonly same?: () => void },
    io: CommandIo,
    signal: AbortSignal,
  ) {
    this.#processes = processes;
    if (same) this.assertSame = same;
    this.#streams = new HandedStreams(nonce, io);
    this.ended = this.#unlessCancelled(line, signal);
    this.dead = processes.child.exit.then(() => processes.gone());
    // Whoever asks for them gets their errors; a caller that was cancelled may never ask.
    this.ended.catch(() => undefined);
    this.dead.catch(() => undefined);
  }

  write(data: Uint8Array | string): Promise<void> {
    return this.#processes.child.write(data);
  }

  closeStdin(): Promise<void> {
    return this.#processes.child.closeStdin();
  }

  async kill(signalName: string): Promise<void> {
    await this.#streams.readyFor(signalName);
    this.#processes.signal(signalName);
  }

  async pause(): Promise<void> {
    this.#processes.freeze?.('pause');
  }

  async resume(): Promise<void> {
    this.#processes.freeze?.('resume');
  }

  // Local sandboxes have no network that could be taken away.
  async disconnect(): Promise<void> {}

  async #unlessCancelled(line: string, signal: AbortSignal): Promise<Ending> {
    let leave: () => void = () => undefined;
    const cancelled = new Promise<never>((_, reject) => {
      leave = () => {
        this.#processes.signal('SIGKILL');
        reject(new AcodeError('ACODE-SBX-014', {}, { cause: signal.reason }));
      };
      signal.addEventListener('abort', leave, { once: true });
    });
    try {
      return await Promise.race([this.#run(line), cancelled]);
    } finally {
      signal.removeEventListener('abort', leave);
    }
  }

  async #run(line: string): Promise<Ending> {
    const { child } = this.#processes;
    const drained = Promise.all([
      this.#streams.read('stdout', child.stdout),
      this.#streams.read('stderr', child.stderr),
    ]);
    drained.catch(() => undefined);
    await child.write(line);
    await this.#streams.complete(drained, child.exit, DRAIN_MS);
    return this.#streams.ending(async claim => {
      const exitCode = claim ? claim.exitCode : await this.#exitCode();
      return { exitCode, ...(await this.#processes.observe()) };
    });
  }

  async #exitCode(): Promise<number> {
    const ended = await within(VERDICT_MS, this.#processes.child.exit);
    if (ended) return ended.exitCode;
    throw new AcodeError('ACODE-SBX-018', {
      operation: 'waiting for the sandbox',
      reason: 'its first process did not end',
    });
  }
}

// A sandbox of processes that were started and wait: verified, then given its one command, or ended unused.

/** What a waiting sandbox is made of. */
interface WaitingParts {
  readonly spec: SandboxSpec;
  readonly processes: SandboxProcesses;
  /** Compares it with its plan; throws at the first difference. */
  readonly verify: (signal: AbortSignal) => Promise<void>;
  /** A process that has to end with status 0 before the command. */
  readonly first?: readonly string[];
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
    const { processes, spec, first } = this.#parts;
    const line = handoverLine({ ...own, ...(first && { first }), counted: { group: false, traffic: false } });
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

// The guard of one sandbox: a shell that waits on a pipe for the death of this process, and then ends what it left.
//
// A client that is killed with SIGKILL cleans up nothing itself. A waiting shell costs 2 MB and no time.

/** What a guard ends and takes away. */
interface Guarded {
  /** A process, or minus a process group. */
  readonly target: number;
  /** Control groups that are empty then. */
  readonly controlGroups?: readonly string[];
  /** A directory of the sandbox’s own, with everything in it. */
  readonly directory?: string;
}

const SHELL = '/bin/sh';

// One line says that there is nothing to do; end of file says that nobody is left to say so. A control group can be removed
// only when the last process has left it, which takes a moment.
const WAIT = `IFS= read -r word && exit 0
kill -s KILL -- "$1"
directory=$2
shift 2
for group; do for round in 1 2 3 4 5 6 7 8 9 10; do rmdir -- "$group" && break; sleep 0.05; done; done
[ -z "$directory" ] || rm -rf -- "$directory"`;

/** A guard that waits. */
export class Guard {
  readonly #shell: ChildProcess;

  private constructor(shell: ChildProcess) {
    this.#shell = shell;
  }

  /** Starts one. It outlives this process and holds nothing of it. */
  static start({ target, controlGroups = [], directory = '' }: Guarded): Guard {
    const shell = spawn(SHELL, ['-c', WAIT, 'acode-guard', String(target), directory, ...controlGroups], {
      detached: true,
      cwd: '/',
      env: { PATH: '/usr/bin:/bin' },
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    // Where none can be started, the end of its standard input still ends a sandbox that reads it.
    shell.on('error', () => undefined);
    shell.stdin?.on('error', () => undefined);
    shell.unref();
    return new Guard(shell);
  }

  /** Sends it home: nothing of the sandbox is left. */
  dismiss(): void {
    this.#shell.stdin?.end('done\n');
  }
}
