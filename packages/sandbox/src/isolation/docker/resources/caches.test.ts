// What becomes of the volumes for caches where an engine answers late, not at all, or with another’s.
//
// The volumes are in memory: an engine that can be started cannot be made to lose a reply at a chosen moment.

import { beforeEach, describe, expect, it } from 'vitest';
import type { CacheTool } from '../../../contract/caches.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { cacheSpec } from '../../../policy/caches.ts';
import { SandboxCaches } from './caches.ts';
import type { Engine, VolumeDetails } from '../engine/index.ts';
import { EngineError } from '../engine/protocol.ts';

interface Body {
  readonly Name: string;
  readonly Labels: Record<string, string>;
  readonly DriverOpts?: Record<string, string>;
}

const timeout = new EngineError({ kind: 'timeout', operation: 'POST /volumes/create', detail: 'no answer' });
const refusal = new EngineError({ kind: 'status', status: 400, operation: 'POST /volumes/create', detail: 'no' });
const missing = new EngineError({ kind: 'status', status: 404, operation: 'GET /volumes', detail: 'none' });

/** Volumes as an engine has them: a name that is taken is given back as it is. */
class FakeEngine {
  readonly there = new Map<string, VolumeDetails>();
  readonly owned: string[] = [];
  /** What happens to a create before the volume is there. */
  before: (body: Body) => void | Promise<void> = () => undefined;
  /** What happens before a look at the volumes there are. */
  look: () => void = () => undefined;

  put({ Name, Labels, DriverOpts = {} }: Body): VolumeDetails {
    const volume = { Name, Driver: 'local', Labels, Options: DriverOpts, Mountpoint: `/volumes/${Name}/_data` };
    this.there.set(Name, volume);
    return volume;
  }

  readonly volumes = {
    create: async (body: Body): Promise<VolumeDetails> => {
      await this.before(body);
      return this.there.get(body.Name) ?? this.put(body);
    },
    inspect: async (name: string): Promise<VolumeDetails> => {
      const found = this.there.get(name);
      if (!found) throw missing;
      return found;
    },
    list: async ({ labels }: { labels: readonly string[] }): Promise<VolumeDetails[]> => {
      this.look();
      const wanted = labels.map(label => label.split('=') as [string, string]);
      return [...this.there.values()].filter(({ Labels }) => wanted.every(([name, value]) => Labels?.[name] === value));
    },
    remove: async (name: string): Promise<void> => void this.there.delete(name),
  };

  readonly archive = {
    put: async (_: string, target: string): Promise<void> => void this.owned.push(target),
  };
}

const UID = '1001';
const cacheName = (tool: CacheTool): string => `acode-cache-${tool}-${UID}`;
const planned = (sandboxId: string, fill: boolean, ...tools: readonly CacheTool[]): SandboxSpec =>
  ({
    identity: { sandboxId, labels: { 'acode.uid': UID, 'acode.owner': sandboxId, 'acode.host': 'h' } },
    user: { uid: 1001, gid: 1001 },
    caches: tools.map(tool => cacheSpec({ tool, volume: cacheName(tool) }, fill)),
  }) as unknown as SandboxSpec;

function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => undefined;
  const opened = new Promise<void>(resolve => (open = resolve));
  return { opened, open };
}

