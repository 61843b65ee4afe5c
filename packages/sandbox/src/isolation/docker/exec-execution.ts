// A command in a container that stays: handed to a shell that waited there, from its first byte to its end.

import { AcodeError } from '../../contract/errors.ts';
import type { CommandIo, Ending, OpenExecution } from '../backend.ts';
import { StatusScanner } from '../handover/status.ts';
import type { Claim } from '../handover/status.ts';
import type { ReadyExec } from './ready-exec.ts';

/** What a command needs of the container it runs in. */
export interface ExecSurroundings {
  /** Sends a signal to a process group inside. */
  signal(pid: number, name: string): Promise<void>;
  /** The exit status of a process, by the engine; waits until it has one. */
  exitOf(execId: string, signal: AbortSignal): Promise<number>;
  /** What the container counted of killed and refused processes when it was last told. */
  readonly counted: { oomKills: number; pidsRefused: number };
  /** Whether the engine saw a process killed for want of memory. */
  sawOom(): boolean;
  /** Takes the network of the whole sandbox away. */
  disconnect(): Promise<void>;
  /** Settles when the sandbox is gone, with the reason. */
  readonly gone: Promise<string>;
  readonly sandbox: string;
}

// A shell’s status of a command that was ended by a signal is this and the signal’s number.
const BY_SIGNAL = 128;

/** A command handed to a shell that waited. */
export class ExecExecution implements OpenExecution {
  readonly pid: number;
  readonly ended: Promise<Ending>;
  readonly dead: Promise<unknown>;
  readonly #exec: ReadyExec;
  readonly #around: ExecSurroundings;
  readonly #signal: AbortSignal;
  readonly #scanners: { readonly stdout: StatusScanner; readonly stderr: StatusScanner };
  readonly #before: { readonly oomKills: number; readonly pidsRefused: number };
  #bothClaimed: () => void = () => undefined;
  #killed: () => void = () => undefined;

  constructor(
    exec: ReadyExec,
    { nonce, line }: { readonly nonce: string; readonly line: string },
    io: CommandIo,
    around: ExecSurroundings,
    signal: AbortSignal,
  ) {
    this.pid = exec.pid;
    this.#exec = exec;
    this.#around = around;
    this.#signal = signal;
    this.#before = { ...around.counted };
    this.#scanners = {
      stdout: new StatusScanner(nonce, data => io.stdout(data)),
      stderr: new StatusScanner(nonce, data => io.stderr(data)),
    };
    this.ended = this.#run(line);
    // Whoever asks for the ending gets its error; a caller that was cancelled may never ask.
    this.ended.catch(() => undefined);
    this.dead = this.ended;
  }

  write(data: Uint8Array | string): Promise<void> {
    return this.#exec.stream.write(data);
  }

  closeStdin(): Promise<void> {
    return this.#exec.stream.closeWrite();
  }

  async kill(name: string): Promise<void> {
    await this.#around.signal(this.pid, name);
    // The shell that would tell of the end goes with the rest: then the engine is asked.
    if (name === 'SIGKILL') this.#killed();
  }

  disconnect(): Promise<void> {
    return this.#around.disconnect();
  }

  async #run(line: string): Promise<Ending> {
    const claimed = new Promise<'claimed'>(resolve => (this.#bothClaimed = () => resolve('claimed')));
    const killed = new Promise<'killed'>(resolve => (this.#killed = () => resolve('killed')));
    const drained = this.#exec.drained.then(
      () => 'drained' as const,
      () => 'drained' as const,
    );
    const abandoned = this.#whenAbandoned();
    try {
      await this.#exec.handOver(line, this.#sink());
      await Promise.race([claimed, drained, killed, abandoned.promise]);
      return await Promise.race([this.#ending(), abandoned.promise]);
    } finally {
      abandoned.stop();
      this.#scanners.stdout.end();
      this.#scanners.stderr.end();
    }
  }

  #sink(): { stdout(data: Buffer): void; stderr(data: Buffer): void } {
    const { stdout, stderr } = this.#scanners;
    const take = (scanner: StatusScanner) => (data: Buffer) => {
      scanner.push(data);
      if (stdout.claim && stderr.claim) this.#bothClaimed();
    };
    return { stdout: take(stdout), stderr: take(stderr) };
  }

  // The command was given up, or the sandbox is gone: nothing of it goes on, and nobody waits for it.
  #whenAbandoned(): { readonly promise: Promise<never>; stop(): void } {
    let stop = (): void => undefined;
    const promise = new Promise<never>((_, reject) => {
      const leave = (): void => {
        this.#around.signal(this.pid, 'SIGKILL').then(
          () => this.#exec.stream.destroy(),
          () => this.#exec.stream.destroy(),
        );
        reject(this.#signal.reason);
      };
      if (this.#signal.aborted) leave();
      else this.#signal.addEventListener('abort', leave, { once: true });
      stop = () => this.#signal.removeEventListener('abort', leave);
      void this.#around.gone.then(reason =>
        reject(new AcodeError('ACODE-SBX-025', { sandbox: this.#around.sandbox, reason })),
      );
    });
    promise.catch(() => undefined);
    return { promise, stop };
  }

  async #ending(): Promise<Ending> {
    const claim = this.#scanners.stdout.claim ?? this.#scanners.stderr.claim;
    if (claim && claim.kind !== 'exit' && !this.#scanners.stdout.passed && !this.#scanners.stderr.passed)
      return { exitCode: 127, neverStarted: claim.kind, oomKilled: false, pidsRefused: false };
    if (claim?.kind === 'exit' && claim.exitCode <= BY_SIGNAL) return this.#claimed(claim, claim.exitCode);
    const exitCode = await this.#around.exitOf(this.#exec.execId, this.#signal);
    if (claim?.kind === 'exit') return this.#claimed(claim, exitCode);
    return { exitCode, oomKilled: exitCode > BY_SIGNAL && this.#around.sawOom(), pidsRefused: false };
  }

  #claimed({ counters }: Claim & { kind: 'exit' }, exitCode: number): Ending {
    const { counted } = this.#around;
    counted.oomKills = Math.max(counted.oomKills, counters.oomKills);
    counted.pidsRefused = Math.max(counted.pidsRefused, counters.pidsRefused);
    return {
      exitCode,
      oomKilled: counters.oomKills > this.#before.oomKills,
      pidsRefused: counters.pidsRefused > this.#before.pidsRefused,
    };
  }
}
