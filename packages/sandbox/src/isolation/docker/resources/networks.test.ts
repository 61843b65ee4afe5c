// How many bridges a host has that works for many sessions: those in use, and a few more.

import { beforeEach, describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { Engine } from '../engine/index.ts';
import { EngineError } from '../engine/error.ts';
import { SandboxNetworks } from './networks.ts';

const { signal } = new AbortController();

/** The networks of an engine, as far as they are made, looked at and removed. */
class FakeEngine {
  readonly there = new Map<string, object>();
  made = 0;

  readonly networks = {
    create: async (body: object): Promise<string> => {
      this.made += 1;
      const id = `n${this.made}`;
      this.there.set(id, { ...body, Id: id, Scope: 'local' });
      return id;
    },
    inspect: async (id: string): Promise<object> => {
      const found = this.there.get(id);
      if (!found) throw new EngineError({ kind: 'status', status: 404, operation: 'GET', detail: 'none' });
      return found;
    },
    remove: async (id: string): Promise<void> => void this.there.delete(id),
  };
}

describe('the bridges of many sessions', () => {
  let engine: FakeEngine;
  let networks: SandboxNetworks;
  let now: number;
  let kept: Promise<unknown>[];
  beforeEach(() => {
    engine = new FakeEngine();
    now = 0;
    kept = [];
    networks = new SandboxNetworks({
      engine: engine as unknown as Engine,
      clock: { now: () => now, monotonic: () => now, after: (_, action) => (action(), () => undefined) },
      closing: signal,
      keep: work => void kept.push(work.catch(() => undefined)),
      making: (_, make) => make(),
      observer: { networkRemoved: () => undefined },
    });
  });

  const spec = (session: string, sandboxId = session): SandboxSpec =>
    ({
      network: { kind: 'bridge' },
      identity: { sandboxId, labels: { 'acode.session': session } },
    }) as unknown as SandboxSpec;
  const settled = async (): Promise<void> => void (await Promise.all(kept));

  it('are removed when their sandboxes are gone, all but the last few', async () => {
    for (let at = 0; at < 20; at += 1) {
      now += 1;
      await networks.choose(spec(`s${at}`), signal);
      networks.release(spec(`s${at}`));
    }
    await settled();
    expect(engine.made).toBe(20);
    expect([...engine.there.keys()]).toEqual(['n17', 'n18', 'n19', 'n20']);
    expect(await networks.choose(spec('s19'), signal)).toMatchObject({ id: 'n20' });
  });

  it('are never removed while a sandbox is on them, however many there are', async () => {
    for (let at = 0; at < 20; at += 1) await networks.choose(spec(`s${at}`), signal);
    await networks.choose(spec('s0', 'second'), signal);
    networks.release(spec('s0'));
    await settled();
    expect(engine.there.size).toBe(20);
    expect(engine.made).toBe(20);
  });

  it('go when they were idle for minutes', async () => {
    await networks.choose(spec('old'), signal);
    networks.release(spec('old'));
    now += 6 * 60 * 1000;
    await networks.choose(spec('new'), signal);
    await settled();
    expect([...engine.there.keys()]).toEqual(['n2']);
    expect(await networks.choose(spec('old'), signal)).toMatchObject({ id: 'n3' });
  });

  it('that are too old for a new sandbox go with their last one', async () => {
    await networks.choose(spec('s', 'first'), signal);
    now += 2 * 3600 * 1000;
    expect(await networks.choose(spec('s', 'second'), signal)).toMatchObject({ id: 'n2' });
    await settled();
    expect(engine.there.size).toBe(2);
    networks.release(spec('s', 'first'));
    await settled();
    expect([...engine.there.keys()]).toEqual(['n2']);
  });

  it('are all gone when the host closes', async () => {
    for (let at = 0; at < 3; at += 1) await networks.choose(spec(`s${at}`), signal);
    expect(await networks.close()).toEqual([]);
    expect(engine.there.size).toBe(0);
  });
});
