// Samples what a running container uses: afterwards the engine has forgotten it.

import type { Clock } from '../../../contract/ports.ts';
import type { Usage } from '../../../contract/result.ts';
import type { Counters } from '../../handover/status.ts';
import type { ContainerStats } from '../engine/containers.ts';
import type { Engine } from '../engine/index.ts';

const FIRST_MS = 250;
const EVERY_MS = 1000;
const DEADLINE_MS = 2000;
// A sample before something else that must not wait for it.
const HURRIED_MS = 500;

/** Follows one container with a sample a second; short runs are never sampled and cost nothing. */
export class UsageSampler {
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
