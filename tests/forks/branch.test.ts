// Commits of a fork as a branch of the host’s repository: what git makes in a sandbox, and what a hostile fork makes of it.

import { execFileSync } from 'node:child_process';
import { existsSync, lstatSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { policyFrom } from '@acode/sandbox';
import type { RunResult } from '@acode/sandbox';
import { TestHost, engines, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { ATTACKS } from './attacks.ts';

const IDENTITY = '-c user.name=agent -c user.email=agent@inside';
const STORE = join(process.env['XDG_STATE_HOME'] ?? '', 'acode', 'f');

describe.skipIf(withoutEngines)('a branch out of a fork', () => {
  let host: TestHost;
  let base: string;
  const git = (...argv: string[]): string =>
    execFileSync('git', ['-c', 'user.name=me', '-c', 'user.email=me@host', ...argv], {
      cwd: host.workspace,
      encoding: 'utf8',
      stdio: 'pipe',
      timeout: 20_000,
      env: {
        PATH: process.env['PATH'],
        HOME: host.workspace,
        GIT_CONFIG_NOSYSTEM: '1',
        GIT_CONFIG_GLOBAL: '/dev/null',
      },
    }).trim();
  const inFork = (fork: string, script: string): Promise<RunResult> =>
    host.acode.run(['sh', '-c', script], { policy: policyFrom({ image: images.debian, fork }) });
  const marker = (): string => join(host.workspace, '.git', 'marker');

  beforeAll(async () => {
    host = await TestHost.open(mainEngine);
    git('init', '-q', '-b', 'main');
    writeFileSync(join(host.workspace, 'a.txt'), 'one\n');
    mkdirSync(join(host.workspace, 'src'));
    writeFileSync(join(host.workspace, 'src/b.txt'), 'two\n');
    writeFileSync(join(host.workspace, '.gitignore'), 'ignored\n');
    git('add', '-A');
    git('commit', '-q', '-m', 'first');
    base = git('rev-parse', 'HEAD');
    // What git on the host would run as soon as it opens this repository.
    writeFileSync(join(host.workspace, '.git/monitor'), `#!/bin/sh\necho ran >> ${marker()}\n`, { mode: 0o755 });
    git('config', 'core.fsmonitor', '.git/monitor');
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it('is one commit of the changes, and work tree, index and configuration of the host are what they were', async () => {
    const files = ['.git/index', '.git/HEAD', '.git/config', 'a.txt'];
    const before = files.map(name => [
      readFileSync(join(host.workspace, name)),
      statSync(join(host.workspace, name)).mtimeMs,
    ]);
    await inFork('changes', 'echo more >> a.txt; rm src/b.txt; mkdir new; echo n > new/n; echo no > ignored');
    const made = await host.acode.forks.branch({ name: 'fix/one', fork: 'changes', image: images.debian });
    expect(made).toMatchObject({
      created: true,
      made: true,
      commits: 1,
      base,
      counts: { added: 1, changed: 1, deleted: 1 },
    });
    expect(made.paths).toEqual(['a.txt', 'new/n', 'src/b.txt']);
    expect(
      files.map(name => [readFileSync(join(host.workspace, name)), statSync(join(host.workspace, name)).mtimeMs]),
    ).toEqual(before);
    expect(existsSync(marker())).toBe(false);
    // The fork has what it had, and nothing of the work is left.
    expect(await host.acode.forks.history('changes')).toHaveLength(1);
    expect(readdirSync(join(STORE, made.forkId)).filter(name => name === 'q' || name === '2')).toEqual([]);
    // The control: git itself runs what the configuration names, and reads the branch.
    expect(git('rev-parse', 'fix/one^')).toBe(base);
    expect(git('show', 'fix/one:a.txt')).toBe('one\nmore');
    expect(git('fsck', '--full', '--strict')).toBe('');
    git('status');
    expect(readFileSync(marker(), 'utf8')).toContain('ran');
  });

  it('is what was committed inside, with its risks accepted, and no branch that exists is changed', async () => {
    await inFork(
      'commits',
      `echo 1 > one && git add one && git ${IDENTITY} commit -qm one && echo '{}' > package.json && git add -A && git ${IDENTITY} commit -qm two && echo x > open`,
    );
    const request = { name: 'feature', fork: 'commits', image: images.debian };
    const refused = await host.acode.forks.branch(request).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: 'ACODE-FRK-016', context: { way: 'branch', rules: ['package-scripts'] } });
    expect(existsSync(join(host.workspace, '.git/refs/heads/feature'))).toBe(false);
    const made = await host.acode.forks.branch({
      ...request,
      confirm: ({ commits, uncommitted }) =>
        Promise.resolve(commits === 2 && uncommitted ? { acceptRisk: ['package-scripts'] } : null),
    });
    expect(made).toMatchObject({ created: true, made: false, commits: 2, uncommitted: true });
    const records = await host.acode.audit.tail({ count: 50 });
    expect(records).toContainEqual(
      expect.objectContaining({
        event: 'commits of a fork to be added as a branch',
        detail: expect.objectContaining({
          branch: 'feature',
          range: `${base}..${made.commit}`,
          acceptedRisk: 'package-scripts',
        }),
      }),
    );
    expect(git('log', '--format=%s %an', 'feature')).toBe('two agent\none agent\nfirst me');
    await expect(host.acode.forks.branch({ ...request, acceptRisk: 'all' })).rejects.toMatchObject({
      code: 'ACODE-FRK-018',
    });
  });

  it('is refused where the fork writes something else than a bundle of git', async () => {
    await inFork(
      'hostile',
      `b=$(echo x | git hash-object -w --stdin) && t=$(printf '100644 blob %s\\t.git\\n' $b | git mktree) && c=$(git ${IDENTITY} commit-tree $t -p HEAD -m x) && git update-ref HEAD $c`,
    );
    await expect(
      host.acode.forks.branch({ name: 'evil', fork: 'hostile', image: images.debian, acceptRisk: 'all' }),
    ).rejects.toMatchObject({ code: 'ACODE-FRK-019' });
    expect(existsSync(join(host.workspace, '.git/refs/heads/evil'))).toBe(false);
  });
});

// What lies in the fork’s own `.git` stays there, whatever is accepted, and FIFOs are nothing to git.
const STAYS = /^C[1-4] |^C5 |^C13 /;

describe.skipIf(withoutEngines).each(engines)('what leaves a fork as a branch on $name', engine => {
  let host: TestHost;
  const git = (...argv: string[]): string =>
    execFileSync('git', ['-c', 'user.name=me', '-c', 'user.email=me@host', ...argv], {
      cwd: host.workspace,
      encoding: 'utf8',
      stdio: 'pipe',
      timeout: 20_000,
      env: {
        PATH: process.env['PATH'],
        HOME: host.workspace,
        GIT_CONFIG_NOSYSTEM: '1',
        GIT_CONFIG_GLOBAL: '/dev/null',
      },
    }).trim();
  const inFork = async (fork: string, script: string): Promise<void> => {
    const policy = policyFrom({ image: images.debian, fork });
    const { exitCode, stderr } = await host.acode.run(['sh', '-c', script], { policy });
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
  };
  const branch = (fork: string, more: object = {}) =>
    host.acode.forks.branch({ name: `out/${fork}`, fork, image: images.debian, ...more });
  /** Everything of the workspace but the objects and refs of its repository, to which a branch is added. */
  const tree = (): string[] =>
    readdirSync(host.workspace, { recursive: true, encoding: 'utf8' })
      .filter(path => !/^\.git\/(?:objects|refs)(?:\/|$)/.test(path))
      .sort()
      .map(path => {
        const { mode, mtimeMs, size } = lstatSync(host.file(path));
        return `${path} ${mode} ${mtimeMs} ${size} ${(mode & 0o170000) === 0o100000 ? readFileSync(host.file(path), 'latin1') : ''}`;
      });
  const marker = (): string => host.file('.git/ran');

  beforeAll(async () => {
    host = await TestHost.open(engine);
    git('init', '-q', '-b', 'main');
    writeFileSync(host.file('a.txt'), 'one\n');
    git('add', '-A');
    git('commit', '-q', '-m', 'first');
  });
  afterAll(async () => {
    for (const { id } of await host.acode.forks.list()) await host.acode.forks.discard(id);
    await host[Symbol.asyncDispose]();
  });

  it('is nothing of any attack, as long as paths are not named and risks are not accepted by their rule', async () => {
    const before = tree();
    const tried = Object.entries(ATTACKS).filter(([id]) => !STAYS.test(id));
    // A commit that the next one takes back can be checked out, too.
    const undone = `echo x > tasks.gradle; echo all: > GNUmakefile; git add -A; git ${IDENTITY} commit -qm in; git rm -q GNUmakefile; git ${IDENTITY} commit -qm out`;
    await inFork('attack', `set -e; ${tried.map(([, [script]]) => script).join('\n')}\n${undone}`);
    const unnamed = await branch('attack', { acceptRisk: 'all' }).catch((error: unknown) => error);
    expect(unnamed).toMatchObject({ code: 'ACODE-FRK-018' });
    const { protectedPaths = [] } = (unnamed as { context: { protectedPaths?: string[] } }).context;
    expect(protectedPaths).toEqual(expect.arrayContaining(['.mcp.json', '.vscode/tasks.json']));
    const rules = [...new Set(tried.map(([, [, kind]]) => kind))].sort();
    for (const acceptRisk of [[], ['ci-file'], rules.slice(1)] as const)
      await expect(branch('attack', { protectedPaths, acceptRisk })).rejects.toMatchObject({
        code: 'ACODE-FRK-016',
        context: { way: 'branch', rules: expect.arrayContaining(rules) as string[] },
      });
    const seen: string[] = [];
    const shown = await branch('attack', {
      protectedPaths,
      confirm: ({ riskyChanges }: { riskyChanges: { kind: string; path: string }[] }) => {
        seen.push(...riskyChanges.map(({ kind, path }) => `${kind} ${path}`));
        return Promise.resolve(null);
      },
    });
    expect(shown.created).toBe(false);
    expect(seen).toEqual(
      expect.arrayContaining([...tried.map(([, [, kind, path]]) => `${kind} ${path}`), 'build-file GNUmakefile']),
    );
    expect(git('for-each-ref', '--format=%(refname)')).toBe('refs/heads/main');
    expect(tree()).toEqual(before);
    // The control: named and accepted, they are on the branch, and the work tree is what it was.
    expect(await branch('attack', { protectedPaths, acceptRisk: 'all' })).toMatchObject({ created: true, commits: 2 });
    expect(git('show', 'out/attack:Makefile')).toBe('all:');
    expect(tree()).toEqual(before);
  });

  it('has nothing of the fork’s git directory, and runs nothing that it names', async () => {
    const before = tree();
    const run = `touch ${marker()}`;
    const settings = ['core.fsmonitor', 'filter.x.clean', 'filter.x.smudge', 'diff.external', 'core.sshCommand'];
    const planted = [
      ...settings.map(name => `git config ${name} '${run}; cat'`),
      ...Object.entries(ATTACKS)
        .filter(([id]) => /^C[13] |^C5 |^C13 /.test(id))
        .map(([, [script]]) => script),
      `rm -r .g; echo '* filter=x' > .git/info/attributes; printf '#!/bin/sh\\n${run}\\n' > .git/hooks/post-commit; chmod +x .git/hooks/post-commit`,
      'echo more >> a.txt',
    ];
    await inFork('git', `set -e; ${planted.join('\n')}`);
    expect(await branch('git', { acceptRisk: 'all' })).toMatchObject({ created: true, paths: ['a.txt'] });
    expect(tree()).toEqual(before);
    expect(git('ls-tree', '-r', '--name-only', 'out/git')).toBe('a.txt');
    expect(existsSync(marker())).toBe(false);
    // The control: where git on the host finds the same settings, it runs them.
    git('config', 'core.fsmonitor', run);
    git('status');
    expect(existsSync(marker())).toBe(true);
    git('config', '--unset', 'core.fsmonitor');
    // A git directory that leads elsewhere is none, and no branch comes of it.
    await inFork('elsewhere', 'echo ../x > .git/commondir; echo more >> a.txt');
    await expect(branch('elsewhere', { acceptRisk: 'all' })).rejects.toMatchObject({ code: 'ACODE-FRK-018' });
    expect(git('for-each-ref', '--format=%(refname)', 'refs/heads/out/elsewhere')).toBe('');
  });
});
