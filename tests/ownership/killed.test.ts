// Whatever becomes of the client, its sandboxes go, and nobody else’s do.

import { mkdirSync, rmSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { engines, withEngine, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { exists, gone, leftover, reapersOf, residentKiB, sleeping, sockets } from './victims.ts';

const soon = () => AbortSignal.timeout(60_000);

describe.skipIf(withoutEngines).each(engines)('when a client on $name is killed', engine => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await Bench.at(engine);
  });
  afterEach(() => bench[Symbol.asyncDispose]());

  it('the reaper that waits is small, and it ends when its work is done', async () => {
    const { child, id } = await sleeping(bench, engine, 'small');
    const [reaper] = reapersOf(bench);
    expect(reaper).toBeDefined();
    expect(residentKiB(reaper ?? 0)).toBeLessThan(5 * 1024);
    child.kill('SIGKILL');
    await gone(engine, id);
    await until(() => reapersOf(bench).length === 0);
    expect(sockets(bench)).toEqual([]);
  });

  it('nothing is started to clean up after a command that ended by itself', async () => {
    const { status } = await bench.call(['run', '--', 'true']);
    expect(status).toBe(0);
    await until(() => reapersOf(bench).length === 0);
    expect(sockets(bench)).toEqual([]);
  });

  it('together with its reaper, the next command removes the rest', async () => {
    const { child, ended, id } = await sleeping(bench, engine, 'both');
    for (const pid of reapersOf(bench)) process.kill(pid, 'SIGKILL');
    child.kill('SIGKILL');
    await ended;
    // The control: with both gone, nobody removes it.
    await new Promise(resolve => setTimeout(resolve, 1500));
    expect(await exists(engine, id)).toBe(true);
    expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
    expect(await exists(engine, id)).toBe(false);
    expect(sockets(bench)).toEqual([]);
  });

  it('the sandboxes of another session that lives are not touched, not even by its sweep', async () => {
    const peer = await sleeping(bench, engine, 'peer');
    const victim = await sleeping(bench, engine, 'victim');
    victim.child.kill('SIGKILL');
    await gone(engine, victim.id);
    expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
    expect((await bench.call(['sandbox', 'cleanup', '--force'])).status).toBe(0);
    expect(await exists(engine, peer.id)).toBe(true);
    expect(peer.child.exitCode).toBeNull();
    peer.child.kill('SIGTERM');
    await peer.ended;
    expect(await exists(engine, peer.id)).toBe(false);
  });

  it('a session that lives is not taken for dead because its runtime directory was made anew', async () => {
    const peer = await sleeping(bench, engine, 'peer');
    const runtime = bench.env['XDG_RUNTIME_DIR'] ?? '';
    rmSync(runtime, { recursive: true });
    mkdirSync(runtime);
    expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
    expect((await bench.call(['sandbox', 'cleanup', '--force'])).status).toBe(0);
    expect(await exists(engine, peer.id)).toBe(true);
    peer.child.kill('SIGKILL');
    await gone(engine, peer.id);
  });

  it('what is past its hard maximum goes at the next sweep; another user’s and another host’s stay', async () => {
    const { child, ended, id } = await sleeping(bench, engine, 'labels');
    const labels = await withEngine(
      engine,
      async direct => (await direct.containers.inspect(id, { signal: soon() })).Config.Labels ?? {},
    );
    const dead = { ...labels, 'acode.owner': '00000000-0000-4000-8000-000000000000' };
    const past = { 'acode.expires': '2020-01-01T00:00:00Z' };
    const expired = await leftover(engine, { ...dead, ...past, 'acode.keep': 'true' });
    const kept = await leftover(engine, { ...dead, 'acode.keep': 'true' });
    const orphan = await leftover(engine, dead);
    const others = await leftover(engine, { ...dead, ...past, 'acode.uid': '4242' });
    const elsewhere = await leftover(engine, { ...dead, 'acode.host': 'another' });
    try {
      expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
      const left = await Promise.all([expired, orphan, kept, others, elsewhere].map(one => exists(engine, one)));
      expect(left).toEqual([false, false, true, true, true]);
    } finally {
      child.kill('SIGTERM');
      await withEngine(engine, async direct => {
        for (const one of [expired, orphan, kept, others, elsewhere])
          await direct.containers.remove(one, { force: true, signal: soon() });
      });
      await ended;
    }
  });
});
