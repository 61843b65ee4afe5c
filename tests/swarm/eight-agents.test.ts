// Eight tasks at four slots by the real claude and codex, whose model is scripted: each ends as it must, and none sees another.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import type { Script } from '../../packages/cli/src/hooks/scripted-model.ts';
import { ModelHost, agentsFile, lineOf } from '../agents/model-host.ts';
import { Bench } from '../cli/bench.ts';
import { withoutNames } from '../egress/servers.ts';
import { images, mainEngine, withoutEngines } from '../support/engines.ts';
import { figure } from '../support/waiting.ts';
import { gitIn, makeRepository, writeTasks } from './swarms.ts';

const STORE = process.env['ACODE_AGENT_PROGRAMS'] ?? '/var/lib/acode-engines/agents/acode/programs';
const stored = existsSync(STORE) ? readdirSync(STORE) : [];
const AGENTS = ['claude', 'codex'];
const KEY = `sk-test-${'k3y'.repeat(12)}`;
const MARKER = '/var/tmp/acode-swarm-agents-marker';
const edit = (text: string): string => `sed -i '7s/return .*;/return ${text};/' src/lib.c; sleep 8`;

// Which agent works on a task, what its model has it run, and what must be true afterwards.
const TASKS: Readonly<Record<string, readonly [agent: string, line: string, acceptance: string]>> = {
  'a-same': ['claude', edit('70'), 'grep -q "return 70;" src/lib.c'],
  'b-same': ['codex', edit('71'), 'grep -q "return 71;" src/lib.c'],
  'c-plain': ['claude', 'echo "secret of another task" > secret.txt; sleep 4', 'test -e secret.txt'],
  // Codex goes on without a command that takes long.
  'd-hangs': ['claude', 'sleep 1000', 'true'],
  'e-escape': [
    'codex',
    `: > found.txt
for path in /var/lib/acode-engines /run/acode-engines /var/run/docker.sock; do ls -d $path >/dev/null 2>&1 && echo $path >> found.txt; done
grep -rl 'secret of another task' / --include=secret.txt 2>/dev/null >> found.txt
env | grep '${KEY}' >> found.txt
mkdir -p .husky; printf '#!/bin/sh\\ntouch ${MARKER}\\n' > .husky/post-checkout; chmod +x .husky/post-checkout`,
    'test -e found.txt',
  ],
  'f-fails': ['codex', 'echo no > no.txt', 'test -e yes.txt'],
  'g-flood': ['claude', 'yes flood | head -c 30000000; echo done > flood.txt', 'test -e flood.txt'],
  'h-new': ['codex', 'echo new > new.txt; cat vendor/part/part.txt >> new.txt', 'grep -q part new.txt'],
};

// Each session runs the script of its task once: the model itself cannot tell them apart.
const script: Script = (results, offered) =>
  results.length > 0
    ? { say: 'Done.' }
    : lineOf(offered.includes('Bash') ? 'claude' : 'codex', 'sh work/$ACODE_SWARM_TASK.sh');

const stateSchema = z.looseObject({
  id: z.string(),
  parallel: z.int(),
  tasks: z.array(
    z.looseObject({
      id: z.string(),
      status: z.string(),
      reason: z.string().nullable(),
      attention: z.string().nullable(),
      fork: z.string(),
      elapsedMs: z.number(),
    }),
  ),
});

