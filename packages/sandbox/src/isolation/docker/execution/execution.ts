// Step 6 of the pipe: a command that was handed to a container, from its first byte to its end.

import { AcodeError } from '../../../contract/errors.ts';
import type { Clock } from '../../../contract/ports.ts';
import type { CommandIo, Ending, Execution } from '../../backend.ts';
import { type ExitClaim, HandedStreams, within } from '../../handover/status.ts';
import { endOfAll } from '../../process/held.ts';
import type { ProcessIdentity } from '../../process/identity.ts';
import type { ContainerExit } from '../engine/containers.ts';
import { demultiplex } from '../engine/demultiplex.ts';
import { EngineError } from '../engine/error.ts';
import type { HijackedStream } from '../engine/hijack.ts';
import type { Engine } from '../engine/index.ts';
import { engineFailure } from '../failure.ts';
import type { MountConflicts } from '../resources/mount-conflicts.ts';
import type { OomWatch } from './oom-watch.ts';
import { signalInside } from '../podman/podman-signal.ts';
import { UsageSampler, usageFrom } from './usage.ts';

/** The parts of a started container that an execution takes over. */
export interface StartedContainer {
  readonly id: string;
  readonly engine: Engine;
  readonly stream: HijackedStream;
  /** Resolves when the container has exited. */
  readonly exit: Promise<ContainerExit>;
  readonly oomWatch: OomWatch;
  readonly mountConflicts: MountConflicts;
  readonly clock: Clock;
  /** The processes with which it ends, where this host’s kernel shows them. */
  readonly lives?: readonly ProcessIdentity[];
  /** Throws where what it has mounted is not what was verified. */
  readonly same?: () => void;
  /** Settles when it was compared with its plan, where that is done only while its command runs already. */
  readonly checked?: Promise<unknown>;
}

// After a container has exited its streams end by themselves; this bounds a stream that does not.
const DRAIN_MS = 5000;
const VERDICT_MS = 5000;
const CALL_MS = 10_000;
// A shell’s status of a command that was ended by a signal is this and the signal’s number.
const BY_SIGNAL = 128;

/** A command in a container. */
export class ContainerExecution implements Execution {
  readonly ended: Promise<Ending>;
  readonly assertSame?: () => void;
  readonly #container: StartedContainer;
  readonly #signal: AbortSignal;
  readonly #sampler: UsageSampler;
  readonly #streams: HandedStreams;
  readonly #network: string;

  /** `line` hands the command over; null where the container was started with it. `network` is an id, or `none`. */
  constructor(
    container: StartedContainer,
    { nonce, line, network }: { nonce: string; line: string | null; network: string },
    io: CommandIo,
    signal: AbortSignal,
  ) {
    this.#container = container;
    if (container.same) this.assertSame = container.same;
    this.#signal = signal;
    this.#network = network;
    this.#sampler = new UsageSampler(container.engine, container.id, container.clock);
    this.#streams = new HandedStreams(nonce, io);
    this.ended = this.#run(line);
    // Whoever asks for the ending gets its error; a caller that was cancelled may never ask.
    this.ended.catch(() => undefined);
  }

  // Whichever says so first. An engine tells only when it has put everything away, which takes many times as long.
  get dead(): Promise<unknown> {
    const { exit, lives, clock } = this.#container;
    return lives ? Promise.any([exit, endOfAll(lives, clock)]) : exit;
  }

  write(data: Uint8Array | string): Promise<void> {
    return this.#container.stream.write(data);
  }

  closeStdin(): Promise<void> {
    return this.#container.stream.closeWrite();
  }

  async kill(signalName: string): Promise<void> {
    if (await this.#signalledInside(signalName)) return;
    try {
      await this.#container.engine.containers.kill(this.#container.id, signalName, {
        signal: this.#signal,
        deadlineMs: CALL_MS,
      });
    } catch (error) {
      if (!hasEnded(error)) throw engineFailure(error, this.#signal);
    }
  }

