// Commits of a fork as a branch of the host’s repository: what git makes in a sandbox, and what a hostile fork makes of it.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { policyFrom } from '@acode/sandbox';
import type { RunResult } from '@acode/sandbox';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';

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