describe.skipIf(withoutEngines || withoutNames)('eight tasks of claude and codex', { timeout: 600_000 }, () => {
  let bench: Bench;
  let host: ModelHost;

  beforeAll(async () => {
    bench = await Bench.at(mainEngine);
    host = await ModelHost.listen(script);
    const directory = (name: string): string => bench.env[name] ?? '';
    const config = directory('XDG_CONFIG_HOME');
    writeFileSync(join(config, 'roots.pem'), host.site.pem);
    await bench.configure({
      images: { default: images.debian },
      network: { private_hosts: ['*.acode.test'], ca_file: join(config, 'roots.pem') },
    });
    const files = AGENTS.map(agent => JSON.parse(agentsFile(agent, host.host, 'ACODE_TEST_KEY')) as { agents: object });
    const agents: object = Object.assign({}, ...files.map(file => file.agents));
    writeFileSync(join(config, 'acode/agents.yml'), JSON.stringify({ agents }), { mode: 0o600 });
    mkdirSync(join(directory('HOME'), '.codex'), { recursive: true });
    writeFileSync(join(directory('HOME'), '.codex/config.toml'), 'model = "gpt-5.5"\n');
    const programs = join(directory('XDG_STATE_HOME'), 'acode/programs');
    mkdirSync(programs, { recursive: true, mode: 0o700 });
    for (const id of stored.filter(one => AGENTS.some(agent => one.startsWith(`agent-${agent}-`))))
      execFileSync('cp', ['-al', join(STORE, id), programs]);
    rmSync(join(bench.workspace, '.git'), { recursive: true });
    makeRepository(bench.workspace);
    mkdirSync(join(bench.workspace, 'work'));
    for (const [id, [, line]] of Object.entries(TASKS))
      writeFileSync(join(bench.workspace, `work/${id}.sh`), `${line}\n`);
    gitIn(bench.workspace, 'add', 'work');
    gitIn(bench.workspace, 'commit', '-q', '-m', 'what the model asks for');
    const tasks = Object.entries(TASKS).map(([id, [agent, , acceptance]]) => {
      const stories = [{ title: 'do it', acceptance: [acceptance] }];
      return [id, { title: id, agent, stories, ...(id === 'd-hangs' ? { policy: { timeout: '25s' } } : {}) }] as const;
    });
    writeTasks(bench.workspace, Object.fromEntries(tasks));
  });
  afterAll(async () => {
    await host[Symbol.asyncDispose]();
    await bench[Symbol.asyncDispose]();
  });

  it('end in their states, with their branches, and show each other nothing', async () => {
    const limits = ['--memory', '1g', '--cpus', '1', '--parallel', '4', '--attempts', '1'];
    const { status, stdout, stderr, ms } = await bench.call(
      ['swarm', 'run', '--yes', '--image', images.debian, ...limits],
      { env: { ACODE_TEST_KEY: KEY } },
    );
    const shown = `${stdout.toString()}${stderr}`;
    expect(status, shown).toBe(1);
    const { tasks, id, parallel } = stateSchema.parse(
      JSON.parse((await bench.call(['swarm', 'status', '--json'])).stdout.toString()),
    );
    const ends = tasks.map(task => [task.id, [task.status, task.reason, task.attention]]);
    expect(Object.fromEntries(ends), shown).toEqual({
      'a-same': ['completed', null, null],
      'b-same': ['completed', null, null],
      'c-plain': ['completed', null, null],
      'd-hangs': ['failed', 'deadline', null],
      'e-escape': ['completed', null, 'needs-review'],
      'f-fails': ['failed', 'agent', null],
      'g-flood': ['completed', null, null],
      'h-new': ['completed', null, null],
    });
    const name = `acode/${id.slice(0, 8)}`;
    const branches = gitIn(bench.workspace, 'for-each-ref', '--format=%(refname:short)', 'refs/heads').split('\n');
    const made = ['a-same', 'b-same', 'c-plain', 'g-flood', 'h-new'].map(one => `${name}/${one}`);
    expect(branches.sort()).toEqual([...made, 'main']);
    expect(gitIn(bench.workspace, 'show', `${name}/h-new:new.txt`)).toBe('new\npart');
    const fork = tasks.find(task => task.id === 'e-escape')?.fork ?? '';
    const found = await bench.call(['run', `--fork=${fork}`, '--image', images.debian, 'cat found.txt']);
    expect([found.status, found.stdout.toString()]).toEqual([0, '']);
    expect(existsSync(MARKER)).toBe(false);
    expect(shown).toMatch(/overlap: a-same and b-same both change src\/lib\.c/);
    expect(shown.indexOf('overlap:')).toBeLessThan(shown.search(/[ab]-same +completed/));
    expect([...host.keys]).toEqual([KEY]);
    const events = join(bench.env['XDG_STATE_HOME'] ?? '', 'acode/swarms', id, 'events.ndjson');
    expect(readFileSync(events, 'utf8')).not.toContain(KEY);
    const work = tasks.reduce((sum, { elapsedMs }) => sum + elapsedMs, 0) / parallel;
    figure('eight tasks of claude and codex at four slots, against 1.5 × work ÷ slots', ms, Math.round(1.5 * work));
    await expect.poll(() => bench.left()).toEqual([]);
  });
});
