// Plan, record, reconciliation and regions: what is decided without an engine.

import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PRESETS } from '@acode/agents';
import { regionsOf } from './adapter/git.ts';
import { Journal } from './adapter/journal.ts';
import { limitsFrom, planSwarm } from './plan.ts';
import type { SwarmOptions } from './plan.ts';
import type { Completion } from './protocol.ts';
import { statusOf } from './orchestrator.ts';
import { findingOf } from './reconcile.ts';
import { TASK_STATUSES, mayBecome, overlapsOf, stateCopySchema } from './record.ts';
import { SwarmStore, taskIn } from './store.ts';
import { parseTask } from './task.ts';
import type { Task } from './task.ts';

const GIB = 1024 ** 3;
const task = (id: string, value: object = {}): Task =>
  parseTask(
    `.agent/tasks/${id}.json`,
    JSON.stringify({ title: id, command: 'true', stories: [{ title: 'x' }], ...value }),
  );
const machine = { cpus: 8, memoryBytes: 32 * GIB };
const agents = new Map(PRESETS.map(preset => [preset.name, preset]));
const plan = (tasks: Task[], options: SwarmOptions = {}) => planSwarm('/w', tasks, options, { machine, agents });
const codeOf = (work: () => unknown): unknown => {
  try {
    work();
    return null;
  } catch (error) {
    return typeof error === 'object' && error !== null && 'code' in error ? error.code : error;
  }
};

describe('the last word of a task', () => {
  it('is no failure of its agent where its time or a person ended it', () => {
    const end = (status: Completion['payload']['status'], timedOut: boolean) =>
      ({ kind: 'completion', message: { payload: { status } }, result: { timedOut } }) as Parameters<
        typeof statusOf
      >[0];
    const rows = [
      ['failed', false, false, 'failed'],
      ['failed', true, false, null],
      ['failed', false, true, 'stopped'],
      ['stopped', true, false, null],
      ['stopped', false, true, 'stopped'],
      ['completed', true, true, 'completed'],
    ] as const;
    expect(rows.map(([status, timedOut, isStopped]) => statusOf(end(status, timedOut), isStopped))).toEqual(
      rows.map(([, , , expected]) => expected),
    );
  });
});

