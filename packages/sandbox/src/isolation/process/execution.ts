// Step 6 of the pipe where a sandbox is processes of this host: a command that was handed over, from its first byte to its end.

import { AcodeError } from '../../contract/errors.ts';
import type { Usage } from '../../contract/result.ts';
import type { CommandIo, Ending, Execution } from '../backend.ts';
import { NEVER_STARTED_STATUS, StatusScanner, claimedExit, neverStarted } from '../handover/status.ts';
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
  readonly #scanners: { readonly stdout: StatusScanner; readonly stderr: StatusScanner };
  #bothClaimed: () => void = () => undefined;

  constructor(
    processes: SandboxProcesses,
    { nonce, line, same }: { readonly nonce: string; readonly line: string; readonly same?: () => void },
    io: CommandIo,
    signal: AbortSignal,
  ) {
    this.#processes = processes;
    if (same) this.assertSame = same;
    this.#scanners = {
      stdout: new StatusScanner(nonce, data => io.stdout(data)),
      stderr: new StatusScanner(nonce, data => io.stderr(data)),
    };
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
    const claimed = new Promise<void>(resolve => (this.#bothClaimed = resolve));
    const drained = Promise.all([
      this.#pump(child.stdout, this.#scanners.stdout),
      this.#pump(child.stderr, this.#scanners.stderr),
    ]);
    drained.catch(() => undefined);
    await child.write(line);
    await Promise.race([claimed, drained, this.#exitThenDrain(drained)]);
    return this.#ending();
  }

  // Pulled, not pushed: what is not yet passed on stays with the command.
  async #pump(stream: AsyncIterable<Buffer>, scanner: StatusScanner): Promise<void> {
    const { stdout, stderr } = this.#scanners;
    for await (const chunk of stream) {
      scanner.push(chunk);
      if (stdout.claim && stderr.claim) this.#bothClaimed();
    }
    scanner.end();
  }

  async #exitThenDrain(drained: Promise<unknown>): Promise<void> {
    await this.#processes.child.exit;
    await Promise.race([drained, delay(DRAIN_MS)]);
  }

  async #ending(): Promise<Ending> {
    const never = neverStarted(this.#scanners);
    if (never)
      return { exitCode: NEVER_STARTED_STATUS[never], neverStarted: never, oomKilled: false, pidsRefused: false };
    const claim = claimedExit(this.#scanners);
    const exitCode = claim ? claim.exitCode : await this.#exitCode();
    return { exitCode, ...(await this.#processes.observe()) };
  }

  async #exitCode(): Promise<number> {
    const ended = await Promise.race([this.#processes.child.exit, delay(VERDICT_MS)]);
    if (ended) return ended.exitCode;
    throw new AcodeError('ACODE-SBX-018', {
      operation: 'waiting for the sandbox',
      reason: 'its first process did not end',
    });
  }
}

function delay(ms: number): Promise<undefined> {
  return new Promise(resolve => {
    setTimeout(() => resolve(undefined), ms).unref();
  });
}
