// Git worktrees work inside, read-only, on real engines with real git; hostile ones are never followed.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TestHost, engines, images, withoutEngines } from '../support/engines.ts';

describe.skipIf(withoutEngines).each(engines)('on $name', engine => {
  let base: string;
  let worktree: string;
  const git = (cwd: string, ...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', ...args], { cwd, encoding: 'utf8' });
  const open = (roots: string[]) =>
    TestHost.open(engine, { workspace: worktree, config: { sandbox: { mounts: { allowed_host_roots: roots } } } });
  const look = 'git status --short && git log --format=%s && git diff --stat && cat file';

  beforeEach(() => {
    base = mkdtempSync('/var/tmp/acode-test-');
    worktree = join(base, 'trees/work');
    const repository = join(base, 'source/repository');
    mkdirSync(repository, { recursive: true });
    git(repository, 'init', '-q');
    writeFileSync(join(repository, 'file'), 'one\n');
    git(repository, 'add', '.');
    git(repository, 'commit', '-q', '-m', 'first');
    git(repository, 'worktree', 'add', '-q', worktree);
    writeFileSync(join(worktree, 'file'), 'two\n');
  });
  afterEach(() => rmSync(base, { recursive: true, force: true }));

  it('git status, log and diff work inside a worktree of an allowed repository, which cannot be written', async () => {
    await using host = await open([join(base, 'source')]);
    const { stdout, stderr, exitCode } = await host.acode.run(['sh', '-c', look], { policy: { image: images.debian } });
    expect(stderr).toBe('');
    expect(exitCode).toBe(0);
    expect(stdout).toMatch(/M file\nfirst\n file \| 2 \+-\n[^]*two\n$/);
    const config = join(base, 'source/repository/.git/config');
    const before = readFileSync(config, 'utf8');
    const attack = await host.acode.run(
      [
        'sh',
        '-c',
        `export LC_ALL=C; echo x >> ${config}; echo x > .git; git commit -qam evil; echo free > free && cat free`,
      ],
      { policy: { image: images.debian } },
    );
    expect(attack.stderr.match(/Read-only file system/g)?.length).toBeGreaterThanOrEqual(2);
    expect(attack.stdout).toBe('free\n');
    expect(readFileSync(config, 'utf8')).toBe(before);
    expect(git(worktree, 'log', '--format=%s')).toBe('first\n');
  });

  it('B14: a repository that is not allowed is not followed, and explain says why and what to do', async () => {
    await using host = await open([]);
    const result = await host.acode.run(['sh', '-c', `cat file; ls ${base}/source; git status`], {
      policy: { image: images.debian },
    });
    expect(result.stdout).toBe('two\n');
    expect(result.exitCode).not.toBe(0);
    const { notes } = await host.acode.explain(['true']);
    expect(notes).toContainEqual(expect.stringContaining('allowed_host_roots'));
  });
});
