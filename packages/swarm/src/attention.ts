// Attention: which of the tasks that run need a person, by what was heard of them and by what their proxies refused.

import type { Acode } from '@acode/sandbox';
import type { Attention, TaskRecord } from './record.ts';

const MAX_GRANTS = 20;

/** What a person is needed for now, and what could be granted. */
export interface Needed {
  readonly attention: Extract<Attention, 'blocked-by-policy' | 'idle'> | null;
  readonly waitsFor: TaskRecord['waitsFor'];
}

/** Watches the tasks of one swarm. */
export class AttentionWatch {
  readonly #network: Pick<Acode['network'], 'running' | 'pending'>;
  readonly #idleMs: number;
  readonly #now: () => number;
  readonly #heard = new Map<string, number>();

  constructor(network: Pick<Acode['network'], 'running' | 'pending'>, idleMs: number, now: () => number = Date.now) {
    this.#network = network;
    this.#idleMs = idleMs;
    this.#now = now;
  }

  /** Notes that a sandbox is made for a task: nothing can be heard of it before. */
  begins(id: string): void {
    this.#heard.delete(id);
  }

  /** Notes that a task printed something, or changed a file. */
  heard(id: string): void {
    this.#heard.set(id, this.#now());
  }

  /** What each of these tasks needs. */
  async look(tasks: readonly TaskRecord[]): Promise<ReadonlyMap<string, Needed>> {
    const refused = await this.#refused(tasks);
    return new Map(
      tasks.map(({ id, containerName }) => {
        const waitsFor = refused.get(containerName) ?? [];
        const isIdle = this.#now() - (this.#heard.get(id) ?? this.#now()) > this.#idleMs;
        const attention = waitsFor.length > 0 ? 'blocked-by-policy' : isIdle ? 'idle' : null;
        return [id, { attention, waitsFor }] as const;
      }),
    );
  }

  // The audit log is read only if a proxy of one of them has refused something.
  async #refused(tasks: readonly TaskRecord[]): Promise<ReadonlyMap<string, TaskRecord['waitsFor']>> {
    const found = new Map<string, TaskRecord['waitsFor']>();
    const names = new Set(
      tasks.filter(({ limits, agent }) => limits.allow.length > 0 || agent !== null).map(one => one.containerName),
    );
    if (names.size === 0) return found;
    const isRefused = (await this.#network.running()).some(
      ({ taskId, connections }) => names.has(taskId ?? '') && connections.some(({ verdict }) => verdict === 'denied'),
    );
    if (!isRefused) return found;
    for (const { id, host, port, entry, taskId = '', isRunning } of await this.#network.pending()) {
      const list = found.get(taskId) ?? [];
      if (!isRunning || !names.has(taskId) || list.length >= MAX_GRANTS) continue;
      found.set(taskId, [...list, { id, host, port, entry }]);
    }
    return found;
  }
}
