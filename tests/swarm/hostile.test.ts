// Hostile tasks that speak for their adapter, and what is found of tasks whose orchestrator did not hear their end.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { acceptTask, mergeSwarm, reviewTask } from '@acode/swarm';
import { reconcile } from '../../packages/swarm/src/reconcile.ts';
import { SwarmSandboxes } from '../../packages/swarm/src/sandboxes.ts';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { gitIn, makeRepository, swarmOn, writeTasks } from './swarms.ts';

// Standard output of the adapter, which every process of the task can open: they have the same user. `ignored` has the swarm’s id.
const SAY = `say() { printf '%s\\n' "$1" > /proc/$PPID/fd/1; sleep 1; }
part() { printf '%s' "$1" > /proc/$PPID/fd/1; sleep 0.1; }
id=$(cat said/ignored)
envelope() { printf '{"type":"%s","version":%s,"timestamp":"2026-11-19T00:00:00.000Z","swarmId":"%s","containerId":"acode-%s-%s",' "$1" "\${2:-1}" "$id" "\${id%%-*}" "$ACODE_SWARM_TASK"; }
progress() { printf '%s"payload":{"storyId":"%s","status":"%s","output":"%s"}}' "$(envelope progress-update)" "$1" "$2" "$3"; }
ended() { printf '%s"payload":{"status":"failed","prUrl":null,"errors":[]}}' "$(envelope completion)"; }
`;
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
const COMPLETION = { status: 'completed', prUrl: null, errors: [], commit: 'a'.repeat(40) };

// What each hostile task does to the conversation of its adapter, by the fault that it must be.
const HOSTILE: Readonly<Record<string, readonly [fault: string, script: string]>> = {
  'after-the-end': ['order', 'say "$(ended)"; say "$(progress US-001 in_progress x)"; sleep 60'],
  backwards: ['order', 'say "$(progress US-001 failed x)"; say "$(progress US-001 in_progress x)"; sleep 60'],
  cut: ['cut', 'say "$(ended)"; part "$(envelope error)"; kill -9 $PPID'],
  direction: ['direction', `say '${FORGED(OTHER, 'task-request', {})}'; sleep 60`],
  encoding: ['encoding', `printf '\\377\\376\\n' > /proc/$PPID/fd/1; sleep 60`],
  // Spaces are a part of JSON: messages that are valid, and too many of them. The adapter is stopped: its own words would come in between.
  flood: [
    'flood',
    `kill -STOP $PPID; pad=$(printf '%60000s' ''); message="$pad$(progress US-001 in_progress x)"; for n in $(seq 700); do printf '%s\\n' "$message"; done > /proc/$PPID/fd/1; sleep 60`,
  ],
  identity: ['identity', `say '${FORGED(OTHER, 'completion', COMPLETION)}'; sleep 60`],
  interleaved: [
    'malformed',
    'one=$(progress US-001 in_progress x); part "${one%????????}"; part "$one"; say "${one#????????}"; sleep 60',
  ],
  malformed: ['malformed', `say 'not a message'; sleep 60`],
  oversized: ['oversized', `head -c 90000 /dev/zero | tr '\\0' x > /proc/$PPID/fd/1; sleep 60`],
  'unknown-field': [
    'schema',
    `say "$(envelope error)\\"payload\\":{\\"code\\":\\"X\\",\\"message\\":\\"\\",\\"more\\":1}}"; sleep 60`,
  ],
  'unknown-story': ['order', 'say "$(progress US-009 in_progress x)"; sleep 60'],
  version: ['version', `say "$(envelope error 2)\\"payload\\":{\\"code\\":\\"X\\",\\"message\\":\\"\\"}}"; sleep 60`],
};
// The controls: a task that says nothing, and a valid message that comes in three parts.
const HONEST = {
  honest: 'echo fine > fine.txt; sleep 4',
  split: `${SAY}one=$(progress US-001 in_progress 'in three parts'); half=\${one#????????????????????????????????????????}; part "\${one%"$half"}"; part "\${half%????????}"; say "\${half#"\${half%????????}"}"; echo fine > fine.txt`,
};

