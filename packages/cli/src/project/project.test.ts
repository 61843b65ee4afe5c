// The command of a project: which tool its files mean, what is refused, and which packages a workspace has.

import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { execFileSync } from 'node:child_process';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { OutputTail } from '../terminal/output-tail.ts';
import { call } from '../test-process.ts';
import { findProject, hasJob, manifestProblem } from './detect.ts';
import { membersOf } from './members.ts';
import { jobsFor, renderResults, runParallel } from './parallel.ts';
import type { PackageResult } from './parallel.ts';
import { TOOL_NAMES } from './names.ts';
import { TOOLS, projectCommand, toolNamed } from './tools.ts';
import type { ToolName } from './names.ts';

let top = '';

beforeEach(() => {
  top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-project-')));
});

afterEach(() => {
  rmSync(top, { recursive: true });
});

function files(all: Readonly<Record<string, string>>): void {
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(dirname(join(top, path)), { recursive: true });
    writeFileSync(join(top, path), text);
  }
}

const found = (inside = '.', named?: ToolName) =>
  findProject({ root: top, here: join(top, inside), inside }, 'test', named);

describe('the tool of a project', () => {
  it.each<[string, Readonly<Record<string, string>>, ToolName]>([
    ['package.json alone', { 'package.json': '{}' }, 'npm'],
    ['a lockfile of npm', { 'package.json': '{}', 'package-lock.json': '{}' }, 'npm'],
    ['a lockfile of pnpm', { 'package.json': '{}', 'pnpm-lock.yaml': '' }, 'pnpm'],
    ['a lockfile of yarn', { 'package.json': '{}', 'yarn.lock': '' }, 'yarn'],
    [
      'packageManager before a lockfile',
      { 'package.json': '{"packageManager":"pnpm@9.1.0"}', 'yarn.lock': '' },
      'pnpm',
    ],
    ['pyproject.toml', { 'pyproject.toml': '' }, 'pytest'],
    ['requirements.txt', { 'requirements.txt': '' }, 'pytest'],
    ['Cargo.toml', { 'Cargo.toml': '' }, 'cargo'],
    ['go.mod', { 'go.mod': '' }, 'go'],
    ['a solution', { 'App.sln': '' }, 'dotnet'],
    ['a project file', { 'App.csproj': '' }, 'dotnet'],
    ['a Makefile', { Makefile: '' }, 'make'],
    ['another tool before a Makefile', { Makefile: '', 'go.mod': '' }, 'go'],
  ])('by %s', async (_, there, tool) => {
    files(there);
    await expect(found()).resolves.toMatchObject({ directory: top, tool: { name: tool } });
  });

  it('is that of the nearest directory, with the lockfile of one above it', async () => {
    files({ 'pnpm-lock.yaml': '', 'package.json': '{}', 'packages/a/package.json': '{}', 'packages/a/src/x': '' });
    await expect(found('packages/a/src')).resolves.toMatchObject({
      directory: join(top, 'packages/a'),
      tool: { name: 'pnpm' },
    });
  });

  it.each<[string, Readonly<Record<string, string>>, RegExp, RegExp]>([
    [
      'two languages',
      { 'package.json': '{}', 'Cargo.toml': '' },
      /package\.json means npm, Cargo\.toml means cargo/,
      /--with npm.*--with cargo/,
    ],
    [
      'two lockfiles',
      { 'package.json': '{}', 'package-lock.json': '', 'yarn.lock': '' },
      /package-lock\.json means npm, yarn\.lock means yarn/,
      /--with yarn/,
    ],
    ['nothing', { 'README.md': '' }, /no project to test/, /Looked for: package\.json, .*Cargo\.toml.*acode run --/],
  ])('is not guessed for %s', async (_, there, message, hint) => {
    files(there);
    await expect(found()).rejects.toMatchObject({
      message: expect.stringMatching(message),
      hint: expect.stringMatching(hint),
      exitStatus: 2,
    });
  });

  it('can be chosen where several fit, and is refused where its files are missing', async () => {
    files({ 'package.json': '{}', 'Cargo.toml': '', Makefile: '' });
    for (const name of ['npm', 'cargo', 'make'] as const)
      await expect(found('.', name)).resolves.toMatchObject({ tool: { name } });
    await expect(found('.', 'go')).rejects.toMatchObject({
      hint: expect.stringMatching(/^Looked for: go\.mod, go\.work\./),
    });
  });

  it('is not found by links, which a command could have put there', async () => {
    files({ 'real/go.mod': '' });
    symlinkSync(join(top, 'real/go.mod'), join(top, 'go.mod'));
    await expect(found()).rejects.toMatchObject({ exitStatus: 2 });
  });

  it('is not found above the workspace', async () => {
    files({ 'go.mod': '', 'inner/README.md': '' });
    const root = join(top, 'inner');
    await expect(findProject({ root, here: root, inside: '.' }, 'build')).rejects.toMatchObject({ exitStatus: 2 });
  });
});

