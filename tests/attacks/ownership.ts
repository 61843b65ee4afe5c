// What F14 to F16 look at: a client that dies, a peer that lives, and another user on the same engine.

import { expect } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { exists, gone, leftover, reapersOf, sleeping } from '../ownership/victims.ts';
import { withEngine } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import type { Finding } from './attack.ts';

const DEAD = '00000000-0000-4000-8000-000000000000';
const soon = () => AbortSignal.timeout(60_000);

/** Kills a client in the middle of a command. */
export async function clientKilled(engine: TestEngine): Promise<Finding> {
  await using bench = await Bench.at(engine);
  const { child, id } = await sleeping(bench, engine, 'killed');
  const before = performance.now();
  child.kill('SIGKILL');
  await gone(engine, id);
  const ms = performance.now() - before;

  const control = await sleeping(bench, engine, 'without-reaper');
  for (const pid of reapersOf(bench)) process.kill(pid, 'SIGKILL');
  control.child.kill('SIGKILL');
  await new Promise(resolve => setTimeout(resolve, 1000));
  expect(await exists(engine, control.id)).toBe(true);
  expect((await bench.call(['run', '--', 'echo', 'fine'])).stdout.toString()).toBe('fine\n');
  expect(await exists(engine, control.id)).toBe(false);
  return {
    observed: `its sandbox was gone after ${Math.round(ms)} ms`,
    control: 'with its reaper killed too it lives on, until the next command removes it',
  };
}

/** Lets a reaper, a sweep and a forced cleanup work beside a session that lives. */
export async function livePeer(engine: TestEngine): Promise<Finding> {
  await using bench = await Bench.at(engine);
  const peer = await sleeping(bench, engine, 'peer');
  const victim = await sleeping(bench, engine, 'victim');
  victim.child.kill('SIGKILL');
  await gone(engine, victim.id);
  const twin = await leftover(engine, { ...(await labelsOf(engine, peer.id)), 'acode.owner': DEAD });
  expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
  expect((await bench.call(['sandbox', 'cleanup', '--force'])).status).toBe(0);
  expect(await exists(engine, peer.id)).toBe(true);
  expect(peer.child.exitCode).toBeNull();
  expect(await exists(engine, twin)).toBe(false);
  peer.child.kill('SIGTERM');
  await peer.ended;
  return {
    observed: 'the peer’s command runs on through reaper, sweep and cleanup --force',
    control: 'a container with the peer’s labels and a dead owner is removed',
  };
}

/** Lets every kind of cleaning loose on an engine that another user has sandboxes on. */
export async function otherUser(engine: TestEngine): Promise<Finding> {
  await using bench = await Bench.at(engine);
  const { child, ended, id } = await sleeping(bench, engine, 'labels');
  const labels: Record<string, string> = {
    ...(await labelsOf(engine, id)),
    'acode.owner': DEAD,
    'acode.expires': '2020-01-01T00:00:00Z',
  };
  const theirs = await leftover(engine, { ...labels, 'acode.uid': '4242' });
  const mine = await leftover(engine, labels);
  try {
    expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
    expect((await bench.call(['sandbox', 'cleanup', '--force', '--all-sessions'])).status).toBe(0);
    expect([await exists(engine, theirs), await exists(engine, mine)]).toEqual([true, false]);
  } finally {
    child.kill('SIGTERM');
    await ended;
    await withEngine(engine, direct => direct.containers.remove(theirs, { force: true, signal: soon() }));
  }
  return {
    observed: 'an expired orphan of another user survives sweep and cleanup --force --all-sessions',
    control: 'the same with one’s own user id is removed',
  };
}

async function labelsOf(engine: TestEngine, id: string): Promise<Record<string, string>> {
  return withEngine(
    engine,
    async direct => (await direct.containers.inspect(id, { signal: soon() })).Config.Labels ?? {},
  );
}
