import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { branchProblem, containerName, isContainerName, touchTheSame, variableProblem } from './names.ts';
import { parseDuration, parseTask } from './task.ts';
import { addTask, findTaskFiles, readTask, readTasks, taskPathProblem } from './task-files.ts';

const FILE = '.agent/tasks/login.json';
const minimal = { title: 'Login', stories: [{ title: 'x' }] };
const failing = (file: string, content: string): { code: string; reason?: string; at?: string } => {
  try {
    parseTask(file, content);
    return { code: 'none' };
  } catch (error) {
    if (typeof error !== 'object' || error === null || !('code' in error) || !('context' in error)) throw error;
    return { code: String(error.code), ...(error.context as object) };
  }
};

describe('a task file', () => {
  it('is JSON', () => {
    const task = parseTask(
      FILE,
      JSON.stringify({
        title: 'Login',
        branch: 'feature/login',
        stories: [{ id: 'US-007', title: 'form', acceptance: ['npm test'] }, { title: 'page' }],
        acceptance: ['npm run lint'],
        depends_on: ['base'],
        touches: ['src/login/**'],
        command: 'make',
        attempts: 3,
        env: { MODE: 'fast' },
        policy: { memory: '1g', cpus: 1, timeout: '20m', network: { allow: ['npm:install'] } },
      }),
    );
    expect(task).toMatchObject({
      id: 'login',
      branch: 'feature/login',
      stories: [
        { id: 'US-007', acceptance: ['npm test'] },
        { id: 'US-002', acceptance: ['npm run lint'] },
      ],
      dependsOn: ['base'],
      command: ['sh', '-c', 'make'],
      policy: { memoryBytes: 1024 ** 3, cpus: 1, timeoutMs: 1_200_000, allow: ['npm:install'] },
    });
  });

  it('is Markdown with front matter, whose headings are stories', () => {
    const text = [
      '---',
      'branch: fix/login',
      'touches: [src/login]',
      'policy: { network: none }',
      '---',
      '# Login',
      'All of it.',
      '## US-003: A form',
      'It has two fields.',
      '```sh acceptance',
      '# a comment',
      'npm test',
      '```',
      '## A page',
      '',
    ].join('\r\n');
    expect(parseTask('.agent/tasks/login.md', text)).toMatchObject({
      id: 'login',
      title: 'Login',
      description: 'All of it.',
      branch: 'fix/login',
      policy: { allow: [] },
      stories: [
        { id: 'US-003', title: 'A form', description: 'It has two fields.', acceptance: ['npm test'] },
        { id: 'US-002', title: 'A page', acceptance: [] },
      ],
    });
    expect(parseTask('.agent/tasks/x.md', '# One thing\nDo it.\n').stories).toEqual([
      { id: 'US-001', title: 'One thing', description: 'Do it.', acceptance: [] },
    ]);
  });

  it('is refused with the place and the reason', () => {
    const json = (value: object): string => JSON.stringify({ ...minimal, ...value });
    expect(failing(FILE, '{')).toMatchObject({ code: 'ACODE-SWM-003' });
    expect(failing(FILE, json({ image: 'evil' }))).toMatchObject({
      code: 'ACODE-SWM-003',
      reason: 'it has a key that tasks do not have: image',
    });
    expect(failing(FILE, json({ stories: [] }))).toMatchObject({ at: 'stories' });
    expect(failing(FILE, json({ stories: [{ id: 'US-1', title: 'x' }] }))).toMatchObject({ at: 'stories[0].id' });
    expect(
      failing(
        FILE,
        json({
          stories: [
            { id: 'US-001', title: 'x' },
            { id: 'US-001', title: 'y' },
          ],
        }),
      ),
    ).toMatchObject({ reason: 'two stories are US-001' });
    expect(failing(FILE, json({ touches: ['../x'] }))).toMatchObject({ at: 'touches' });
    expect(failing(FILE, json({ branch: '--force' }))).toMatchObject({ code: 'ACODE-SWM-004' });
    expect(failing(FILE, json({ env: { LD_PRELOAD: 'x' } }))).toMatchObject({ code: 'ACODE-SWM-004' });
    expect(failing(FILE, json({ policy: { memory: 'lots' } }))).toMatchObject({ at: 'policy.memory' });
    expect(failing(FILE, json({ policy: { timeout: '5 parsecs' } }))).toMatchObject({ at: 'policy.timeout' });
    expect(failing('.agent/tasks/-x.json', json({}))).toMatchObject({ code: 'ACODE-SWM-002' });
    expect(failing('.agent/tasks/a.md', '---\na: &x [1]\nb: *x\na: 2\n---\n')).toMatchObject({ code: 'ACODE-SWM-003' });
    expect(failing(FILE, json({}))).toEqual({ code: 'none' });
  });
});

