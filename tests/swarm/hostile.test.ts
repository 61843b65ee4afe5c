// Hostile tasks that speak for their adapter, and what is found of tasks whose orchestrator did not hear their end.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { reconcile } from '../../packages/swarm/src/reconcile.ts';
import { SwarmSandboxes } from '../../packages/swarm/src/sandboxes.ts';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { gitIn, makeRepository, swarmOn, writeTasks } from './swarms.ts';

// Standard output of the adapter, which every process of the task can open: they have the same user.
const SAY = 'say() { printf "%s\\n" "$1" > /proc/$PPID/fd/1; sleep 1; }; ';
const FORGED = (swarm: string, type: string, payload: object): string =>
  JSON.stringify({
    type,
    version: 1,
    timestamp: '2026-11-19T00:00:00.000Z',
    swarmId: swarm,
    containerId: 'acode-00000000-x',
    payload,
  });
const OTHER = '1f0c2d3e-0000-4000-8000-000000000000';

describe.skipIf(withoutEngines)('a swarm with hostile tasks', { timeout: 240_000 }, () => {
  let host: TestHost;
  beforeAll(async () => {
    host = await TestHost.open(mainEngine, { maxConcurrent: 8 });
    makeRepository(host.workspace, { submodule: false });
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it('ends a sandbox that violates the protocol, with its fault, and no other task notices', async () => {
    const completion = { status: 'completed', prUrl: null, errors: [], commit: 'a'.repeat(40) };
    writeTasks(host.workspace, {
      direction: `${SAY}say '${FORGED(OTHER, 'task-request', {})}'; sleep 60`,
      honest: 'echo fine > fine.txt; sleep 4',
      identity: `${SAY}say '${FORGED(OTHER, 'completion', completion)}'; sleep 60`,
      malformed: `${SAY}say 'not a message'; sleep 60`,
      oversized: `head -c 90000 /dev/zero | tr '\\0' x > /proc/$PPID/fd/1; sleep 60`,
    });
    const swarm = await swarmOn(host, { parallel: 5 });
    const { tasks } = await swarm.run();
    const ends = tasks.map(({ id, status, reason, detail }) => [id, status, reason, detail.split(':')[0]]);
    expect(ends).toEqual([
      ['direction', 'failed', 'protocol', 'direction'],
      ['honest', 'completed', null, ''],
      ['identity', 'failed', 'protocol', 'identity'],
      ['malformed', 'failed', 'protocol', 'malformed'],
      ['oversized', 'failed', 'protocol', 'oversized'],
    ]);
    const branches = gitIn(host.workspace, 'for-each-ref', '--format=%(refname:short)', 'refs/heads/acode');
    expect(branches).toBe(`acode/${swarm.id.slice(0, 8)}/honest`);
    await expect.poll(() => host.containers()).toEqual([]);
  });

  it('finds each of the five differences between its record and what there is, and repairs them', async () => {
    gitIn(host.workspace, 'clean', '-fdxq', '.agent');
    writeTasks(host.workspace, {
      completed: 'echo done > done.txt',
      failed: 'false',
      interrupted: 'echo interrupted >> interrupted.txt; [ -e ignored ] || { touch ignored; sleep 60; }',
      started: 'echo started > started.txt',
      zombie: 'echo zombie > zombie.txt',
    });
    const swarm = await swarmOn(host, { parallel: 3 });
    const stop = new AbortController();
    const first = swarm.run(stop.signal);
    await expect
      .poll(
        () =>
          swarm.store
            .read(swarm.id)
            .tasks.slice(0, 3)
            .map(({ status, stories }) => `${status} ${stories[0]?.status}`),
        { timeout: 60_000 },
      )
      .toEqual(['completed completed', 'failed failed', 'running in_progress']);
    stop.abort();
    await first;
    // As they are when an orchestrator is killed before it has written down what it did last.
    await swarm.store.update(swarm.id, record => {
      for (const task of record.tasks) task.status = 'running';
      const [completed, , , started] = record.tasks;
      completed!.branchCommit = null;
      started!.status = 'pending';
    });
    const record = swarm.store.read(swarm.id);
    const fork = record.tasks[4]!.fork;
    if ((await host.acode.forks.list()).some(({ name }) => name === fork)) await host.acode.forks.discard(fork);
    await using held = await host.acode.spawn(['sleep', '60'], {
      taskId: record.tasks[3]!.containerName,
      policy: { image: images.debian },
    });
    const sandboxes = new SwarmSandboxes(host.acode, record);
    const found = await reconcile({ acode: host.acode, sandboxes, record, signal: new AbortController().signal });
    expect(found.map(({ task, finding }) => [task, finding])).toEqual([
      ['completed', 'silent-completion'],
      ['failed', 'silent-failure'],
      ['interrupted', 'unexpected-stop'],
      ['started', 'already-started'],
      ['zombie', 'zombie'],
    ]);
    await held.kill('SIGKILL');
    await held.result;
    const { tasks } = await swarm.run();
    expect(tasks.map(({ id, status }) => [id, status])).toEqual([
      ['completed', 'completed'],
      ['failed', 'failed'],
      ['interrupted', 'completed'],
      ['started', 'completed'],
      ['zombie', 'completed'],
    ]);
    const show = (id: string): string => gitIn(host.workspace, 'show', `acode/${swarm.id.slice(0, 8)}/${id}:${id}.txt`);
    expect([show('interrupted'), show('zombie')]).toEqual(['interrupted', 'zombie']);
    expect(gitIn(host.workspace, 'fsck', '--strict')).toBe('');
  });
});
