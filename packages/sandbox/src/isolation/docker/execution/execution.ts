// Step 6 of the pipeline: runs one command in a container, from its first byte to its end.

import { AcodeError } from '../../../contract/errors.ts';
import type { Clock } from '../../../contract/ports.ts';
import type { Usage } from '../../../contract/result.ts';
import type { CommandIo, Ending, Execution } from '../../backend.ts';
import { type Counters, type ExitClaim, HandedStreams, within } from '../../handover/status.ts';
import { endOfAll } from '../../process/held.ts';
import type { ProcessIdentity } from '../../process/identity.ts';
import type { ContainerExit, ContainerStats } from '../engine/containers.ts';
import type { Engine } from '../engine/index.ts';
import { EngineError } from '../engine/protocol.ts';
import { demultiplex, type HijackedStream } from '../engine/streams.ts';
import { engineFailure } from '../failure.ts';

/** The parts of a started container that an execution takes over. */
export interface StartedContainer {
  readonly id: string;
  readonly engine: Engine;
  readonly stream: HijackedStream;
  /** Resolves when the container has exited. */
  readonly exit: Promise<ContainerExit>;
  readonly oomWatch: OomWatch;
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

// Samples what a running container uses: afterwards the engine has forgotten it.

const FIRST_MS = 250;
const EVERY_MS = 1000;
const DEADLINE_MS = 2000;
// A sample before something else that must not wait for it.
const HURRIED_MS = 500;

/** Follows one container with a sample a second; short runs are never sampled and cost nothing. */
class UsageSampler {
  readonly #engine: Engine;
  readonly #id: string;
  readonly #clock: Clock;
  // Made with the first sample: most commands end before there is one.
  #calls: AbortController | null = null;
  #isOver = false;
  #latest: Usage | undefined;
  #cancel: () => void = () => undefined;

  constructor(engine: Engine, id: string, clock: Clock) {
    this.#engine = engine;
    this.#id = id;
    this.#clock = clock;
    this.#schedule(FIRST_MS);
  }

  /** The highest memory and the latest times that were seen. */
  get latest(): Usage | undefined {
    return this.#latest;
  }

  /** One sample out of turn; it never rejects and is given up soon. */
  async sampleNow(): Promise<void> {
    await this.#take(HURRIED_MS);
  }

  stop(): void {
    this.#isOver = true;
    this.#cancel();
    this.#calls?.abort();
  }

  #schedule(ms: number): void {
    this.#cancel = this.#clock.after(ms, () => void this.#sample());
  }

  async #sample(): Promise<void> {
    await this.#take(DEADLINE_MS);
    if (!this.#isOver) this.#schedule(EVERY_MS);
  }

  async #take(deadlineMs: number): Promise<void> {
    if (this.#isOver) return;
    this.#calls ??= new AbortController();
    const { signal } = this.#calls;
    try {
      const stats = await this.#engine.containers.stats(this.#id, { signal, deadlineMs });
      this.#latest = merge(this.#latest, usageOf(stats));
    } catch {
      // A sample that cannot be had is left out; whether the run itself is well is known from its own connection.
    }
  }
}

/**
 * What a run used: by the sandbox’s own account where it gave one, else by the samples. Of the network the engine’s
 * samples are the least that counts, since the sandbox could claim less; without a network nothing is said of it.
 */
export function usageFrom(
  counters: Counters | undefined,
  sampled: Usage | undefined,
  networked: boolean,
): Usage | undefined {
  const usage = claimedUsage(counters) ?? sampled;
  if (!usage) return undefined;
  const { peakMemoryBytes, cpuMs, throttledMs } = usage;
  const used = { peakMemoryBytes, cpuMs, throttledMs };
  return networked ? { ...used, ...traffic(counters, sampled) } : used;
}

function claimedUsage(counters: Counters | undefined): Usage | undefined {
  if (counters?.peakMemoryBytes === undefined) return undefined;
  const { peakMemoryBytes, cpuMs = 0, throttledMs = 0 } = counters;
  return { peakMemoryBytes, cpuMs, throttledMs };
}

function traffic(
  counters: Counters | undefined,
  sampled: Usage | undefined,
): Required<Pick<Usage, 'rxBytes' | 'txBytes'>> {
  const most = (name: 'rxBytes' | 'txBytes'): number => Math.max(counters?.[name] ?? 0, sampled?.[name] ?? 0);
  return { rxBytes: most('rxBytes'), txBytes: most('txBytes') };
}

/** Reads one sample; null where the container had no control group any more. */
export function usageOf(stats: ContainerStats): Usage | null {
  const memory = stats.memory_stats ?? {};
  const used = numberAt(memory, 'max_usage') ?? numberAt(memory, 'usage');
  const cpu = numberAt(stats.cpu_stats ?? {}, 'cpu_usage', 'total_usage');
  if (used === undefined || cpu === undefined) return null;
  return {
    peakMemoryBytes: used,
    cpuMs: cpu / 1e6,
    throttledMs: (numberAt(stats.cpu_stats ?? {}, 'throttling_data', 'throttled_time') ?? 0) / 1e6,
    ...trafficOf(stats),
  };
}

