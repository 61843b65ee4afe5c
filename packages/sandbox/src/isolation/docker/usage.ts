// Samples what a running container uses: afterwards the engine has forgotten it.

import type { Clock } from '../../contract/ports.ts';
import type { Usage } from '../../contract/result.ts';
import type { ContainerStats } from './engine/containers.ts';
import type { Engine } from './engine/index.ts';

const FIRST_MS = 250;
const EVERY_MS = 1000;
const DEADLINE_MS = 2000;

/** Follows one container with a sample a second; short runs are never sampled and cost nothing. */
export class UsageSampler {
  readonly #engine: Engine;
  readonly #id: string;
  readonly #clock: Clock;
  readonly #stop = new AbortController();
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

  stop(): void {
    this.#cancel();
    this.#stop.abort();
  }

  #schedule(ms: number): void {
    this.#cancel = this.#clock.after(ms, () => void this.#sample());
  }

  async #sample(): Promise<void> {
    try {
      const stats = await this.#engine.containers.stats(this.#id, {
        signal: this.#stop.signal,
        deadlineMs: DEADLINE_MS,
      });
      this.#latest = merge(this.#latest, usageOf(stats));
    } catch {
      // A sample that cannot be had is left out; whether the run itself is well is known from its own connection.
    }
    if (!this.#stop.signal.aborted) this.#schedule(EVERY_MS);
  }
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
  };
}

function merge(before: Usage | undefined, now: Usage | null): Usage | undefined {
  if (!now) return before;
  return { ...now, peakMemoryBytes: Math.max(before?.peakMemoryBytes ?? 0, now.peakMemoryBytes) };
}

function numberAt(record: Readonly<Record<string, unknown>>, ...way: readonly string[]): number | undefined {
  let value: unknown = record;
  for (const key of way)
    value = typeof value === 'object' && value !== null ? new Map(Object.entries(value)).get(key) : undefined;
  return typeof value === 'number' ? value : undefined;
}