describe('a package.json that is not valid JSON', () => {
  const BROKEN = '{"name":"b",,}';

  it('is named with the reason, alone and as the root of a workspace', async () => {
    files({ 'package.json': BROKEN, '.git/HEAD': '' });
    for (const more of [[], ['--parallel']])
      expect(await call(['test', ...more], { cwd: () => top })).toMatchObject({
        status: 2,
        stderr: expect.stringContaining(`${join(top, 'package.json')} is not valid JSON: `),
      });
  });

  it('is a problem of tools that read it, and of no others', async () => {
    files({ 'package.json': BROKEN, 'good/package.json': '{}' });
    const problem = (name: ToolName, inside = '.') =>
      manifestProblem({ directory: join(top, inside), tool: toolNamed(name) });
    expect(await problem('npm')).toMatch(/^is not valid JSON: ./);
    expect([await problem('make'), await problem('npm', 'good'), await problem('npm', 'none')]).toEqual([
      null,
      null,
      null,
    ]);
  });

  it('is a failure of its package in parallel, and not one without the script', async () => {
    files({ 'b/package.json': BROKEN, 'c/package.json': '{}' });
    const run = {
      job: 'test',
      project: { directory: top, tool: toolNamed('npm') },
      members: ['b', 'c'].map(name => ({ name, directory: join(top, name) })),
      command: projectCommand(toolNamed('npm'), 'test', []),
      request: {},
      inside: ({ name }: { readonly name: string }) => name,
      jobs: 1,
    } as const;
    const printed: unknown[] = [];
    const performing = {
      io: { now: () => 0 },
      interruption: { signal: new AbortController().signal },
      options: { json: true },
      progress: { during: (_: unknown, work: unknown) => work },
      withHost: (work: (acode: unknown) => unknown) => work(null),
      print: (_: string, data: unknown) => printed.push(data),
    };
    expect(await runParallel(performing as never, run)).toBe(1);
    expect(printed).toMatchObject([
      {
        packages: [
          { package: 'b', outcome: 'failed', messages: [expect.stringMatching(/^package\.json is not valid JSON: /)] },
          { package: 'c', outcome: 'skipped' },
        ],
      },
    ]);
  });
});

