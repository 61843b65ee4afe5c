// How many bridges a host has that works for many sessions: those in use, and a few more.

import { beforeEach, describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { Engine, NetworkDetails } from '../engine/index.ts';
import { EngineError } from '../engine/protocol.ts';
import { assertManaged, bridgeRequest, faultOf, SandboxNetworks } from './networks.ts';

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

// Which networks are fit for a sandbox, by what the engine says of them.

const labels = {
  'acode.session': 's',
  'acode.owner': 'o',
  'acode.host': 'h',
  'acode.uid': '1000',
  'acode.created': 'c',
  'acode.expires': 'e',
  'acode.task': 'not of a network',
};
const spec = { identity: { labels } } as unknown as SandboxSpec;
const request = bridgeRequest(spec, 'acode-x-bridge-y', 'n');
const made = { ...request, Id: 'i', Scope: 'local' } as unknown as NetworkDetails;

describe('the managed bridge', () => {
  it('is what was asked for, whichever of the session’s sandboxes asks', () => {
    const later = { identity: { labels: { ...labels, 'acode.created': 'c2', 'acode.expires': 'e2' } } };
    expect(() => assertManaged(made, spec)).not.toThrow();
    expect(() => assertManaged(made, later as unknown as SandboxSpec)).not.toThrow();
    expect(made.Labels).not.toHaveProperty(['acode.task']);
  });

  it.each([
    ['another driver', { Driver: 'macvlan' }],
    ['another scope', { Scope: 'swarm' }],
    ['traffic between containers', { Options: { 'com.docker.network.bridge.enable_icc': 'true' } }],
    ['no word on that traffic', { Options: null }],
    ['IPv6', { EnableIPv6: true }],
    ['others that may attach', { Attachable: true }],
    ['an internal one', { Internal: true }],
    ['the mesh of a swarm', { Ingress: true }],
    ['no labels', { Labels: null }],
    ['another owner', { Labels: { ...made.Labels, 'acode.owner': 'other' } }],
    ['another user', { Labels: { ...made.Labels, 'acode.uid': '0' } }],
  ])('is refused with %s', (_, change) => {
    expect(() => assertManaged({ ...made, ...change }, spec)).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-010' }),
    );
  });
});

describe('a named network', () => {
  const users = { ...made, Labels: {}, Options: {} };
  it.each([
    ['a plain bridge', users, null],
    ['a bridge of somebody who labels', { ...users, Labels: { team: 'x' } }, null],
    ['nothing', undefined, /no network of that name/],
    ['one that acode manages', made, /managed/],
    ['one of another user’s acode', { ...users, Labels: { 'acode.managed': 'true' } }, /managed/],
    ['an overlay', { ...users, Driver: 'overlay', Scope: 'swarm' }, /overlay/],
    ['the host’s', { ...users, Driver: 'host' }, /driver is host/],
    ['a mere configuration', { ...users, ConfigOnly: true }, /driver/],
    ['the default', { ...users, Options: { 'com.docker.network.bridge.default_bridge': 'true' } }, /default/],
  ])('%s', (_, network, rule) => {
    const fault = faultOf(network);
    if (rule === null) expect(fault).toBeNull();
    else expect(fault?.[0]).toMatch(rule);
  });
});
