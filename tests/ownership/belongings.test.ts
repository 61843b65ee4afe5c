// Networks and volumes are removed like sandboxes: with their session, and never those of another session.

import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { engines, withEngine, withoutEngines } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { gone, reapersOf, sleeping } from './victims.ts';

const soon = () => AbortSignal.timeout(60_000);
const DEAD = '00000000-0000-4000-8000-000000000000';

describe.skipIf(withoutEngines).each(engines)('networks and volumes on $name', engine => {
  let bench: Bench;
  let made: string[];
  beforeEach(async () => {
    bench = await Bench.at(engine);
    await bench.configure({ network: { allow_bridge: true } });
    made = [];
  });
  afterEach(async () => {
    await withEngine(engine, async direct => {
      for (const name of made) {
        await direct.volumes.remove(name, { signal: soon() });
        await direct.networks.remove(name, { signal: soon() });
      }
    });
    await bench[Symbol.asyncDispose]();
  });

  it('go with the session that was killed', async () => {
    const { child, ended, id } = await sleeping(bench, engine, 'bridge', ['--network', 'bridge']);
    const labels = await labelsOf(engine, id);
    const volume = await make('volume', { ...labels });
    const owner = `acode.owner=${labels['acode.owner']}`;
    expect(await belongings(engine, owner)).toHaveLength(2);
    child.kill('SIGKILL');
    await ended;
    await gone(engine, id);
    await until(() => reapersOf(bench).length === 0);
    expect(await belongings(engine, owner)).toEqual([]);
    expect(made).toContain(volume);
  });

  it('of dead sessions go at the next command; those of the living, of others and what is kept stay', async () => {
    const { child, ended, id } = await sleeping(bench, engine, 'living', ['--network', 'bridge']);
    const { 'acode.session': _, ...living } = await labelsOf(engine, id);
    const dead = { ...living, 'acode.owner': DEAD };
    const past = { 'acode.expires': '2020-01-01T00:00:00Z' };
    const kinds = ['network', 'volume'] as const;
    const of = (labels: Record<string, string>) => Promise.all(kinds.map(kind => make(kind, labels)));
    const orphans = [...(await of(dead)), ...(await of({ ...dead, ...past, 'acode.keep': 'true' }))];
    const spared = [
      ...(await of(living)),
      ...(await of({ ...dead, 'acode.uid': '4242', ...past })),
      ...(await of({ ...dead, 'acode.host': 'another' })),
      ...(await of({ ...dead, 'acode.keep': 'true' })),
    ];
    expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
    const left = await names(engine);
    expect(orphans.filter(name => left.has(name))).toEqual([]);
    expect(spared.filter(name => !left.has(name))).toEqual([]);

    const kept = spared.at(-1) ?? '';
    const dry = await bench.call(['sandbox', 'cleanup', '--volumes', '--dry-run', '--json']);
    expect(JSON.parse(dry.stdout.toString())).toMatchObject({ belongings: { removed: [{ name: kept }], failed: [] } });
    expect((await names(engine)).has(kept)).toBe(true);
    expect((await bench.call(['sandbox', 'cleanup', '--volumes'])).stdout.toString()).toContain(kept);
    expect((await names(engine)).has(kept)).toBe(false);
    child.kill('SIGTERM');
    await ended;
  });

  async function make(kind: 'network' | 'volume', labels: Record<string, string>): Promise<string> {
    const Name = `acode-test-${randomUUID()}`;
    made.push(Name);
    await withEngine(engine, async direct => {
      if (kind === 'volume') await direct.volumes.create({ Name, Labels: labels }, { signal: soon() });
      else await direct.networks.create({ Name, Driver: 'bridge', Internal: true, Labels: labels }, { signal: soon() });
    });
    return Name;
  }
});

async function labelsOf(engine: TestEngine, id: string): Promise<Record<string, string>> {
  return withEngine(
    engine,
    async direct => (await direct.containers.inspect(id, { signal: soon() })).Config.Labels ?? {},
  );
}

async function belongings(engine: TestEngine, label: string): Promise<string[]> {
  return withEngine(engine, async direct => {
    const terms = { labels: [label], signal: soon() };
    const [networks, volumes] = [await direct.networks.list(terms), await direct.volumes.list(terms)];
    return [...networks, ...volumes].map(({ Name }) => Name);
  });
}

async function names(engine: TestEngine): Promise<Set<string>> {
  return new Set(await belongings(engine, 'acode.managed=true'));
}
