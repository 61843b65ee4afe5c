// Git in a fork: a linked worktree, whose repository is outside of the workspace.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Acode, policyFrom } from '@acode/sandbox';
import type { PolicyInput, RunResult } from '@acode/sandbox';
import { TestHost, images, mainEngine, makeWorkspace, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { fingerprint } from './project.ts';

const STORE = join(process.env['XDG_STATE_HOME'] ?? '', 'acode', 'f');
const FORK = { workspace: 'fork' } as const;
const COMMIT = 'git -c user.name=agent -c user.email=agent@inside commit -q';
const withoutBubblewrap = process.getuid?.() === 0 || !existsSync('/usr/bin/bwrap');

/** A repository and a linked worktree of it, side by side. */
class Linked implements Disposable {
  readonly place = makeWorkspace();
  readonly main = join(this.place, 'main');
  readonly worktree = join(this.place, 'linked');
  readonly sandbox = { mounts: { allowed_host_roots: [this.main] } };

  constructor() {
    mkdirSync(this.main);
    this.git('init', '-q', '-b', 'main');
    writeFileSync(join(this.main, 'a.txt'), 'one\n');
    this.git('add', '-A');
    this.git('commit', '-q', '-m', 'first');
    this.git('worktree', 'add', '-q', '-b', 'side', this.worktree);
  }

  git(...argv: string[]): string {
    return execFileSync('git', ['-c', 'user.name=me', '-c', 'user.email=me@host', ...argv], {
      cwd: this.main,
      encoding: 'utf8',
      stdio: 'pipe',
      timeout: 20_000,
      env: { PATH: process.env['PATH'], HOME: this.place, GIT_CONFIG_NOSYSTEM: '1', GIT_CONFIG_GLOBAL: '/dev/null' },
    }).trim();
  }

  [Symbol.dispose](): void {
    rmSync(this.place, { recursive: true, force: true });
  }
}

const CHANGE = `pwd; echo more >> a.txt && git status --short && git add -A && ${COMMIT} -m inside`;
const SHOW = 'git status --short; git log --format=%s; git worktree list | wc -l';

describe.skipIf(withoutEngines)('a fork of a linked worktree', () => {
  let linked: Linked;
  let host: TestHost;
  const run = (script: string, policy: PolicyInput = FORK, on = host): Promise<RunResult> =>
    on.acode.run(['sh', '-c', script], { policy: policyFrom({ image: images.debian, ...policy }) });

  const open = (engine = { socket: mainEngine.socket }): Promise<TestHost> =>
    TestHost.open(mainEngine, { engine, workspace: linked.worktree, config: { sandbox: linked.sandbox } });

  beforeAll(async () => {
    linked = new Linked();
    host = await open();
  });
  afterAll(async () => {
    await host[Symbol.asyncDispose]();
    linked[Symbol.dispose]();
  });

  it('takes commits, which the next command sees, and the repository of the host is what it was', async () => {
    const before = fingerprint(linked.place);
    expect(await run(CHANGE)).toMatchObject({ exitCode: 0, stdout: `${linked.worktree}\n M a.txt\n`, stderr: '' });
    expect(await run(SHOW)).toMatchObject({ exitCode: 0, stdout: 'inside\nfirst\n2\n', stderr: '' });
    expect(fingerprint(linked.place)).toBe(before);
    // The control: without a fork its repository is read-only, and a fork of another name has nothing of this.
    expect((await run('git update-ref refs/heads/x HEAD', {})).stderr).toContain('Read-only file system');
    expect((await run('git log --format=%s', { fork: 'other' })).stdout).toBe('first\n');
  });

  it('brings its commits home as a branch, and keeps them where the files are applied', async () => {
    const { changes } = await host.acode.forks.diff();
    expect(changes.map(({ path }) => path)).toEqual(['a.txt']);
    await host.acode.forks.apply({ acceptRisk: 'all' });
    expect(readFileSync(join(linked.worktree, 'a.txt'), 'utf8')).toBe('one\nmore\n');
    const made = await host.acode.forks.branch({ name: 'from-fork', image: images.debian });
    expect(made).toMatchObject({ created: true, commits: 1, paths: ['a.txt'] });
    expect(linked.git('log', '--format=%s', 'from-fork')).toBe('inside\nfirst');
    expect(linked.git('fsck', '--full', '--strict')).toBe('');
  });

  it('is refused where a layer over the repository is exchanged, and is removed with what the kernel left', async () => {
    await using proxy = await EngineProxy.start(mainEngine.socket);
    await using other = await open({ socket: proxy.socket });
    await run('git tag one && git tag -d one && git branch -q two', { fork: 'swapped' }, other);
    const id = (await other.acode.forks.list()).find(({ name }) => name === 'swapped')?.id ?? '';
    const layer = join(STORE, id, '1g');
    let swapped = false;
    proxy.onRequest((method, path) => {
      if (swapped || method !== 'POST' || !path.includes('/volumes/create')) return undefined;
      swapped = true;
      renameSync(layer, `${layer}.aside`);
      mkdirSync(layer);
      return undefined;
    });
    await expect(run('git tag', { fork: 'swapped' }, other)).rejects.toMatchObject({ code: 'ACODE-SBX-010' });
    expect(swapped).toBe(true);
    for (const fork of await other.acode.forks.list()) await other.acode.forks.discard(fork.id);
    expect(readdirSync(STORE)).toEqual([]);
  });
});

describe.skipIf(withoutBubblewrap)('a fork of a linked worktree at level bubblewrap', () => {
  it('takes commits, and the repository of the host is what it was', async () => {
    using linked = new Linked();
    await using acode = await Acode.open({
      workspace: linked.worktree,
      engine: { socket: '/nonexistent/docker.sock' },
      config: {
        sandbox: { ...linked.sandbox, level: 'bubblewrap', bubblewrap: { accept_process_limits: true } },
      },
    });
    const before = fingerprint(linked.place);
    const run = (script: string): Promise<RunResult> => acode.run(['sh', '-c', script], { policy: FORK, risk: 'low' });
    expect(await run(CHANGE)).toMatchObject({ exitCode: 0, stdout: `${linked.worktree}\n M a.txt\n`, stderr: '' });
    expect(await run(SHOW)).toMatchObject({ exitCode: 0, stdout: 'inside\nfirst\n2\n', stderr: '' });
    expect(fingerprint(linked.place)).toBe(before);
    await acode.forks.discard();
    expect(readdirSync(STORE)).toEqual([]);
  });
});

describe.skipIf(withoutEngines)('git in a fork of a plain clone', () => {
  it('commits in a submodule, narrows a checkout, and moves a directory with mv; git mv gets EXDEV', async () => {
    await using host = await TestHost.open(mainEngine);
    const git = (...argv: string[]): string =>
      execFileSync(
        'git',
        ['-c', 'protocol.file.allow=always', '-c', 'user.name=me', '-c', 'user.email=me@host', ...argv],
        {
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
        },
      ).trim();
    using linked = new Linked();
    git('init', '-q', '-b', 'main');
    for (const name of ['src', 'docs']) {
      mkdirSync(host.file(name));
      writeFileSync(host.file(`${name}/file`), `${name}\n`);
    }
    git('add', '-A');
    git('submodule', '--quiet', 'add', linked.main, 'sub');
    git('commit', '-q', '-m', 'first');
    const before = fingerprint(host.workspace);
    const run = (script: string): Promise<RunResult> =>
      host.acode.run(['sh', '-c', script], { policy: policyFrom({ image: images.debian, ...FORK }) });
    const submodule = await run(
      `cd sub && echo more >> a.txt && git add -A && ${COMMIT} -m below && git log --format=%s`,
    );
    expect(submodule).toMatchObject({ exitCode: 0, stdout: 'below\nfirst\n' });
    const outer = await run(
      `git add sub && ${COMMIT} -m above && git submodule status && git fsck --strict 2>&1 && git log --format=%s`,
    );
    expect(outer).toMatchObject({
      exitCode: 0,
      stdout: expect.stringMatching(/^ [0-9a-f]{40} sub .*\n(?:.*\n)*above\nfirst\n$/),
    });
    // A directory of the workspace: rename(2) fails, and mv copies.
    const moved = await run('git mv src moved; mv src moved && git add -A && git status --short');
    expect(moved.stderr).toContain('Invalid cross-device link');
    expect(moved.stdout).toBe('R  src/file -> moved/file\n');
    const sparse = await run(`${COMMIT} -m moved && git status --short && git sparse-checkout set moved && ls`);
    expect(sparse).toMatchObject({ exitCode: 0, stdout: 'moved\nsub\n' });
    expect(fingerprint(host.workspace)).toBe(before);
    await host.acode.forks.discard();
  });
});
