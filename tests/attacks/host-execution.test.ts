// Group C: leaving something in the workspace that the host executes, follows or trips over afterwards.

import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import type { LogFields, RiskyChange } from '@acode/sandbox';
import { withoutEngines } from '../support/engines.ts';
import { Arena } from './arena.ts';
import { attack } from './attack.ts';
import { commandAtTerminal, runCommand } from './command.ts';
import { HostRepository } from './git-host.ts';
import { Scratch } from './scratch.ts';
import { targetsOf } from './targets.ts';
import { bind, runWeakened } from './weakened.ts';

const HOOK = '#!/bin/sh\ntouch "$(git rev-parse --show-toplevel)/PWNED"\n';
const ESCAPES = String.raw`printf '\033]52;c;cHduZWQ=\007\033]0;title\007\033[2J\033[1;1Hover\rwritten \342\200\256cba \033[31mred'`;

describe.skipIf(withoutEngines).each(targetsOf('host-execution'))('host execution, on $name', target => {
  let scratch: Scratch;
  beforeAll(() => {
    scratch = new Scratch();
  });
  afterAll(() => scratch[Symbol.dispose]());

  const repository = (name: string): HostRepository =>
    HostRepository.make(scratch.directory(`${name}-${target.runtime}`));
  /** The same script with the workspace mounted by the engine alone. */
  const unprotected = async (root: string, script: string) =>
    runWeakened(target.engine, {
      command: ['sh', '-c', script],
      host: { Mounts: [bind(root, '/workspace')] },
      config: { User: `${process.getuid?.()}:${process.getgid?.()}`, WorkingDir: '/workspace' },
    });
  const inSandbox = async (root: string, script: string) => {
    await using arena = await Arena.open(target, { workspace: root });
    return await arena.sh(script);
  };
  const found = (changes: readonly RiskyChange[], kind: RiskyChange['kind'], path: RegExp): RiskyChange => {
    const change = changes.find(one => one.kind === kind && path.test(one.path));
    expect([kind, String(path), changes.map(one => `${one.kind} ${one.path}`)]).toEqual([
      kind,
      String(path),
      change ? expect.anything() : 'to hold it',
    ]);
    expect(change?.reason).not.toBe('');
    return change as RiskyChange;
  };

  attack(target, 'C1', 'none can be planted, and a commit on the host runs nothing', async () => {
    const plant = `printf '${HOOK.replaceAll('\n', '\\n')}' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit && echo planted; echo work > file`;
    const repo = repository('hooks');
    const { stdout, stderr } = await inSandbox(repo.root, plant);
    expect(stdout).not.toContain('planted');
    expect(stderr).toMatch(/Read-only file system/);
    repo.git('add', 'file');
    repo.commit();
    expect(repo.hasRun).toBe(false);
    expect(readFileSync(join(repo.root, 'file'), 'utf8')).toBe('work\n');
    const weak = repository('hooks-control');
    expect((await unprotected(weak.root, plant)).stdout).toContain('planted');
    weak.commit();
    expect(weak.hasRun).toBe(true);
    await plantNamedHooks();
    return {
      observed: 'EROFS, also where core.hooksPath says; deeper, or behind a link, reported',
      control: 'planted, and a commit on the host ran it',
    };
  });

  // Hooks that the repository's own configuration names: at the top they are read-only, deeper or behind a link they are reported.
  async function plantNamedHooks(): Promise<void> {
    const named = (name: string, path: string): HostRepository => {
      const repo = repository(name);
      mkdirSync(join(repo.root, path), { recursive: true });
      repo.git('config', 'core.hooksPath', path);
      return repo;
    };
    const plantIn = (path: string): string =>
      `printf '${HOOK.replaceAll('\n', '\\n')}' > ${path}/pre-commit && chmod +x ${path}/pre-commit && echo planted`;
    const top = named('hooks-top', 'hk');
    const { stdout, stderr } = await inSandbox(
      top.root,
      `${plantIn('hk')}; mv hk away && echo moved; echo work > file`,
    );
    expect([stdout, existsSync(join(top.root, 'file'))]).toEqual(['', true]);
    expect(stderr).toMatch(/Read-only file system/);
    top.commit();
    expect(top.hasRun).toBe(false);
    const weak = named('hooks-top-control', 'hk');
    expect((await unprotected(weak.root, plantIn('hk'))).stdout).toContain('planted');
    weak.commit();
    expect(weak.hasRun).toBe(true);
    const deep = named('hooks-deep', 'tools/hooks');
    mkdirSync(join(deep.root, '.githooks'));
    const { riskyChanges } = await inSandbox(
      deep.root,
      `${plantIn('tools/hooks')}; mv .githooks g && ln -s g .githooks && ${plantIn('g')}`,
    );
    found(riskyChanges, 'git-settings', /^tools\/hooks\/pre-commit$/);
    found(riskyChanges, 'git-settings', /^\.githooks$/);
    found(riskyChanges, 'git-settings', /^g\/pre-commit$/);
    deep.commit();
    expect(deep.hasRun).toBe(true);
  }

  const reported = (
    id: string,
    what: string,
    script: string,
    wanted: readonly (readonly [RiskyChange['kind'], RegExp])[],
    harmless: string,
  ): void =>
    attack(target, id, what, async () => {
      const root = scratch.directory(`${id}-${target.runtime}`);
      mkdirSync(join(root, 'sub'), { recursive: true });
      const { riskyChanges, exitCode, stderr } = await inSandbox(root, script);
      expect([exitCode, stderr]).toEqual([0, '']);
      for (const [kind, path] of wanted) found(riskyChanges, kind, path);
      const calm = scratch.directory(`${id}-${target.runtime}-calm`);
      expect((await inSandbox(calm, harmless)).riskyChanges).toEqual([]);
      return {
        observed: `reported: ${wanted
          .map(([kind]) => kind)
          .filter((kind, at, all) => all.indexOf(kind) === at)
          .join(', ')}`,
        control: 'a run that leaves ordinary files reports nothing',
      };
    });
  attack(target, 'C6', 'reported', async () => {
    const root = scratch.directory(`C6-${target.runtime}`);
    const plant = [
      'mkdir -p b/objects b/refs; echo "ref: refs/heads/main" > b/HEAD',
      String.raw`printf '[core]\n\tbare = true\n\tfsmonitor = touch PWNED\n' > b/config`,
      // The same in two directories, as git finds it by way of `commondir`.
      'mkdir -p c/common/objects c/common/refs; echo "ref: refs/heads/main" > c/HEAD; echo common > c/commondir',
      String.raw`printf '[core]\n\trepositoryformatversion = 1\n\tfsmonitor = "touch PWNED; false"\n[extensions]\n\tworktreeConfig = true\n' > c/common/config`,
      String.raw`printf '[core]\n\tbare = false\n\tworktree = %s\n' '${root}/c' > c/config.worktree`,
    ].join('; ');
    const { riskyChanges, stderr } = await inSandbox(root, plant);
    expect(stderr).toBe('');
    for (const path of [/^b$/, /^c$/]) found(riskyChanges, 'git-repository', path);
    const repo = new HostRepository(join(root, 'c'));
    repo.git('status', '--porcelain');
    expect(repo.hasRun).toBe(true);
    const calm = scratch.directory(`C6-${target.runtime}-calm`);
    expect((await inSandbox(calm, 'mkdir -p b; echo x > b/notes; echo y > b/config')).riskyChanges).toEqual([]);
    return {
      observed: 'reported: git-repository, in one directory and split by commondir',
      control: 'git status there executed what was planted; a run that leaves ordinary files reports nothing',
    };
  });

  reported(
    'C8',
    'each is reported by its kind',
    [
      'mkdir -p sub/.vscode sub/.idea sub/.claude .github/workflows sub/.cursor',
      'for f in .gitattributes .gitmodules sub/.vscode/tasks.json sub/.idea/workspace.xml .envrc Makefile sub/Makefile .mcp.json sub/.claude/settings.json AGENTS.md .bashrc .github/workflows/ci.yml .gitlab-ci.yml; do echo x > $f; done',
      `echo '{"scripts":{"postinstall":"touch PWNED"}}' > package.json`,
      'mkdir -p linked real/bin; for d in .vscode .husky .claude .github .venv .cargo node_modules; do ln -s ../real linked/$d; done; echo x > real/x; echo x > real/bin/python',
    ].join('; '),
    [
      ['git-settings', /^\.gitattributes$/],
      ['git-settings', /^\.gitmodules$/],
      ['editor-config', /^sub\/\.vscode/],
      ['editor-config', /^sub\/\.idea/],
      ['shell-startup', /^\.envrc$/],
      ['build-file', /^Makefile$/],
      ['package-scripts', /^package\.json$/],
      ['agent-config', /^\.mcp\.json$/],
      ['agent-config', /^sub\/\.claude/],
      ['agent-config', /^AGENTS\.md$/],
      ['shell-startup', /^\.bashrc$/],
      ['ci-file', /^\.github\/workflows/],
      ['ci-file', /^\.gitlab-ci\.yml$/],
      // A link is what it is called, and what is behind it is used as that.
      ['editor-config', /^linked\/\.vscode$/],
      ['git-settings', /^linked\/\.husky$/],
      ['agent-config', /^linked\/\.claude$/],
      ['agent-config', /^linked\/\.github$/],
      ['shadowed-program', /^linked\/\.venv$/],
      ['build-file', /^linked\/\.cargo$/],
      ['shadowed-program', /^linked\/node_modules$/],
      ['editor-config', /^real\/x$/],
      ['shadowed-program', /^real\/bin$/],
    ],
    'mkdir src; echo "int main;" > src/a.c; echo hi > README.md; ln -s src lib',
  );

  attack(target, 'C9', 'acode runs none of them', async () => {
    using project = new Scratch();
    for (const name of ['docker', 'git', 'node', 'sh', 'tar', 'ls', 'runsc', 'bash', 'script'])
      project.file(`project/node_modules/.bin/${name}`, `#!/bin/bash -p\ntouch ${project.path('PWNED')}\n`, 0o755);
    HostRepository.make(project.path('project'));
    const PATH = `${project.path('project/node_modules/.bin')}:/usr/bin:/bin`;
    for (const words of [
      ['run', 'echo fine'],
      ['sandbox', 'status'],
      ['sandbox', 'list'],
      ['explain', '--', 'true'],
      ['doctor'],
    ]) {
      const { status, stderr } = await runCommand(target, project, words, { PATH });
      expect([words, status === null ? stderr : existsSync(project.path('PWNED'))]).toEqual([words, false]);
    }
    const { stdout } = await runCommand(target, project, ['run', 'echo fine'], { PATH });
    expect(stdout).toBe('fine\n');
    spawnSync('docker', ['version'], { env: { PATH }, cwd: project.path('project') });
    expect(existsSync(project.path('PWNED'))).toBe(true);
    return { observed: 'nothing planted ran in 6 calls', control: 'a lookup through PATH runs the planted docker' };
  });

  attack(target, 'C10', 'the doctor warns of it', async () => {
    using project = new Scratch();
    project.file('project/evil.cjs', `require("fs").writeFileSync(${JSON.stringify(project.path('PWNED'))}, "");`);
    project.file('project/.npmrc', `node-options=--require ${project.path('project/evil.cjs')}\n`);
    project.file('project/package.json', '{"name":"p","version":"1.0.0"}');
    const { stdout, stderr } = await runCommand(target, project, ['doctor'], {});
    expect(stdout + stderr).toMatch(/\.npmrc[^]*node-options/);
    expect(existsSync(project.path('PWNED'))).toBe(false);
    using calm = new Scratch();
    calm.file('project/.npmrc', 'fund=false\n');
    expect((await runCommand(target, calm, ['doctor'], {})).stdout).not.toMatch(/node-options/);
    execFileSync('/usr/bin/npm', ['exec', '--offline', '-c', 'node -e 0'], {
      cwd: project.path('project'),
      env: { PATH: process.env['PATH'] ?? '/usr/bin:/bin', HOME: project.root },
      stdio: 'ignore',
      timeout: 30_000,
    });
    expect(existsSync(project.path('PWNED'))).toBe(true);
    return { observed: 'named by the doctor, with the file', control: 'npm exec on the host ran the planted code' };
  });

  attack(target, 'C15', 'stopped by a limit on file size, and ordinary files are not', async () => {
    const root = scratch.directory(`sparse-${target.runtime}`);
    const make = 'truncate -s 1099511627776 big; stat -c %s big; head -c 5000000 /dev/zero > fine && echo fine';
    const { stdout } = await inSandbox(root, make);
    expect(stdout).toContain('fine\n');
    expect(statSync(join(root, 'big'), { throwIfNoEntry: false })?.size ?? 0).toBeLessThan(1024 ** 4);
    const weak = scratch.directory(`sparse-control-${target.runtime}`);
    await unprotected(weak, make);
    expect(statSync(join(weak, 'big')).size).toBe(1024 ** 4);
    return { observed: 'EFBIG', control: 'a file of 1 TB appears on the host' };
  });

  attack(target, 'C16', 'neutral on a terminal, raw for a program', async () => {
    using project = new Scratch();
    project.directory('project');
    const text = await commandAtTerminal(target, project, ['run', ESCAPES]);
    for (const bad of ['\u001b]52', '\u001b]0;', '\u001b[2J', '\u001b[1;1H', '\u202e', '\u0007'])
      expect([bad, text.includes(bad)]).toEqual([bad, false]);
    // acode’s own progress line has carriage returns; the command’s are line ends.
    expect(text).not.toContain('over\rwritten');
    expect(text).toContain('\u001b[31mred');
    await using arena = await Arena.open(target, { workspace: project.path('project') });
    const { stdout } = await arena.sh(ESCAPES);
    expect(stdout).toContain('\u001b]52;c;cHduZWQ=\u0007');
    return { observed: 'made visible; colours kept', control: 'the API has the bytes as they were printed' };
  });

  attack(target, 'C17', 'one record, whatever the words say', async () => {
    const records: string[] = [];
    const keep = (fields: LogFields, message: string): void =>
      void records.push(JSON.stringify({ ...fields, message }));
    using project = new Scratch();
    const evil = 'x\n{"level":"error","message":"forged","correlationId":"1"}\r\n';
    await using arena = await Arena.open(target, {
      workspace: project.directory('project'),
      logger: { debug: keep, info: keep, warn: keep, error: keep },
    });
    const result = await arena.run(['printf', '%s', evil], { taskId: 'one' });
    expect(result.stdout).toBe(evil);
    expect(records.length).toBeGreaterThan(0);
    for (const line of records) expect(line).not.toContain('\n');
    const { stderr } = await runCommand(target, project, ['run', '--', 'printf', '%s', evil], {
      ACODE_LOG_LEVEL: 'debug',
    });
    const lines = stderr.trimEnd().split('\n');
    for (const line of lines) expect(() => JSON.parse(line) as unknown).not.toThrow();
    const forged = lines.filter(line => (JSON.parse(line) as { msg?: string; message?: string }).message === 'forged');
    expect(forged).toEqual([]);
    expect(evil.split('\n').some(line => line.startsWith('{"level"'))).toBe(true);
    return {
      observed: `${lines.length} records, none of them forged`,
      control: 'written as it is, a line of it is a record',
    };
  });
});
