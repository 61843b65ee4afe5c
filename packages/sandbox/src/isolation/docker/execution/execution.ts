// Step 6 of the pipeline: runs one command in a container, from its first byte to its end.

import { AcodeError } from '../../../contract/errors.ts';
import type { Clock } from '../../../contract/ports.ts';
import type { Usage } from '../../../contract/result.ts';
import type { CommandIo, Ending, Execution } from '../../backend.ts';
import { type Counters, type ExitClaim, HandedStreams, within } from '../../handover/status.ts';
import { endOfAll, type ProcessIdentity, signalTree } from '../../process/held.ts';
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
  /** The processes whose end is the end of the container, if this machine’s kernel shows them. */
  readonly lives?: readonly ProcessIdentity[];
  /** Throws if the container’s mounts differ from the verified ones. */
  readonly same?: () => void;
  /** Settles when the container was compared with its plan, if that happens only while its command already runs. */
  readonly checked?: Promise<unknown>;
}

// The streams of a container end after it exits; this is the deadline for a stream that does not.
const DRAIN_MS = 5000;
const VERDICT_MS = 5000;
const CALL_MS = 10_000;
// A shell’s exit status for a command that a signal ended is this plus the signal number.
const BY_SIGNAL = 128;
const SIGKILL = 9;

/** A command in a container. */
export class ContainerExecution implements Execution {
  readonly ended: Promise<Ending>;
  readonly assertSame?: () => void;
  readonly #container: StartedContainer;
  readonly #signal: AbortSignal;
  readonly #sampler: UsageSampler;
  readonly #streams: HandedStreams;
  readonly #network: string;
  readonly #handsOver: boolean;
  #isFrozen = false;
  #wasKilled = false;