describe('the command of a project', () => {
  it('is in the table for every tool and job', () => {
    expect(TOOLS.map(({ name }) => name)).toEqual(TOOL_NAMES);
    for (const tool of TOOLS) expect([tool.build.length, tool.test.length].every(length => length > 0)).toBe(true);
  });

  it.each<[ToolName, 'build' | 'test', string[], string[]]>([
    ['npm', 'test', [], ['npm', 'test']],
    ['npm', 'build', ['--watch'], ['npm', 'run', 'build', '--', '--watch']],
    ['pnpm', 'test', ['-t', 'a b'], ['pnpm', 'test', '-t', 'a b']],
    ['go', 'test', ['-run', 'X'], ['go', 'test', './...', '-run', 'X']],
    ['make', 'build', ['-j2'], ['make', '-j2']],
  ])('of %s for %s with %j is %j', (name, job, extra, argv) => {
    expect(projectCommand(toolNamed(name), job, extra)).toEqual({ argv, shown: argv });
  });

  it('of Python prefers the programs of a virtual environment, and passes every argument on as it is', () => {
    const { argv, shown } = projectCommand({ ...toolNamed('pytest'), test: ['printf', '%s|'] }, 'test', [
      'a b',
      '$(x)',
    ]);
    expect(shown).toEqual(['printf', '%s|', 'a b', '$(x)']);
    files({ '.venv/bin/printf': '#!/bin/sh\necho "own: $*"\n' });
    const run = () => execFileSync(argv[0] ?? '', argv.slice(1), { cwd: top, encoding: 'utf8' });
    expect(run()).toBe('a b|$(x)|');
    execFileSync('chmod', ['+x', join(top, '.venv/bin/printf')]);
    expect(run()).toBe('own: %s| a b $(x)\n');
  });

  it('is there only where package.json has the script', async () => {
    files({ 'package.json': '{"scripts":{"test":"x","build":""}}' });
    const project = { directory: top, tool: toolNamed('npm') };
    await expect(hasJob(project, 'test')).resolves.toBe(true);
    await expect(hasJob(project, 'build')).resolves.toBe(false);
    await expect(hasJob({ ...project, tool: toolNamed('go') }, 'build')).resolves.toBe(true);
  });
});