function trafficOf({ networks }: ContainerStats): Pick<Usage, 'rxBytes' | 'txBytes'> {
  const interfaces = Object.values(networks ?? {});
  if (interfaces.length === 0) return {};
  const sum = (key: string): number => interfaces.reduce((total, one) => total + (numberAt(one, key) ?? 0), 0);
  return { rxBytes: sum('rx_bytes'), txBytes: sum('tx_bytes') };
}

function merge(before: Usage | undefined, now: Usage | null): Usage | undefined {
  if (!now) return before;
  // An interface that is gone takes its counters with it; what was counted before stays true.
  return { ...before, ...now, peakMemoryBytes: Math.max(before?.peakMemoryBytes ?? 0, now.peakMemoryBytes) };
}

function numberAt(record: Readonly<Record<string, unknown>>, ...way: readonly string[]): number | undefined {
  let value: unknown = record;
  for (const key of way)
    value = typeof value === 'object' && value !== null ? new Map(Object.entries(value)).get(key) : undefined;
  return typeof value === 'number' ? value : undefined;
}

// Listens for the engine’s out-of-memory events: a container’s state says nothing of them while it runs.

// An engine tells of a process that the kernel killed a moment after the command that started it has ended.
const LATE_MS = 500;
const POLL_MS = 10;

/** Which containers had a process killed for want of memory, as far as the engine told. */
export class OomWatch {
  readonly #engine: Engine;
  readonly #label: string;
  readonly #seen = new Map<string, number>();
  readonly #stop = new AbortController();
  /** Containers that were started under the present subscription, so that nothing of theirs was missed. */
  readonly #followed = new Set<string>();
  #listening: Promise<void> | null = null;

  constructor(engine: Engine, label: string) {
    this.#engine = engine;
    this.#label = label;
  }

  /** Whether events of a container may have been missed, so that the engine has to be asked about it. */
  blindFor(id: string): boolean {
    return !this.#followed.has(id);
  }

  /** Resolves once the engine sends events, so that nothing of a container started afterwards is missed; never rejects. */
  async follow(id: string): Promise<void> {
    this.#listening ??= this.#listen();
    await this.#listening;
    if (this.#listening !== null) this.#followed.add(id);
  }

  /** Whether the container lost a process. */
  saw(id: string): boolean {
    return this.count(id) > 0;
  }

  /** How often the engine told so. */
  count(id: string): number {
    return this.#seen.get(id) ?? 0;
  }

  /**
   * Whether the engine told so more than `before` times; waits a moment for a late event. Null where events may have been
   * missed, and for Podman, which sends none.
   */
  async sawSince(id: string, before: number, clock: Clock): Promise<boolean | null> {
    const deadline = clock.monotonic() + LATE_MS;
    for (;;) {
      if (this.count(id) > before) return true;
      if (this.blindFor(id) || this.#engine.connection.isPodman) return null;
      if (clock.monotonic() >= deadline) return false;
      await new Promise<void>(resolve => void clock.after(POLL_MS, resolve));
    }
  }

  /** Forgets a container that is gone. */
  forget(id: string): void {
    this.#seen.delete(id);
    this.#followed.delete(id);
  }

  close(): void {
    this.#stop.abort();
  }

  async #listen(): Promise<void> {
    try {
      const filters = { type: ['container'], event: ['oom'], label: [this.#label] };
      const subscription = await this.#engine.events.subscribe({ filters, signal: this.#stop.signal });
      void this.#follow(subscription);
    } catch {
      this.#listening = null;
    }
  }

  async #follow(subscription: AsyncIterable<{ readonly id: string }>): Promise<void> {
    try {
      for await (const { id } of subscription) this.#seen.set(id, this.count(id) + 1);
    } catch {
      // The engine went away: every container that lived then is asked about at its end.
    }
    this.#followed.clear();
    this.#listening = null;
  }
}

// A signal for every process of a sandbox on Podman: its init passes one on to its first child alone, which is only the
// shell that waits for the command.

const SIGNAL_MS = 5000;
const SENT = 'sent';

/** Sends a signal from inside, to everything but the first process; rejects where that could not be done. */
async function signalInside(engine: Engine, id: string, name: string, signal: AbortSignal): Promise<void> {
  const inTime = AbortSignal.any([signal, AbortSignal.timeout(SIGNAL_MS)]);
  const terms = { signal: inTime, deadlineMs: SIGNAL_MS };
  // The name is a word of its own and never part of the text; -1 stands for all there are.
  const argv = ['/bin/sh', '-c', `kill -s "$1" -- -1 && echo ${SENT}`, 'sh', name.replace(/^SIG/, '')];
  const exec = await engine.exec.create(id, { argv }, terms);
  const stream = await engine.exec.start(exec, terms);
  let said = '';
  const stdout = (data: Buffer): void => {
    if (said.length < SENT.length) said += data.toString('latin1');
  };
  await demultiplex(stream, { stdout, stderr: () => undefined });
  // Not asked for its exit status: what the signal ended may be gone by then, and all that was in it.
  if (!said.startsWith(SENT)) throw new Error(`the shell of the sandbox could not send ${name}`);
}