  /** `line` hands the command over; null if the container was started with it. `network` is an id, or `none`. */
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
    this.#handsOver = line !== null;
    this.ended = this.#run(line);
    // Code that awaits `ended` gets the error; a caller that cancelled may never await it.
    this.ended.catch(() => undefined);
  }

  // Whichever reports the end first. The engine reports it only after its own cleanup, which takes many times as long.
  get dead(): Promise<unknown> {
    const { exit, lives, clock } = this.#container;
    return lives ? Promise.any([exit, endOfAll(lives, clock)]) : exit;
  }

  onOutOfMemory(act: () => void): () => void {
    return this.#container.oomWatch.hear(this.#container.id, act);
  }

  write(data: Uint8Array | string): Promise<void> {
    return this.#container.stream.write(data);
  }

  closeStdin(): Promise<void> {
    return this.#container.stream.closeWrite();
  }

  async kill(signalName: string): Promise<void> {
    if (signalName === 'SIGKILL') this.#wasKilled = true;
    if (this.#handsOver) await this.#streams.readyFor(signalName);
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

  halt(): void {
    this.#wasKilled = true;
    for (const process of this.#container.lives ?? []) signalTree(process, 'SIGKILL');
  }

  // A signal from here comes many times sooner than the engine’s word, which is needed where processes are not ours to signal.
  async pause(): Promise<void> {
    const { lives = [] } = this.#container;
    const isStopped = lives.length > 0 && lives.every(process => signalTree(process, 'SIGSTOP'));
    if (isStopped) return;
    this.#isFrozen = true;
    await this.#freeze('pause');
  }

  async resume(): Promise<void> {
    if (this.#isFrozen) await this.#freeze('unpause');
    this.#isFrozen = false;
    for (const process of this.#container.lives ?? []) signalTree(process, 'SIGCONT');
  }

  async #freeze(action: 'pause' | 'unpause'): Promise<void> {
    const { engine, id } = this.#container;
    try {
      await engine.containers.freeze(id, action, { signal: this.#signal, deadlineMs: CALL_MS });
    } catch (error) {
      if (!hasEnded(error)) throw engineFailure(error, this.#signal);
    }
  }

  // If the container has no room for another process, or has already ended, the engine sends the signal as usual.
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
    // Removing the interface also removes its counters, so they are read first.
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
    // An engine that shuts down first ends every command with a signal, while the sandbox can still report that: it
    // would look like the command’s own end. So if a signal ended the command, the engine must confirm it, or the run
    // fails with an engine error.
    if (claim && claim.exitCode <= BY_SIGNAL && !claimedOom && !this.#engineMayKnowMore())
      return this.#report(claim.exitCode, false, claim);
    // The sandbox’s own report does not count if the engine may know more.
    const verdict = await this.#verdict();
    const oomKilled = verdict.oomKilled || (await this.#wasOom(claim, verdict.exitCode));
    if (!oomKilled && this.#isOfShell(verdict.exitCode))
      return { exitCode: verdict.exitCode, neverStarted: 'ended', oomKilled, pidsRefused: false };
    return this.#report(verdict.exitCode, oomKilled, claim);
  }

  // The image’s shell ended by itself before there was a command: its status is not that of one.
  #isOfShell(exitCode: number): boolean {
    return this.#handsOver && !this.#streams.hasBegun && exitCode <= BY_SIGNAL;
  }

  // A command can forge its claim, so the engine’s events decide; if the engine sends none, the claim is accepted. Without
  // a claim, the kernel may have killed the whole sandbox, as it does under gVisor: the event can come after the exit.
  async #wasOom(claim: ExitClaim | null, exitCode: number): Promise<boolean> {
    const isClaimed = (claim?.counters.oomKills ?? 0) > 0;
    const isUnexplained = claim === null && exitCode === BY_SIGNAL + SIGKILL && !this.#wasKilled;
    if (!isClaimed && !isUnexplained) return false;
    const { oomWatch, id, clock } = this.#container;
    return (await oomWatch.sawSince(id, 0, clock)) ?? isClaimed;
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

// 409: the container has ended. 404: it was removed. Podman also reports either as 500 if it happens during the call.
function hasEnded(error: unknown): boolean {
  if (!(error instanceof EngineError)) return false;
  if (error.status === 409 || error.status === 404) return true;
  return error.status === 500 && /no such container|container state improper/.test(error.engineMessage ?? '');
}

// Samples the resource usage of a running container: the engine does not report it afterwards.

const FIRST_MS = 250;
const EVERY_MS = 1000;
const DEADLINE_MS = 2000;
// The deadline of a sample that delays another operation.
const HURRIED_MS = 500;

/** Samples one container once a second; short runs are never sampled and cost nothing. */
class UsageSampler {
  readonly #engine: Engine;
  readonly #id: string;
  readonly #clock: Clock;
  // Created with the first sample: most commands end before that.
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

  /** The highest memory usage and the latest times of all samples. */
  get latest(): Usage | undefined {
    return this.#latest;
  }

  /** Takes one extra sample; never rejects, and has a short deadline. */
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
      // A failed sample is skipped; the run’s own connection shows whether the run is healthy.
    }
  }
}

/**
 * The resource usage of a run: as the sandbox reported it, otherwise from the samples. For the network, the engine’s
 * samples are a lower bound, since the sandbox could claim less. Without a network, there are no network figures.
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

/** Reads one sample; null if the container’s control group no longer exists. */
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

/** What a container uses at the moment of one sample; null if its control group no longer exists. */
export function usageNow(stats: ContainerStats): { memoryBytes: number; cpuMs: number } | null {
  const memory = stats.memory_stats ?? {};
  const used = numberAt(memory, 'usage');
  const cpu = numberAt(stats.cpu_stats ?? {}, 'cpu_usage', 'total_usage');
  if (used === undefined || cpu === undefined) return null;
  // The first is the name of control groups 1, the second that of 2.
  const cached = numberAt(memory, 'stats', 'total_inactive_file') ?? numberAt(memory, 'stats', 'inactive_file') ?? 0;
  return { memoryBytes: Math.max(0, used - cached), cpuMs: cpu / 1e6 };
}

function trafficOf({ networks }: ContainerStats): Pick<Usage, 'rxBytes' | 'txBytes'> {
  const interfaces = Object.values(networks ?? {});
  if (interfaces.length === 0) return {};
  const sum = (key: string): number => interfaces.reduce((total, one) => total + (numberAt(one, key) ?? 0), 0);
  return { rxBytes: sum('rx_bytes'), txBytes: sum('tx_bytes') };
}

function merge(before: Usage | undefined, now: Usage | null): Usage | undefined {
  if (!now) return before;
  // The counters of a removed interface are lost, so earlier values are retained.
  return { ...before, ...now, peakMemoryBytes: Math.max(before?.peakMemoryBytes ?? 0, now.peakMemoryBytes) };
}

function numberAt(record: Readonly<Record<string, unknown>>, ...way: readonly string[]): number | undefined {
  let value: unknown = record;
  for (const key of way)
    value = typeof value === 'object' && value !== null ? new Map(Object.entries(value)).get(key) : undefined;
  return typeof value === 'number' ? value : undefined;
}

// Listens to the engine’s events: they show what the state of a running container does not, and that the engine is there.

// An engine may report that the kernel killed a process only a moment after the command that started it has ended.
const LATE_MS = 500;
const POLL_MS = 10;
// How often a lost engine is tried again, and how long it has to answer.
const AGAIN_MS = 1000;
const ANSWER_MS = 3000;

/** Called when the engine’s event stream is lost, and when it is there again. */
export interface EngineObserver {
  engineLost(socket: string, reason: string): void;
  engineFound(socket: string, lostMs: number): void;
}

/** Containers in which the kernel killed a process because of a lack of memory, as far as the engine reported it. */
export class OomWatch {
  readonly #engine: Engine;
  readonly #label: string;
  readonly #clock: Clock;
  readonly #observer: EngineObserver;
  readonly #seen = new Map<string, number>();
  readonly #heard = new Map<string, Set<() => void>>();
  readonly #stop = new AbortController();
  /** Containers that were started during the current subscription, so that no event of theirs was missed. */
  readonly #followed = new Set<string>();
  #listening: Promise<void> | null = null;
  #lostAt: number | null = null;
  #cancelAgain: () => void = () => undefined;

  constructor(engine: Engine, label: string, { clock, observer }: { clock: Clock; observer: EngineObserver }) {
    this.#engine = engine;
    this.#label = label;
    this.#clock = clock;
    this.#observer = observer;
  }

  /** Whether events of a container may have been missed, so that acode must inspect it. */
  blindFor(id: string): boolean {
    return !this.#followed.has(id);
  }

  /**
   * Resolves once the engine sends events, so that no event of a container started afterwards is missed; never rejects.
   */
  async follow(id: string): Promise<void> {
    this.#listening ??= this.#listen();
    await this.#listening;
    if (this.#listening !== null) this.#followed.add(id);
  }

  /** Whether the kernel killed a process of the container. */
  saw(id: string): boolean {
    return this.count(id) > 0;
  }

  /** How often the engine reported that. */
  count(id: string): number {
    return this.#seen.get(id) ?? 0;
  }

  /** Calls `act` each time the engine reports it from now on; returns what ends that. */
  hear(id: string, act: () => void): () => void {
    const all = this.#heard.get(id) ?? new Set();
    this.#heard.set(id, all.add(act));
    return () => {
      all.delete(act);
      if (all.size === 0) this.#heard.delete(id);
    };
  }

  /**
   * Whether the engine reported more than `before` events; waits a moment for a late event. Null if events may have
   * been missed, and for Podman, which sends none.
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

  /** Forgets a removed container. */
  forget(id: string): void {
    this.#seen.delete(id);
    this.#followed.delete(id);
  }

  close(): void {
    this.#cancelAgain();
    this.#stop.abort();
  }

  async #listen(): Promise<void> {
    try {
      const filters = { type: ['container'], event: ['oom'], label: [this.#label] };
      const terms = { signal: this.#stop.signal, ...(this.#lostAt === null ? {} : { deadlineMs: ANSWER_MS }) };
      const subscription = await this.#engine.events.subscribe({ filters, ...terms });
      this.#found();
      void this.#follow(subscription);
    } catch {
      this.#listening = null;
    }
  }

  async #follow(subscription: AsyncIterable<{ readonly id: string }>): Promise<void> {
    let reason = 'the engine ended the stream of events';
    try {
      for await (const { id } of subscription) {
        this.#seen.set(id, this.count(id) + 1);
        for (const act of this.#heard.get(id) ?? []) act();
      }
    } catch (error) {
      // Every container that was running then is inspected when it ends.
      reason = error instanceof Error ? error.message : String(error);
    }
    this.#followed.clear();
    this.#listening = null;
    if (this.#stop.signal.aborted) return;
    this.#lostAt = this.#clock.monotonic();
    this.#observer.engineLost(this.#engine.connection.socketPath, reason);
    this.#again();
  }

  // Until the engine is there again or the host is closed. A command that starts meanwhile may find it first.
  #again(): void {
    this.#cancelAgain();
    this.#cancelAgain = this.#clock.after(AGAIN_MS, () => void this.#tryAgain());
  }

  async #tryAgain(): Promise<void> {
    this.#listening ??= this.#listen();
    await this.#listening;
    if (this.#listening === null && !this.#stop.signal.aborted) this.#again();
  }

  #found(): void {
    if (this.#lostAt === null) return;
    this.#observer.engineFound(this.#engine.connection.socketPath, this.#clock.monotonic() - this.#lostAt);
    this.#lostAt = null;
  }
}

// Signals every process of a sandbox on Podman: its init forwards a signal only to its first child, which is the shell
// that waits for the command.

const SIGNAL_MS = 5000;
const SENT = 'sent';

/** Sends a signal from inside the container to every process but the first; rejects if that fails. */
async function signalInside(engine: Engine, id: string, name: string, signal: AbortSignal): Promise<void> {
  const inTime = AbortSignal.any([signal, AbortSignal.timeout(SIGNAL_MS)]);
  const terms = { signal: inTime, deadlineMs: SIGNAL_MS };
  // The name is a separate argument and never part of the script; -1 means all processes.
  const argv = ['/bin/sh', '-c', `kill -s "$1" -- -1 && echo ${SENT}`, 'sh', name.replace(/^SIG/, '')];
  const exec = await engine.exec.create(id, { argv }, terms);
  const stream = await engine.exec.start(exec, terms);
  let said = '';
  const stdout = (data: Buffer): void => {
    if (said.length < SENT.length) said += data.toString('latin1');
  };
  await demultiplex(stream, { stdout, stderr: () => undefined });
  // Does not query the exit status: the signal may have ended the container by then.
  if (!said.startsWith(SENT)) throw new Error(`the shell of the sandbox could not send ${name}`);
}
