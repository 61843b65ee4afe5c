// A command in a container that stays: handed to a shell that waited there, from its first byte to its end.

import type { CommandIo, Ending, OpenExecution } from '../../backend.ts';
import { type ExitClaim, HandedStreams } from '../../handover/status.ts';
import type { Gone } from './gone.ts';
import type { ReadyExec } from './ready-exec.ts';

/** What a command needs of the container it runs in. */
export interface ExecSurroundings {
  /** Sends a signal to a process group inside. */
  signal(pid: number, name: string): Promise<void>;
  /** The exit status of a process, by the engine; waits until it has one, for so long at most. Where it has none then, the sandbox goes. */
  exitOf(execId: string, signal: AbortSignal, withinMs?: number): Promise<number>;
  /** Ends a process group and makes sure by the engine that its first process is gone; where it is not, the sandbox goes. */
  end(pid: number, execId: string): Promise<void>;
  /** How often the engine has told that a process was killed for want of memory. */
  ooms(): number;
  /** Whether it has told so more than that often; null where its events may have been missed. Waits a moment for a late one. */
  sawOomSince(ooms: number): Promise<boolean | null>;
  /** Takes the network of the whole sandbox away. */
  disconnect(): Promise<void>;
  /** The end of the sandbox. */
  readonly gone: Gone;
  /** Settles when nothing in it goes on any more, or this process has let go of it. */
  readonly over: Promise<unknown>;
}

/** How long a process that was killed may take to be gone. */
export const ENDED_MS = 3000;

// A shell’s status of a command that was ended by a signal is this and the signal’s number.
const BY_SIGNAL = 128;

/** A command handed to a shell that waited. */
export class ExecExecution implements OpenExecution {
  readonly ended: Promise<Ending>;
  readonly dead: Promise<unknown>;
  readonly over: Promise<unknown>;
  readonly #exec: ReadyExec;
  readonly #around: ExecSurroundings;
  readonly #signal: AbortSignal;
  readonly #streams: HandedStreams;
  readonly #oomsBefore: number;
  #wasKilled = false;
  #patience: number | undefined;
  #killed: () => void = () => undefined;

  constructor(
    exec: ReadyExec,
    { nonce, line }: { readonly nonce: string; readonly line: string },
    io: CommandIo,
    around: ExecSurroundings,
    signal: AbortSignal,
  ) {
    this.#exec = exec;
    this.#around = around;
    this.#signal = signal;
    this.#oomsBefore = around.ooms();
    this.#streams = new HandedStreams(nonce, io);
    this.ended = this.#run(line);
    // Whoever asks for the ending gets its error; a caller that was cancelled may never ask.
    this.ended.catch(() => undefined);
    this.dead = this.ended;
    this.over = around.over;
  }

  get pid(): number {
    return this.#exec.pid;
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
    if (name !== 'SIGKILL') return;
    this.#wasKilled = true;
    this.#patience = ENDED_MS;
    this.#killed();
  }

  disconnect(): Promise<void> {
    return this.#around.disconnect();
  }

  async #run(line: string): Promise<Ending> {
    const killed = new Promise<void>(resolve => (this.#killed = resolve));
    const drained = this.#exec.drained.catch(() => undefined);
    const abandoned = this.#whenAbandoned();
    try {
      await this.#exec.handOver(line, this.#streams);
      await Promise.race([this.#streams.claimed, drained, killed, abandoned.promise]);
      if (this.#signal.aborted) return await abandoned.promise;
      return await Promise.race([this.#streams.ending(claim => this.#exited(claim)), abandoned.promise]);
    } finally {
      abandoned.stop();
      this.#streams.end();
    }
  }

  // The command was given up, or the sandbox is gone: nothing of it goes on, and nobody waits for it.
  #whenAbandoned(): { readonly promise: Promise<never>; stop(): void } {
    let stop = (): void => undefined;
    const promise = new Promise<never>((_, reject) => {
      const leave = (): void => {
        // Told of only when it is so: whoever hears of it may end this process, and with it the way inside.
        const over = (): void => {
          this.#exec.stream.destroy();
          reject(this.#signal.reason);
        };
        this.#around.end(this.pid, this.#exec.execId).then(over, over);
      };
      if (this.#signal.aborted) leave();
      else this.#signal.addEventListener('abort', leave, { once: true });
      const { gone } = this.#around;
      const stopListening = gone.listen(reason => reject(gone.failure(reason)));
      stop = () => {
        this.#signal.removeEventListener('abort', leave);
        stopListening();
      };
    });
    promise.catch(() => undefined);
    return { promise, stop };
  }

  async #exited(claim: ExitClaim | null): Promise<Ending> {
    if (claim) return this.#claimed(claim);
    const exitCode = await this.#around.exitOf(this.#exec.execId, this.#signal, this.#patience);
    const oomKilled = exitCode > BY_SIGNAL && !this.#wasKilled && this.#around.ooms() > this.#oomsBefore;
    // A shell that ends by itself and says nothing could not start the command: there was no room for its process.
    return { exitCode, oomKilled, pidsRefused: exitCode > 0 && exitCode <= BY_SIGNAL };
  }

  // A status that a signal leaves may be another one by the engine’s own account. The command can forge the counters, so the
  // engine’s events have the last word on memory; where it has none, the claim stands.
  async #claimed({ exitCode, counters }: ExitClaim): Promise<Ending> {
    const real = exitCode <= BY_SIGNAL ? exitCode : await this.#around.exitOf(this.#exec.execId, this.#signal);
    const oomKilled = counters.oomKills > 0 && ((await this.#around.sawOomSince(this.#oomsBefore)) ?? true);
    return { exitCode: real, oomKilled, pidsRefused: counters.pidsRefused > 0 };
  }
}