describe('names', () => {
  it('of branches are stricter than those of git', () => {
    const good = ['a', 'feature/login', 'acode/1f0c2d3e/x_1', 'A-b'];
    const bad = [
      '',
      '-x',
      'a//b',
      'a/',
      '/a',
      'a..b',
      'a b',
      'a.lock',
      'refs/heads/x',
      'HEAD',
      'x/HEAD',
      'a/-b',
      'a~1',
      'a\nb',
      'x'.repeat(201),
      'deadbeef',
      'é',
    ];
    expect(good.filter(name => branchProblem(name) !== null)).toEqual([]);
    expect(bad.filter(name => branchProblem(name) === null)).toEqual([]);
  });

  it('of variables are not those that programs obey first, and values run nothing', () => {
    const bad: [string, string][] = [
      ['LD_PRELOAD', 'x'],
      ['NODE_OPTIONS', 'x'],
      ['BASH_ENV', 'x'],
      ['ENV', 'x'],
      ['PATH', 'x'],
      ['GIT_SSH_COMMAND', 'x'],
      ['ACODE_TASK_ID', 'x'],
      ['lower', 'x'],
      ['1A', 'x'],
      ['A-B', 'x'],
      ['A', '$(id)'],
      ['A', '`id`'],
      ['A', 'x\0'],
      ['A', 'x'.repeat(40_000)],
    ];
    expect(bad.filter(([name, value]) => variableProblem(name, value) === null)).toEqual([]);
    expect(
      [
        ['A', '$HOME'],
        ['_X1', ''],
      ].filter(([name = '', value = '']) => variableProblem(name, value) !== null),
    ).toEqual([]);
  });

  it('of sandboxes have at most 63 characters', () => {
    expect(containerName('1f0c2d3e-0000', 'Login_Page')).toBe('acode-1f0c2d3e-login_page');
    const rows = ['acode-a', 'acode--a', 'aimi-a', 'acode-', 'acode-a.b', `acode-${'a'.repeat(58)}`, 'acode-a;rm'];
    expect(rows.filter(isContainerName)).toEqual(['acode-a']);
  });

  it('of task files lead to .agent/tasks and nowhere else', () => {
    const bad = [
      '/etc/x.json',
      '../x.json',
      '.agent/tasks/../x.json',
      '.agent/tasks/a/b.json',
      '.agent/tasks/x.yml',
      '~/x.json',
      '.agent/tasks/$x.json',
      '.agent/tasks//x.json',
      'x.json',
      '.agent/tasks/x\0.json',
      String.raw`.agent\tasks\x.json`,
    ];
    expect(bad.filter(path => taskPathProblem(path) === null)).toEqual([]);
    expect(taskPathProblem('.agent/tasks/x.json')).toBeNull();
  });

  it('of paths that overlap', () => {
    const rows: [string, string, boolean][] = [
      ['src/a', 'src/a/b', true],
      ['src/a', 'src/ab', false],
      ['**/*.ts', 'docs', true],
      ['src/*.ts', 'src/b', true],
      ['a', 'b', false],
      ['./a/', 'a', true],
    ];
    expect(rows.map(([one, other]) => [one, other, touchTheSame([one], [other])])).toEqual(rows);
    expect(touchTheSame([], ['a'])).toBe(false);
  });

  it('of durations', () => {
    expect(['90s', '1.5m', '2h', '0s', '5', 'x', '-1s'].map(parseDuration)).toEqual([
      90_000,
      90_000,
      7_200_000,
      null,
      null,
      null,
      null,
    ]);
  });
});

describe('the task files of a workspace', () => {
  let root: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'acode-tasks-'));
    mkdirSync(join(root, '.agent/tasks'), { recursive: true });
  });
  afterEach(() => rmSync(root, { recursive: true, force: true }));

  it('are found, read and added, and nothing that exists is replaced', () => {
    writeFileSync(join(root, FILE), JSON.stringify(minimal));
    writeFileSync(join(root, '.agent/tasks/README.md'), 'about');
    expect(addTask(root, 'second', '# Second\ntext\n')).toMatchObject({ id: 'second', file: '.agent/tasks/second.md' });
    expect(() => addTask(root, 'second', '# Other\n')).toThrow(/already/);
    expect(() => addTask(root, '../evil', '# Other\n')).toThrow(/is not relative|\.\./);
    expect(findTaskFiles(root)).toEqual([FILE, '.agent/tasks/second.md']);
    expect(readTasks(root, findTaskFiles(root)).tasks.map(({ id }) => id)).toEqual(['login', 'second']);
    writeFileSync(join(root, '.agent/tasks/login.md'), '# Login\n');
    expect(readTasks(root, findTaskFiles(root)).problems.map(({ code }) => code)).toEqual(['ACODE-SWM-003']);
  });

  it('are not read through links', () => {
    writeFileSync(join(root, 'outside.json'), JSON.stringify(minimal));
    symlinkSync('../../outside.json', join(root, FILE));
    expect(() => readTask(root, FILE)).toThrow(/link/);
    rmSync(join(root, '.agent'), { recursive: true });
    mkdirSync(join(root, 'other/tasks'), { recursive: true });
    writeFileSync(join(root, 'other/tasks/login.json'), JSON.stringify(minimal));
    symlinkSync('other', join(root, '.agent'));
    expect(() => readTask(root, FILE)).toThrow(/not a directory/);
  });
});
