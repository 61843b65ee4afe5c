// Tasks by grant: a worker offers its free slots to the gates, and begins what they grant.

import type { Delivery, FleetEngine } from '../engine/engine.ts';
import { parseGrant } from '../tasks/grants.ts';
import type { Grant, Offer } from '../tasks/grants.ts';

const EVERY_MS = 1000;
// In one notice, which PostgreSQL limits to 8,000 bytes.
const MAX_ENDED = 16;
const MAX_HOT = 40;

/** What a worker does with grants. */
export interface GrantedParts {
  readonly engine: FleetEngine;
  readonly worker: string;
  readonly pool: string;
  /** How many slots it has now; 0 while it may begin nothing. */
  readonly slots: () => number;
  /** Whether a task of this tenant may begin. */
  readonly hasSlot: (tenant: string) => boolean;
  /** Tenants that it is ready for. */
  readonly hot: () => readonly string[];
  /** Runs a task; it has called `done` or `release` of its delivery when it settles. */
  readonly perform: (delivery: Delivery) => Promise<void>;
}

/** Begins what gates grant, for as long as it is not stopped. */
export class GrantedTasks {
  readonly #parts: GrantedParts;
  readonly #has = new Map<string, Grant>();
  readonly #ended: Offer['ended'] = [];
  readonly #ticks: NodeJS.Timeout;
  #isDue = false;

  constructor(parts: GrantedParts) {
    this.#parts = parts;
    this.#ticks = setInterval(() => this.offer(), EVERY_MS);
    this.offer();
  }

  /** How many it has. */
  get count(): number {
    return this.#has.size;
  }

  /** A notice to the worker; false where it is no grant. */
  noticed(text: string): boolean {
    const grant = parseGrant(text);
    if (!grant) return false;
    void this.#begin(grant);
    return true;
  }

  /** Says what there is, and what there is room for. */
  offer(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    setImmediate(() => {
      this.#isDue = false;
      const { engine, worker, pool, slots, hot } = this.#parts;
      const has = [...this.#has.values()].map(({ tenant, id, grant }): Offer['has'][number] => [tenant, id, grant]);
      const offer: Offer = { worker, slots: slots(), has, ended: this.#ended, hot: hot().slice(-MAX_HOT) };
      void engine.notify({ pool }, JSON.stringify(offer)).catch(() => undefined);
    });
  }

  /** Offers nothing any more. */
  stop(): void {
    clearInterval(this.#ticks);
  }

  async #begin(grant: Grant): Promise<void> {
    const { tenant, id } = grant;
    const key = `${tenant} ${id}`;
    if (this.#has.has(key)) return;
    const { slots, hasSlot } = this.#parts;
    if (this.#has.size >= slots() || !hasSlot(tenant)) {
      this.#end(grant, EVERY_MS);
      return;
    }
    this.#has.set(key, grant);
    const againMs = await this.#performed(grant).catch(() => EVERY_MS);
    this.#has.delete(key);
    this.#end(grant, againMs);
  }

  async #performed(grant: Grant): Promise<number | null> {
    const { engine, perform } = this.#parts;
    const picked = await engine.pick(grant, grant.pool);
    // It was over before.
    if (!picked) return null;
    let againMs: number | null = null;
    await perform({
      ...picked,
      release: async delayMs => {
        againMs = delayMs;
        await picked.release(delayMs);
      },
    });
    return againMs;
  }

  #end({ tenant, id, grant }: Grant, againMs: number | null): void {
    this.#ended.push([tenant, id, grant, againMs]);
    if (this.#ended.length > MAX_ENDED) this.#ended.shift();
    this.offer();
  }
}