describe('the plan of a swarm', () => {
  it('gives each task a branch, a fork and limits of its own, at most what the user allows', () => {
    const { record } = plan([task('a'), task('b', { branch: 'fix/b', policy: { memory: '1g', network: 'none' } })], {
      memoryBytes: 2 * GIB,
      allow: ['npm:install'],
    });
    const name = record.id.slice(0, 8);
    expect(record.tasks).toMatchObject([
      { branch: `acode/${name}/a`, fork: `sw-${name}-1`, limits: { memoryBytes: 2 * GIB, allow: ['npm:install'] } },
      { branch: 'fix/b', fork: `sw-${name}-2`, limits: { memoryBytes: GIB, allow: [] } },
    ]);
  });

  it('refuses what a task file would loosen', () => {
    for (const policy of [
      { memory: '3g' },
      { cpus: 4 },
      { pids: 5000 },
      { timeout: '9h' },
      { network: { allow: ['evil.example'] } },
    ])
      expect(
        codeOf(() => plan([task('a', { policy })], { memoryBytes: 2 * GIB })),
        JSON.stringify(policy),
      ).toBe('ACODE-SWM-004');
  });

  it('refuses circles, missing tasks and branches that exclude each other', () => {
    expect(codeOf(() => plan([task('a', { depends_on: ['b'] }), task('b', { depends_on: ['a'] })]))).toBe(
      'ACODE-SWM-003',
    );
    expect(codeOf(() => plan([task('a', { depends_on: ['c'] })]))).toBe('ACODE-SWM-003');
    expect(codeOf(() => plan([task('a', { branch: 'x' }), task('b', { branch: 'x/y' })]))).toBe('ACODE-SWM-004');
    expect(codeOf(() => plan([task('a'), task('A')]))).toBe('ACODE-SWM-002');
    expect(codeOf(() => plan([]))).toBe('ACODE-SWM-001');
    expect(codeOf(() => planSwarm('/w', [task('a', { command: undefined })]))).toBe('ACODE-SWM-003');
    expect(codeOf(() => plan([task('a', { command: undefined, agent: 'nobody' })]))).toBe('ACODE-SWM-003');
  });

  it('gives each task its own command or agent, else that of the swarm; an agent always reaches its model', () => {
    const none = { command: undefined };
    const told = (tasks: Task[], options: SwarmOptions) =>
      plan(tasks, options).record.tasks.map(({ agent, command, limits }) => [agent, command.join(' '), limits.allow]);
    const all = [
      task('a'),
      task('b', { ...none, agent: 'codex', policy: { network: 'none' } }),
      task('c', { ...none, policy: { network: { allow: ['npm:install'] } } }),
    ];
    expect(told(all, { agent: 'claude', allow: ['npm:install', 'docs.example'] })).toEqual([
      [null, 'sh -c true', ['npm:install', 'docs.example']],
      ['codex', '', ['openai']],
      ['claude', '', ['npm:install', 'anthropic']],
    ]);
    expect(told([task('d', none)], { command: ['my-agent'] })).toEqual([[null, 'my-agent', []]]);
  });

  it('has as many at once as fit, and warns or refuses beyond that', () => {
    const many = Array.from({ length: 8 }, (_, at) => task(`t${at}`));
    const sized = (options: SwarmOptions) => plan(many, { memoryBytes: 4 * GIB, cpus: 2, ...options });
    expect(sized({})).toMatchObject({
      record: { parallel: 4 },
      warnings: [],
      total: { cpus: 8, memoryBytes: 16 * GIB },
    });
    expect(sized({ parallel: 2 }).total).toEqual({ cpus: 4, memoryBytes: 8 * GIB });
    expect(sized({ parallel: 8 }).warnings).toHaveLength(1);
    expect(codeOf(() => sized({ parallel: 8, strictSizing: true }))).toBe('ACODE-SWM-010');
  });

  it('takes limits from the environment, and refuses what is none', () => {
    expect(
      limitsFrom({
        ACODE_SANDBOX_CPUS: '2',
        ACODE_SANDBOX_MEMORY: '4g',
        ACODE_SANDBOX_SWAP: '8g',
        ACODE_SANDBOX_DISK: '8g',
      }),
    ).toEqual({
      cpus: 2,
      memoryBytes: 4 * GIB,
      swapBytes: 4 * GIB,
    });
    for (const env of [
      { ACODE_SANDBOX_CPUS: 'x' },
      { ACODE_SANDBOX_MEMORY: 'x' },
      { ACODE_SANDBOX_SWAP: '1g', ACODE_SANDBOX_MEMORY: '2g' },
      { ACODE_SANDBOX_DISK: '-1' },
    ])
      expect(
        codeOf(() => limitsFrom(env)),
        JSON.stringify(env),
      ).toBe('ACODE-SWM-004');
  });
});

describe('a task', () => {
  it('goes from one state to another as the seeds say, and begins again if a person or a fault says so', () => {
    const allowed = TASK_STATUSES.flatMap(from =>
      TASK_STATUSES.filter(to => from !== to && mayBecome(from, to)).map(to => `${from} ${to}`),
    );
    expect(allowed).toEqual([
      'pending running',
      'pending completed',
      'pending failed',
      'pending stopped',
      'running pending',
      'running completed',
      'running failed',
      'running stopped',
      'completed pending',
      'failed pending',
      'stopped pending',
    ]);
  });

  it('whose orchestrator is gone is found in one of five cases, or in none', () => {
    const completion = (status: string): Completion => ({ payload: { status } }) as Completion;
    const nothing = { sandbox: false, began: false, completion: null };
    expect([
      findingOf('running', nothing),
      findingOf('running', { ...nothing, began: true, completion: completion('completed') }),
      findingOf('running', { ...nothing, began: true, completion: completion('failed') }),
      findingOf('running', { ...nothing, began: true }),
      findingOf('running', { ...nothing, began: true, completion: completion('stopped') }),
      findingOf('pending', { ...nothing, sandbox: true }),
      findingOf('running', { ...nothing, sandbox: true }),
      findingOf('pending', nothing),
      findingOf('completed', nothing),
    ]).toEqual([
      'zombie',
      'silent-completion',
      'silent-failure',
      'unexpected-stop',
      'unexpected-stop',
      'already-started',
      null,
      null,
      null,
    ]);
  });

  it('overlaps another where both changed the same lines', () => {
    const patch = [
      'diff --git a/x.c b/x.c',
      '--- a/x.c',
      '+++ b/x.c',
      '@@ -5 +5,2 @@',
      '-old',
      '+new',
      '--- a/not-a-file',
      '@@ -9,0 +11,2 @@',
      '@@ -20,3 +22 @@',
      'diff --git a/n b/n',
      '--- /dev/null',
      '+++ b/n',
      '@@ -0,0 +1 @@',
    ].join('\n');
    const regions = regionsOf(patch);
    expect(regions).toEqual([
      { path: 'x.c', from: 5, to: 5 },
      { path: 'x.c', from: 9, to: 10 },
      { path: 'x.c', from: 20, to: 22 },
      { path: 'n', from: 0, to: 0 },
    ]);
    expect(
      overlapsOf(regions, [
        { path: 'x.c', from: 22, to: 40 },
        { path: 'y', from: 5, to: 5 },
        { path: 'n', from: 0, to: 0 },
      ]),
    ).toEqual([
      { path: 'x.c', from: 22, to: 22 },
      { path: 'n', from: 0, to: 0 },
    ]);
  });
});