describe('the volumes for caches', () => {
  let engine: FakeEngine;
  let caches: SandboxCaches;
  let now: number;
  let kept: Promise<unknown>[];
  const { signal } = new AbortController();
  beforeEach(() => {
    engine = new FakeEngine();
    now = 0;
    kept = [];
    const clock = {
      now: () => now,
      monotonic: () => now,
      after: (ms: number, action: () => void) => {
        now += ms;
        setImmediate(action);
        return () => undefined;
      },
    };
    caches = new SandboxCaches({
      engine: engine as unknown as Engine,
      clock,
      closing: signal,
      keep: work => void kept.push(work.catch(() => undefined)),
      making: (_, make) => make(),
    });
    for (const tool of ['npm', 'pip'] as const)
      engine.put({
        Name: cacheName(tool),
        Labels: { 'acode.managed': 'true', 'acode.cache': tool, 'acode.uid': UID },
      });
  });

  const settled = async (): Promise<void> => {
    for (let seen = -1; seen !== kept.length;) {
      seen = kept.length;
      await Promise.all(kept);
    }
  };
  const others = (): string[] => [...engine.there.keys()].filter(name => !name.match(/^acode-cache-\w+-\d+$/)).sort();
  const foreignLease = (): void =>
    void engine.put({
      Name: `${cacheName('npm')}.filling`,
      Labels: { 'acode.cache-filling': cacheName('npm'), 'acode.nonce': 'another’s' },
    });
  const holder = (): unknown => engine.there.get(`${cacheName('npm')}.filling`)?.Labels?.['acode.nonce'];

  it('are made for each sandbox and gone with it: the control', async () => {
    const [reader, filler] = [planned('r', false, 'npm', 'pip'), planned('f', true, 'npm')];
    expect(await caches.attach(reader, signal)).toMatchObject([
      { target: '/cache/npm', volume: 'acode-r-npm-layer', labels: { 'acode.cache-layer': cacheName('npm') } },
      { target: '/cache/pip', volume: 'acode-r-pip-layer' },
    ]);
    expect(others()).toHaveLength(6);
    caches.release(reader);
    await settled();
    expect(others()).toEqual([]);
    expect(await caches.attach(filler, signal)).toMatchObject([{ volume: cacheName('npm'), layer: null }]);
    expect(others()).toEqual([`${cacheName('npm')}.filling`]);
    expect(await caches.close()).toEqual([]);
    expect(others()).toEqual([]);
  });

  it('have a directory for the user inside in layers too: the cache below may be one that was never filled', async () => {
    await caches.created(planned('r', false, 'npm', 'pip'), 'container', signal);
    expect(engine.owned).toEqual(['/cache/npm', '/cache/pip']);
  });

  it('are all given up where one cannot be had, also those whose create is answered afterwards', async () => {
    const { opened, open } = gate();
    engine.before = ({ Name }) => {
      if (Name === 'acode-r-pip-upper') throw refusal;
      return Name.startsWith('acode-r-npm') ? opened : undefined;
    };
    const reader = planned('r', false, 'npm', 'pip');
    await expect(caches.attach(reader, signal)).rejects.toMatchObject({ code: 'ACODE-SBX-018' });
    caches.release(reader);
    open();
    await settled();
    expect(others()).toEqual([]);
    expect(await caches.close()).toEqual([]);
  });

  it('are left at once by a caller who cancels, and go when the engine has answered', async () => {
    const { opened, open } = gate();
    engine.before = () => opened;
    const leaving = new AbortController();
    const attaching = caches.attach(planned('r', false, 'npm'), leaving.signal);
    leaving.abort(new Error('enough'));
    await expect(attaching).rejects.toThrow('enough');
    open();
    await settled();
    expect(others()).toEqual([]);
  });

  it('never take another run’s lease with them, whatever fails beside it', async () => {
    foreignLease();
    const { opened, open } = gate();
    engine.before = ({ Name }) => {
      if (Name === `${cacheName('pip')}.filling`) throw refusal;
      return opened;
    };
    const filler = planned('f', true, 'npm', 'pip');
    await expect(caches.attach(filler, signal)).rejects.toMatchObject({ code: 'ACODE-SBX-018' });
    caches.release(filler);
    open();
    await settled();
    expect(await caches.close()).toEqual([]);
    expect(others()).toEqual([`${cacheName('npm')}.filling`]);
    expect(holder()).toBe('another’s');
  });

  it('never take a lease that was ours and is another’s by now', async () => {
    const filler = planned('f', true, 'npm');
    await caches.attach(filler, signal);
    foreignLease();
    caches.release(filler);
    await settled();
    expect(holder()).toBe('another’s');
  });

  it('are found and removed where the engine gave no answer and made them afterwards', async () => {
    const late: Body[] = [];
    engine.before = body => {
      if (!/\.filling$|-upper$/.test(body.Name)) return;
      late.push(body);
      throw timeout;
    };
    engine.look = () => {
      if (now < 1000) return;
      for (const body of late.splice(0)) engine.put(body);
    };
    for (const spec of [planned('f', true, 'npm'), planned('r', false, 'pip')]) {
      await expect(caches.attach(spec, signal)).rejects.toMatchObject({ code: 'ACODE-SBX-018' });
      caches.release(spec);
    }
    expect(late).toHaveLength(2);
    await settled();
    now += 1000;
    engine.look();
    expect({ late, left: others() }).toEqual({ late: [], left: [] });
    expect(await caches.close()).toEqual([]);
  });

  it('are another’s where the name was taken, and neither used nor removed', async () => {
    engine.put({ Name: 'acode-r-npm-upper', Labels: { 'acode.managed': 'true' } });
    const reader = planned('r', false, 'npm');
    await expect(caches.attach(reader, signal)).rejects.toMatchObject({
      code: 'ACODE-SBX-010',
      message: expect.stringContaining('is another’s') as string,
    });
    await settled();
    expect(others()).toEqual(['acode-r-npm-upper']);
  });

  describe('of a reader that was planned before a fill began', () => {
    it('are not made over a cache that is filled: the run is refused, and the fill does not wait for it', async () => {
      engine.before = ({ Name }) => {
        if (Name === 'acode-r-npm-upper') foreignLease();
      };
      await expect(caches.attach(planned('r', false, 'npm'), signal)).rejects.toMatchObject({
        code: 'ACODE-SBX-001',
        message: expect.stringContaining('begun to fill') as string,
      });
      await settled();
      expect(others()).toEqual([`${cacheName('npm')}.filling`]);
    });

    it('are made when the fill has ended, and the fill sees none of them meanwhile', async () => {
      foreignLease();
      const seen: string[][] = [];
      const { list } = engine.volumes;
      engine.volumes.list = async request => {
        // The lease is there for the first looks; from then on it is gone.
        seen.push(others().filter(name => name.startsWith('acode-r-')));
        if (seen.length === 4) engine.there.delete(`${cacheName('npm')}.filling`);
        return list(request);
      };
      expect(await caches.attach(planned('r', false, 'npm'), signal)).toMatchObject([{ volume: 'acode-r-npm-layer' }]);
      expect(seen.slice(1, 4)).toEqual([[], [], []]);
    });
  });
});