describe('the packages of a workspace', () => {
  const names = async (tool: ToolName) => (await membersOf(top, toolNamed(tool))).map(({ name }) => name);

  it.each<[string, ToolName, Readonly<Record<string, string>>, string[]]>([
    [
      'npm',
      'npm',
      {
        'package.json': '{"workspaces":["packages/*","apps/web","!packages/old"]}',
        'packages/a/package.json': '{}',
        'packages/b/package.json': '{}',
        'packages/old/package.json': '{}',
        'packages/notes/x': '',
        'apps/web/package.json': '{}',
        'apps/api/package.json': '{}',
      },
      ['apps/web', 'packages/a', 'packages/b'],
    ],
    [
      'yarn',
      'yarn',
      {
        'package.json': '{"workspaces":{"packages":["**"]}}',
        'a/package.json': '{}',
        'a/node_modules/x/package.json': '{}',
        'b/c/package.json': '{}',
      },
      ['.', 'a', 'b/c'],
    ],
    [
      'pnpm',
      'pnpm',
      {
        'pnpm-workspace.yaml': '# all\npackages:\n  - "packages/*" # ours\n  - \'!packages/b\'\n\ncatalog:\n  x: 1\n',
        'packages/a/package.json': '{}',
        'packages/b/package.json': '{}',
      },
      ['packages/a'],
    ],
    [
      'pnpm in one line',
      'pnpm',
      { 'pnpm-workspace.yaml': 'packages: ["a", b]\n', 'a/package.json': '{}', 'b/package.json': '{}' },
      ['a', 'b'],
    ],
    [
      'cargo',
      'cargo',
      {
        'Cargo.toml':
          '[package]\nname = "top"\n[workspace] # of two\nmembers = [\n  "crates/*", # all\n  \'tool\',\n]\nexclude = ["crates/x"]\n[workspace.dependencies]\nmembers = ["no"]\n',
        'crates/a/Cargo.toml': '',
        'crates/x/Cargo.toml': '',
        'tool/Cargo.toml': '',
        'no/Cargo.toml': '',
      },
      ['.', 'crates/a', 'tool'],
    ],
    [
      'uv',
      'pytest',
      {
        'pyproject.toml': '[project]\nname="x"\n[tool.uv.workspace]\nmembers = ["libs/*"]\n',
        'libs/a/pyproject.toml': '',
      },
      ['libs/a'],
    ],
    [
      'go.work',
      'go',
      {
        'go.work': 'go 1.22\nuse (\n  ./a // first\n  "./b"\n)\nuse ./c\n',
        'a/go.mod': '',
        'b/go.mod': '',
        'c/go.mod': '',
        'd/go.mod': '',
      },
      ['a', 'b', 'c'],
    ],
    [
      'modules without go.work',
      'go',
      { 'go.mod': '', 'a/go.mod': '', 'a/vendor/x/go.mod': '', 'b/testdata/go.mod': '' },
      ['.', 'a'],
    ],
    [
      'a solution',
      'dotnet',
      {
        'App.sln':
          'Project("{F}") = "A", "src\\A\\A.csproj", "{1}"\nProject("{F}") = "Folder", "Folder", "{2}"\nProject("{F}") = "T", "tests\\T\\T.csproj", "{3}"\n',
        'src/A/A.csproj': '',
        'tests/T/T.csproj': '',
      },
      ['src/A', 'tests/T'],
    ],
  ])('of %s', async (_, tool, there, expected) => {
    files(there);
    await expect(names(tool)).resolves.toEqual(expected);
  });

  it.each<[string, string]>([
    ['a path that leads out', '../elsewhere'],
    ['an absolute path', '/etc'],
    ['a path with .. in the middle', 'packages/../../x'],
    ['a form that acode does not know', 'packages/{a,b}'],
    ['a pattern without end', 'a'.repeat(1000)],
  ])('are refused for %s', async (_, pattern) => {
    files({ 'package.json': JSON.stringify({ workspaces: [pattern] }), 'packages/a/package.json': '{}' });
    await expect(names('npm')).rejects.toMatchObject({
      exitStatus: 2,
      message: expect.stringMatching(/package\.json/),
    });
  });

  it('never lie behind a link, in the middle or at the end', async () => {
    const outside = mkdtempSync(join(tmpdir(), 'acode-outside-'));
    mkdirSync(join(outside, 'a'));
    writeFileSync(join(outside, 'a/package.json'), '{}');
    files({ 'package.json': '{"workspaces":["packages/*","linked/a","b"]}', 'packages/real/package.json': '{}' });
    symlinkSync(outside, join(top, 'linked'));
    symlinkSync(join(outside, 'a'), join(top, 'packages/a'));
    symlinkSync(join(outside, 'a'), join(top, 'b'));
    try {
      await expect(names('npm')).resolves.toEqual(['packages/real']);
      // Control: the same packages are found where they are directories.
      rmSync(join(top, 'linked'));
      files({ 'linked/a/package.json': '{}' });
      await expect(names('npm')).resolves.toEqual(['linked/a', 'packages/real']);
    } finally {
      rmSync(outside, { recursive: true });
    }
  });

  it('are found, or not, in files that were made to keep a reader busy', async () => {
    files({ 'go.work': 'use (\n'.repeat(20_000), 'a/go.mod': '' });
    await expect(names('go')).rejects.toThrow(/more than acode reads|does not follow|names no directory/);
    files({ 'Cargo.toml': `[workspace]\n${'members = [\n'.repeat(20_000)}` });
    await expect(names('cargo')).rejects.toThrow(/names no directory/);
    const deep = 'a/b/c/d/e/f/g';
    files({ [`${deep}/package.json`]: '{}' });
    files({ 'package.json': JSON.stringify({ workspaces: [deep, `!${'**/'.repeat(60)}zz`] }) });
    expect(await names('npm')).toEqual([deep]);
    files({ 'package.json': JSON.stringify({ workspaces: [deep, '!a/**/g'] }) });
    await expect(names('npm')).rejects.toThrow(/names no directory/);
  });

  it('are bounded: more than 200 are refused', async () => {
    const many = Object.fromEntries(Array.from({ length: 201 }, (_, n) => [`p/${n}/package.json`, '{}']));
    files({ 'package.json': '{"workspaces":["p/*"]}', ...many });
    await expect(names('npm')).rejects.toMatchObject({ message: expect.stringMatching(/more than acode reads/) });
  });

  it('are refused where there is no workspace, or nothing in it', async () => {
    files({ 'package.json': '{}', Makefile: '' });
    await expect(names('npm')).rejects.toMatchObject({ hint: expect.stringMatching(/workspaces/) });
    await expect(names('make')).rejects.toMatchObject({ hint: expect.stringMatching(/make has no workspaces/) });
    files({ 'package.json': '{"workspaces":["none/*"]}' });
    await expect(names('npm')).rejects.toMatchObject({ message: expect.stringMatching(/names no directory/) });
  });
});