describe('the state of a swarm', () => {
  let top: string;
  let store: SwarmStore;
  let workspace: string;
  beforeEach(async () => {
    top = mkdtempSync(join(tmpdir(), 'acode-swarm-'));
    workspace = join(top, 'w');
    mkdirSync(workspace);
    store = await SwarmStore.open({ HOME: top, XDG_STATE_HOME: join(top, 'state'), XDG_RUNTIME_DIR: join(top, 'run') });
  });
  afterEach(() => rmSync(top, { recursive: true, force: true }));
  const created = async () => {
    const { record } = planSwarm(workspace, [task('a')], {}, { machine });
    await store.create(record);
    return record;
  };

  it('loses nothing where many write at once, and its copy is valid', async () => {
    const { id } = await created();
    await Promise.all(
      Array.from({ length: 20 }, () => store.update(id, record => (taskIn(record, 'a').requests += 1))),
    );
    expect(taskIn(store.read(id), 'a').requests).toBe(20);
    expect(
      stateCopySchema.parse(JSON.parse(readFileSync(join(workspace, '.agent/swarm-state.json'), 'utf8'))).swarmId,
    ).toBe(id);
    expect(readdirSync(join(workspace, '.agent'))).toEqual(['swarm-state.json']);
    expect(store.copyState(workspace)).toEqual({ state: 'own', swarmId: id });
    expect(store.find(workspace, id.slice(0, 6)).id).toBe(id);
    expect(() => store.find(workspace, 'ffff')).toThrow(/no swarm/);
  });

  it('that another wrote is reported, and neither used nor replaced', async () => {
    const { id } = await created();
    const file = join(workspace, '.agent/swarm-state.json');
    const own: unknown = JSON.parse(readFileSync(file, 'utf8'));
    for (const [state, text] of [
      ['foreign', JSON.stringify({ ...(own as object), swarmId: '1f0c2d3e-0000-4000-8000-000000000000' })],
      ['changed', JSON.stringify({ ...(own as object), containers: [] })],
      ['corrupt', '{"schema":"acode.swarm-state/1"'],
    ] as const) {
      writeFileSync(file, text);
      expect(store.copyState(workspace).state).toBe(state);
      await store.update(id, () => undefined);
      expect(readFileSync(file, 'utf8')).toBe(text);
      expect(store.read(id).tasks[0]?.status).toBe('pending');
    }
    await store.repair(id);
    expect(store.copyState(workspace).state).toBe('own');
  });

  it('is refused where its record is not one', async () => {
    const { id } = await created();
    writeFileSync(join(store.directory(id), 'record.json'), '{}');
    expect(codeOf(() => store.read(id))).toBe('ACODE-SWM-005');
    expect(store.list()).toEqual([]);
  });

  it('has one orchestrator', async () => {
    const { id } = await created();
    const second = await store.alone(id, () => store.alone(id, () => Promise.resolve('second')));
    expect(second).toBeNull();
    expect(await store.alone(id, () => Promise.resolve('first'))).toBe('first');
  });

  it('survives a journal that was cut off', () => {
    const journal = new Journal(top);
    journal.append({ event: 'begin' });
    writeFileSync(join(top, 'journal.ndjson'), '{"at":"x","event":"sto', { flag: 'a' });
    journal.append({ event: 'end', status: 'completed' });
    expect(journal.read().map(({ event }) => event)).toEqual(['begin', 'end']);
    writeFileSync(join(top, 'result.json'), '{}');
    expect(journal.result()).toBeNull();
  });
});
