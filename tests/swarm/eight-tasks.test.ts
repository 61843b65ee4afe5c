// Eight tasks at four slots: each ends as it must, and none sees another.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestHost, mainEngine, withoutEngines } from '../support/engines.ts';
import { figure } from '../support/waiting.ts';
import { gitIn, makeRepository, swarmOn, writeTasks } from './swarms.ts';
import type { TestSwarm } from './swarms.ts';

const STATE = join(process.env['XDG_STATE_HOME'] ?? '', 'acode');

// What a hostile task tries: files of the host, forks of other tasks, the engine, a network; and what host tools would run.
const ESCAPE = `
set +e
out=found.txt; : > $out
for path in ${STATE} /run/acode-engines /var/run/docker.sock /proc/1/root/var/tmp/acode-* /workspace/../var/tmp/acode-*; do
  ls -d "$path" >/dev/null 2>&1 && echo "path $path" >> $out
done
grep -rl 'secret of another task' / --include=secret.txt 2>/dev/null | sed 's/^/secret /' >> $out
(exec 3<>/dev/tcp/127.0.0.1/5000) 2>/dev/null && echo network >> $out
touch /opt/acode-swarm/adapter.mjs 2>/dev/null && echo adapter >> $out
mkdir -p .husky .git/hooks && printf '#!/bin/sh\\ntouch /var/tmp/acode-swarm-marker\\n' | tee .husky/post-checkout .git/hooks/post-checkout > .git/hooks/post-merge
chmod +x .husky/post-checkout .git/hooks/*
git config core.fsmonitor .husky/post-checkout; git config filter.x.smudge .husky/post-checkout; git config merge.x.driver .husky/post-checkout
printf '* filter=x merge=x\\n' > .gitattributes
ln -s /etc/passwd link-out
true
`;

const edit = (line: number, text: string): string =>
  `sed -i '${line}s/return .*;/return ${text};/' src/lib.c && sleep 6`;