describe.skipIf(withoutEngines)('a swarm with hostile tasks', { timeout: 240_000 }, () => {
  let host: TestHost;
  beforeAll(async () => {
    host = await TestHost.open(mainEngine, { maxConcurrent: 8 });
    makeRepository(host.workspace, { submodule: false });
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it('ends a sandbox that violates the protocol, with its fault, and no other task notices', async () => {
    writeTasks(host.workspace, {
      ...HONEST,
      ...Object.fromEntries(Object.entries(HOSTILE).map(([id, [, script]]) => [id, `${SAY}${script}`])),
    });
    const swarm = await swarmOn(host, { parallel: 8, memoryBytes: 128 * 1024 ** 2 });
    mkdirSync(host.file('said'));
    writeFileSync(host.file('said/ignored'), swarm.id);
    const { tasks } = await swarm.run();
    const ends = tasks.map(({ id, status, reason, detail }) => [id, status, reason, detail.split(':')[0]]);
    expect(Object.fromEntries(ends.map(([id, ...end]) => [id, end]))).toEqual({
      ...Object.fromEntries(Object.entries(HOSTILE).map(([id, [fault]]) => [id, ['failed', 'protocol', fault]])),
      honest: ['completed', null, ''],
      split: ['completed', null, ''],
    });
    expect(tasks.find(({ id }) => id === 'split')?.lastLine).toBeDefined();
    const branches = gitIn(host.workspace, 'for-each-ref', '--format=%(refname:short)', 'refs/heads/acode').split('\n');
    expect(branches).toEqual(['honest', 'split'].map(id => `acode/${swarm.id.slice(0, 8)}/${id}`));
    await expect.poll(() => host.containers()).toEqual([]);
  });

  it('brings home what host git would run, and nothing of it runs', async () => {
    gitIn(host.workspace, 'clean', '-fdxq', '.agent');
    const marker = `/var/tmp/acode-swarm-${process.pid}-ran`;
    // What a repository can have that git, or who opens it, runs.
    const script = `set -e
printf '#!/bin/sh\\ntouch ${marker}\\ncat\\n' > run.sh; chmod +x run.sh; here=$PWD/run.sh
mkdir -p .husky .git/hooks
for name in pre-commit post-checkout post-merge post-rewrite reference-transaction update pre-push; do cp run.sh .husky/$name; cp run.sh .git/hooks/$name; done
git config core.fsmonitor "$here"; git config filter.x.smudge "$here"; git config filter.x.clean "$here"
git config merge.x.driver "$here"; git config diff.x.textconv "$here"; git config diff.external "$here"; git config core.sshCommand "$here"
git config core.pager "$here"; git config uploadpack.packObjectsHook "$here"; git config alias.status "!$here"
printf '* filter=x merge=x diff=x\\n' > .gitattributes
printf '[submodule "x"]\\n\\tpath = sub\\n\\turl = ext::sh -c touch%% ${marker}\\n' > .gitmodules
git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub
mkdir -- '$(touch ran)' '-c'; echo x > '$(touch ran)/;touch ran'; echo x > './-c/--upload-pack=touch ran'
printf x > "$(printf 'line\\nline')"; printf x > "$(printf 'esc\\033[2J')"
git update-ref 'refs/heads/$(touch\${IFS}ran)' HEAD
`;
    const said = `$(touch ${marker}) --amend`;
    writeTasks(host.workspace, {
      payload: { title: said, command: script, stories: [{ title: `\`touch ${marker}\`; -x`, acceptance: ['true'] }] },
      plain: 'echo plain > plain.txt',
      submodule: `printf '[submodule "x"]\\n\\tpath = sub\\n\\turl = ./x\\n\\tupdate = !touch ${marker}\\n' > .gitmodules; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub`,
    });
    const before = readFileSync(host.file('.git/config'), 'utf8');
    const swarm = await swarmOn(host);
    const { tasks } = await swarm.run();
    expect(tasks.map(({ status, reason, attention }) => [status, reason, attention])).toEqual([
      ['completed', null, 'needs-review'],
      ['completed', null, null],
      ['failed', 'branch', null],
    ]);
    expect(tasks[2]?.detail).toContain('disallowed submodule update setting');
    const { acode } = host;
    const around = { acode, store: swarm.store, id: swarm.id, signal: new AbortController().signal };
    const { patch } = await reviewTask({ ...around, task: 'payload' });
    expect(patch).toContain('filter=x');
    const everything = ['.husky', '.gitattributes', '.gitmodules', 'run.sh'];
    const consent = { acceptRisk: 'all' as const };
    const made = await acceptTask({ ...around, task: 'payload' }, consent, everything);
    expect(made.kind).toBe('made');
    const merged = await mergeSwarm({ ...around, consent, protectedPaths: everything });
    expect(merged.brought?.kind).toBe('made');
    const name = `acode/${swarm.id.slice(0, 8)}`;
    expect(gitIn(host.workspace, 'show', `${name}/merged:plain.txt`)).toBe('plain');
    expect(gitIn(host.workspace, 'log', '-1', '--format=%s', `${name}/payload`)).toContain(said);
    // What a person does next.
    gitIn(host.workspace, 'diff', '--stat', `main..${name}/payload`);
    gitIn(host.workspace, 'worktree', 'add', '-q', `${host.workspace}-merged`, `${name}/merged`);
    expect(readFileSync(host.file('.git/config'), 'utf8')).toBe(before);
    expect([marker, host.file('ran'), `${host.workspace}-merged/ran`].filter(path => existsSync(path))).toEqual([]);

    // The control: the same in a clone of this machine.
    const clone = `${host.workspace}-clone`;
    gitIn(host.workspace, 'clone', '-q', '.', clone);
    execFileSync('sh', ['-c', script], { cwd: clone, env: { PATH: process.env['PATH'], HOME: clone }, stdio: 'pipe' });
    rmSync(marker, { force: true });
    gitIn(clone, 'status');
    expect(existsSync(marker)).toBe(true);
    rmSync(marker);
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