describe('several packages at a time', () => {
  const GIB = 1024 ** 3;

  it.each([
    ['what was asked for', 5, undefined, { cpus: 2, memoryBytes: 8 * GIB }, 5],
    ['as many as there are CPUs', undefined, undefined, { cpus: 2, memoryBytes: 64 * GIB }, 2],
    ['as many as the memory allows', undefined, undefined, { cpus: 8, memoryBytes: 8 * GIB }, 3],
    ['fewer with more memory each', undefined, 4 * GIB, { cpus: 8, memoryBytes: 8 * GIB }, 1],
    ['one at least', undefined, undefined, { cpus: 8, memoryBytes: GIB }, 1],
  ])('are %s', (_, asked, memory, machine, expected) => {
    expect(jobsFor(asked, memory, machine)).toBe(expected);
  });

  it('keep the end of what each printed', () => {
    const tail = new OutputTail(8);
    for (const text of ['first ', 'second ', 'third']) tail.push(Buffer.from(text));
    expect(tail.end()).toEqual({ output: 'second third', omittedBytes: 6 });
  });

  it('are one table at the end', () => {
    const one = (name: string, outcome: PackageResult['outcome'], exitCode: number | null): PackageResult => ({
      package: name,
      outcome,
      exitCode,
      durationMs: 1234,
      output: '',
      omittedBytes: 0,
      messages: outcome === 'skipped' ? ['package.json has no script named test'] : [],
      riskyChanges: [],
    });
    const colours = new Proxy({}, { get: () => String }) as never;
    const results = [one('a', 'passed', 0), one('b', 'failed', 2), one('c', 'skipped', null)];
    expect(renderResults(results, { colours, width: null, terminal: false, now: 0 })).toBe(
      [
        'PACKAGE  RESULT      TIME   NOTE',
        'a        passed      1.2 s',
        'b        failed (2)  1.2 s',
        'c        skipped     -      package.json has no script named test',
        '1 passed, 1 failed, 1 skipped',
        '',
      ].join('\n'),
    );
  });
});

describe('`acode test` and `acode build`', () => {
  const acode = (...argv: string[]) => call(argv, { cwd: () => top });

  it.each<[string[], RegExp]>([
    [['test'], /no project to test.*\n.*\n.*Looked for: package\.json/],
    [['test', 'watch'], /takes its arguments after `--`.*\n.*\n.*`acode test -- watch`/],
    [['build', '--jobs', '2'], /--jobs needs --parallel/],
    [['build', '--with', 'bazel'], /npm, pnpm, yarn, pytest, cargo, go, dotnet, make/],
  ])('%j is refused with what to type', async (argv, text) => {
    const { status, stderr } = await acode(...argv);
    expect(status).toBe(2);
    expect(stderr).toMatch(text);
  });

  it('says where package.json lacks the script', async () => {
    files({ 'package.json': '{"scripts":{"test":"x"}}' });
    await expect(acode('build')).resolves.toMatchObject({
      status: 2,
      stderr: expect.stringMatching(/no script named build.*`npm run build`/),
    });
  });
});
