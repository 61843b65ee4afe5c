// Step 6 of the pipe where a sandbox is processes of this host: a command that was handed over, from its first byte to its end.

import { AcodeError } from '../../contract/errors.ts';
import type { Usage } from '../../contract/result.ts';
import type { CommandIo, Ending, Execution } from '../backend.ts';
import { HandedStreams, within } from '../handover/status.ts';
import type { Child } from './child.ts';

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
  /** Settles when none is left; what a level cannot follow does not count. */
  gone(): Promise<void>;
  /** What the host counted. */
  observe(): Promise<Observed>;
}

// After the first process has ended, what is in the pipes comes at once; this bounds a process that holds one open.
const DRAIN_MS = 1000;
const VERDICT_MS = 5000;

/** A command in a sandbox of processes. */
export class ProcessExecution implements Execution {
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
    this.#processes.signal(signalName);
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