  // Where there was no room for another process inside, or none is left, the engine is asked as everywhere else.
  async #signalledInside(signalName: string): Promise<boolean> {
    const { engine, id } = this.#container;
    if (!engine.connection.isPodman || signalName === 'SIGKILL') return false;
    return signalInside(engine, id, signalName, this.#signal).then(
      () => true,
      () => false,
    );
  }

  async disconnect(): Promise<void> {
    if (this.#network === 'none') return;
    const { engine, id } = this.#container;
    // With the interface go its counters, so they are read first.
    await this.#sampler.sampleNow();
    try {
      await engine.networks.disconnect(this.#network, id, { signal: this.#signal, deadlineMs: CALL_MS });
    } catch (error) {
      throw engineFailure(error, this.#signal);
    }
  }

  async #run(line: string | null): Promise<Ending> {
    const { stream, exit, checked = Promise.resolve() } = this.#container;
    try {
      const refused = new Promise<never>((_, reject) => void checked.catch(reject));
      const drained = demultiplex(stream, this.#streams).then(() => this.#streams.end());
      drained.catch(() => undefined);
      if (line !== null) await stream.write(line);
      await Promise.race([this.#streams.complete(drained, exit, DRAIN_MS), refused]);
      const ending = await this.#streams.ending(claim => this.#exited(claim));
      await checked;
      return ending;
    } catch (error) {
      throw engineFailure(error, this.#signal);
    } finally {
      this.#sampler.stop();
    }
  }

  async #exited(claim: ExitClaim | null): Promise<Ending> {
    const claimedOom = claim !== null && claim.counters.oomKills > 0;
    // An engine that shuts down ends every command with a signal first, and its sandbox still lives to tell: that would look
    // like the command’s own end. So whoever was ended by a signal has an engine that goes on, or it is the engine’s failure.
    if (claim && claim.exitCode <= BY_SIGNAL && !claimedOom && !this.#engineMayKnowMore())
      return this.#report(claim.exitCode, false, claim);
    // The sandbox’s own word does not count where the engine may know more.
    const verdict = await this.#verdict();
    const oomKilled = verdict.oomKilled || (claimedOom && (await this.#confirmsOom()));
    return this.#report(verdict.exitCode, oomKilled, claim);
  }

  // The command can forge the counter, so the engine’s events have the last word; where it has none, the claim stands.
  async #confirmsOom(): Promise<boolean> {
    const { oomWatch, id, clock } = this.#container;
    return (await oomWatch.sawSince(id, 0, clock)) ?? true;
  }

  #engineMayKnowMore(): boolean {
    const { oomWatch, id } = this.#container;
    return oomWatch.saw(id) || oomWatch.blindFor(id);
  }

  async #verdict(): Promise<{ exitCode: number; oomKilled: boolean }> {
    const { engine, exit, id } = this.#container;
    const ended = await within(VERDICT_MS, exit);
    if (!ended)
      throw new AcodeError('ACODE-SBX-018', {
        operation: 'POST /containers/{id}/wait',
        reason: 'the container did not end',
      });
    const { State } = await engine.containers.inspect(id, { signal: this.#signal, deadlineMs: CALL_MS });
    return { exitCode: ended.statusCode, oomKilled: State.OOMKilled || this.#container.oomWatch.saw(id) };
  }

  #report(exitCode: number, oomKilled: boolean, claim: ExitClaim | null): Ending {
    const counters = claim?.counters;
    const usage = usageFrom(counters, this.#sampler.latest, this.#network !== 'none');
    return { exitCode, oomKilled, pidsRefused: (counters?.pidsRefused ?? 0) > 0, ...(usage ? { usage } : {}) };
  }
}

// 409: it has ended meanwhile. 404: it is gone. Podman also says either with 500, where that happens while it looks.
function hasEnded(error: unknown): boolean {
  if (!(error instanceof EngineError)) return false;
  if (error.status === 409 || error.status === 404) return true;
  return error.status === 500 && /no such container|container state improper/.test(error.engineMessage ?? '');
}