describe.skipIf(withoutEngines)('a swarm of eight tasks', { timeout: 240_000 }, () => {
  let host: TestHost;
  let swarm: TestSwarm;
  beforeAll(async () => {
    host = await TestHost.open(mainEngine, { maxConcurrent: 8 });
    makeRepository(host.workspace);
    // What begins together takes about as long: a slot that has nothing to do is no fault of the swarm.
    writeTasks(host.workspace, {
      'a-same': edit(7, '70'),
      'b-same': edit(7, '71'),
      'c-plain': {
        title: 'Plain',
        command: 'echo "$ACODE_STORY_ID" >> src/a.txt && echo "secret of another task" > secret.txt && sleep 3',
        stories: [
          { title: 'one', acceptance: ['grep -q US-001 src/a.txt'] },
          { title: 'two', acceptance: ['grep -q US-002 src/a.txt', 'git diff --quiet HEAD -- src/lib.c'] },
        ],
      },
      'd-hangs': { title: 'Hangs', command: 'sleep 1000', stories: [{ title: 'x' }], policy: { timeout: '8s' } },
      'e-escape': `${ESCAPE}sleep 5`,
      'f-fails': {
        title: 'Fails',
        command: 'echo no > no.txt; sleep 5',
        stories: [{ title: 'x', acceptance: ['test -e yes.txt'] }],
      },
      'g-flood': {
        title: 'Floods',
        command: 'yes flood | head -c 60000000; yes err | head -c 20000000 >&2; echo done > flood.txt; sleep 3',
        stories: [{ title: 'x' }],
      },
      'h-new': 'echo new > new.txt && cat vendor/part/part.txt >> new.txt && sleep 5',
    });
    swarm = await swarmOn(host);
    await swarm.run();
  }, 240_000);
  afterAll(() => host[Symbol.asyncDispose]());

  it('ends each task in its state, with the reason', () => {
    const { tasks, state } = swarm.store.read(swarm.id);
    expect(state).toBe('finished');
    expect(
      Object.fromEntries(tasks.map(({ id, status, reason, attention }) => [id, [status, reason, attention]])),
    ).toEqual({
      'a-same': ['completed', null, null],
      'b-same': ['completed', null, null],
      'c-plain': ['completed', null, null],
      'd-hangs': ['failed', 'deadline', null],
      'e-escape': ['completed', null, 'needs-review'],
      'f-fails': ['failed', 'agent', null],
      'g-flood': ['completed', null, null],
      'h-new': ['completed', null, null],
    });
  });

  it('makes exactly the branches of what succeeded, and nothing of theirs has run on the host', () => {
    const name = swarm.id.slice(0, 8);
    const branches = gitIn(host.workspace, 'for-each-ref', '--format=%(refname:short)', 'refs/heads')
      .split('\n')
      .sort();
    expect(branches).toEqual([
      ...['a-same', 'b-same', 'c-plain', 'g-flood', 'h-new'].map(id => `acode/${name}/${id}`),
      'main',
    ]);
    expect(gitIn(host.workspace, 'log', '--format=%s', `main..acode/${name}/c-plain`)).toBe('Plain: two\nPlain: one');
    expect(gitIn(host.workspace, 'show', `acode/${name}/h-new:new.txt`)).toBe('new\npart');
    expect(gitIn(host.workspace, 'show', `acode/${name}/a-same:src/lib.c`)).toContain('return 70;');
    expect(gitIn(host.workspace, 'fsck', '--strict')).toBe('');
    expect(gitIn(host.workspace, 'status', '--porcelain', '-uno')).toBe('');
    expect(existsSync('/var/tmp/acode-swarm-marker')).toBe(false);
  });

  it('shows the task that tried to escape nothing of the host and of other tasks', async () => {
    const task = swarm.store.read(swarm.id).tasks.find(({ id }) => id === 'e-escape');
    const { stdout } = await host.acode.run(['cat', 'found.txt'], {
      policy: { fork: task?.fork ?? '', image: task ? swarm.store.read(swarm.id).image! : '' },
    });
    expect(stdout).toBe('');
    expect(task?.riskyChanges.map(({ path }) => path)).toContain('.husky/post-checkout');
  });

  it('reports the overlap of two tasks while both run', () => {
    const events = swarm.events();
    const overlap = events.findIndex(
      ({ event, tasks }) => event === 'overlap' && JSON.stringify(tasks) === '["a-same","b-same"]',
    );
    expect(events[overlap]).toMatchObject({ path: 'src/lib.c', from: 7, to: 7, running: true });
    const ended = events.findIndex(
      ({ event, task, status }) => event === 'task' && String(task).endsWith('-same') && status === 'completed',
    );
    expect(overlap).toBeGreaterThan(0);
    expect(overlap).toBeLessThan(ended);
  });

  it('takes little longer than its work at four slots', () => {
    const { tasks, parallel } = swarm.store.read(swarm.id);
    const at = (name: string): number => Date.parse(swarm.events().find(({ event }) => event === name)?.at ?? '');
    const work = tasks.reduce((sum, { elapsedMs }) => sum + elapsedMs, 0) / parallel;
    expect(work).toBeGreaterThan(0);
    figure(
      'eight tasks at four slots, against 1.2 × work ÷ slots',
      at('swarm-finished') - at('task'),
      Math.round(1.2 * work),
    );
  });

  it('leaves no sandbox behind, and a readable copy that is its own', async () => {
    await expect.poll(() => host.containers()).toEqual([]);
    expect(swarm.store.copyState(host.workspace).state).toBe('own');
    const copy: unknown = JSON.parse(readFileSync(host.file('.agent/swarm-state.json'), 'utf8'));
    expect(copy).toMatchObject({ schema: 'acode.swarm-state/1', swarmId: swarm.id });
    // The control: what another program writes there is reported, and stays.
    mkdirSync(host.file('.agent'), { recursive: true });
    writeFileSync(host.file('.agent/swarm-state.json'), '{}');
    expect(swarm.store.copyState(host.workspace).state).toBe('corrupt');
    await swarm.store.update(swarm.id, () => undefined);
    expect(readFileSync(host.file('.agent/swarm-state.json'), 'utf8')).toBe('{}');
    await swarm.store.repair(swarm.id);
    expect(swarm.store.copyState(host.workspace).state).toBe('own');
  });
});
