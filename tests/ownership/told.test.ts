// Every removal is told once, with its reason, and the status says whose the sandboxes are.

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { TestHost, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { exists, gone, leftover, reapersOf, sleeping } from './victims.ts';

const soon = () => AbortSignal.timeout(60_000);
const DEAD = '00000000-0000-4000-8000-000000000000';

describe.skipIf(withoutEngines)('what is removed', () => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await Bench.at(mainEngine);
  });
  afterEach(() => bench[Symbol.asyncDispose]());

  it('by a session itself is told with the reason, a network too', async () => {
    const config = { sandbox: { network: { allow_bridge: true } } };
    const host = await TestHost.open(mainEngine, { config });
    const told: string[] = [];
    host.acode.events.on('ContainerRemoved', ({ reason }) => told.push(`container ${reason}`));
    host.acode.events.on('NetworkRemoved', ({ reason, name }) => told.push(`${name.slice(0, 6)} ${reason}`));
    await host.acode.run(['true'], { policy: { network: 'bridge' } });
    await host[Symbol.asyncDispose]();
    expect(told).toEqual(['container finished', 'acode- finished']);
  });

  it('of a session that dies later goes with a later sweep, although no further command comes', async () => {
    await using host = await TestHost.open(mainEngine, { sweepEveryMs: 1000 });
    await using once = await TestHost.open(mainEngine);
    const told: string[] = [];
    host.acode.events.on('ContainerRemoved', ({ reason, containerId }) => told.push(`${reason} ${containerId}`));
    await host.acode.run(['true']);
    // The first sweep of both is over.
    await once.acode.run(['true']);
    await once.acode.cleanup();
    const { spec } = await host.acode.explain(['true']);
    const labels = { ...spec.identity.labels, 'acode.owner': DEAD, 'acode.session': 'gone' };
    const orphan = await leftover(mainEngine, labels);
    await until(() => told.includes(`orphaned ${orphan}`));
    expect(await exists(mainEngine, orphan)).toBe(false);
  });

  it('of a dead session is a warning with number, session and names, a metric and an event', async () => {
    const warned: unknown[] = [];
    const measured = new Map<string, number>();
    const quiet = (): void => undefined;
    const host = await TestHost.open(mainEngine, {
      logger: {
        debug: quiet,
        info: quiet,
        error: quiet,
        warn: (fields, message) => warned.push({ ...fields, message }),
      },
      metrics: { increment: quiet, observe: quiet, gauge: (name, value) => measured.set(name, value) },
    });
    const { spec } = await host.acode.explain(['true']);
    const labels = { ...spec.identity.labels, 'acode.owner': DEAD, 'acode.session': 'gone' };
    const orphan = await leftover(mainEngine, labels);
    const told: string[] = [];
    host.acode.events.on('ContainerRemoved', ({ reason, containerId }) => told.push(`${reason} ${containerId}`));
    await host.acode.run(['true']);
    await host[Symbol.asyncDispose]();
    expect(told).toContain(`orphaned ${orphan}`);
    expect(measured.get('acode_containers_orphaned')).toBeGreaterThanOrEqual(1);
    expect(warned).toContainEqual(
      expect.objectContaining({
        operation: 'sweep',
        removed: expect.any(Number),
        sessions: expect.arrayContaining(['gone']),
        names: expect.arrayContaining([expect.stringMatching(/\w/)]),
      }),
    );
  });

  it('is nothing where the user switched the sweep off', async () => {
    await bench.configure({ containers: { cleanup_orphans: false } });
    const { child, ended, id } = await sleeping(bench, mainEngine, 'off');
    for (const pid of reapersOf(bench)) process.kill(pid, 'SIGKILL');
    child.kill('SIGKILL');
    await ended;
    expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
    expect(await exists(mainEngine, id)).toBe(true);
    await bench.configure({});
    expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
    expect(await exists(mainEngine, id)).toBe(false);
  });

  it('by a reaper is told once, by the next session', async () => {
    const { child, id } = await sleeping(bench, mainEngine, 'told');
    child.kill('SIGKILL');
    await gone(mainEngine, id);
    await until(() => reapersOf(bench).length === 0);
    const log = async (): Promise<string> => (await bench.call(['run', '--verbose', '--', 'true'])).stderr;
    const told = await log();
    expect(told).toContain('reaped');
    expect(told).toContain(id.slice(0, 12));
    expect(await log()).not.toContain('reaped');
  });

  it('is counted by the status before: owned, orphaned, expired, kept, foreign', async () => {
    // Its own sweep would remove the orphan, sooner or later.
    await bench.configure({ containers: { cleanup_orphans: false } });
    const { child, ended, id } = await sleeping(bench, mainEngine, 'counted');
    const labels = await withEngine(
      mainEngine,
      async direct => (await direct.containers.inspect(id, { signal: soon() })).Config.Labels ?? {},
    );
    const dead = { ...labels, 'acode.owner': DEAD };
    const made = await Promise.all(
      [
        dead,
        { ...labels, 'acode.expires': '2020-01-01T00:00:00Z' },
        { ...dead, 'acode.keep': 'true' },
        { ...dead, 'acode.uid': '4242' },
      ].map(one => leftover(mainEngine, one)),
    );
    try {
      const { stdout } = await bench.call(['sandbox', 'status', '--json']);
      const { sandboxes } = JSON.parse(stdout.toString()) as { sandboxes: Record<string, number> };
      // Other tests’ sandboxes are of other runtime directories, and so foreign.
      expect(sandboxes).toMatchObject({ running: expect.any(Number), owned: 1, orphaned: 1, expired: 1, kept: 1 });
      expect(sandboxes['foreign']).toBeGreaterThanOrEqual(1);
    } finally {
      child.kill('SIGTERM');
      await withEngine(mainEngine, async direct => {
        for (const one of made) await direct.containers.remove(one, { force: true, signal: soon() });
      });
      await ended;
    }
  });
});
