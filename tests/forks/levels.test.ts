// Forks wherever a command runs: at level bubblewrap and on Podman, with the same layers as on a Docker Engine.

import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Acode, policyFrom } from '@acode/sandbox';
import type { PolicyInput, RunResult } from '@acode/sandbox';
import { BubblewrapBackend } from '../../packages/sandbox/src/isolation/bubblewrap/backend.ts';
import { partAt } from '../../packages/sandbox/src/workspace/fork/overlay.ts';
import { ForkStore } from '../../packages/sandbox/src/workspace/fork/store.ts';
import { Bench } from '../cli/bench.ts';
import { openHost } from '../conformance/host.ts';
import type { ConformanceHost } from '../conformance/host.ts';
import { targets } from '../conformance/targets.ts';
import { LevelBench, OPTIONS } from '../levels/bench.ts';
import { images, mainEngine, makeWorkspace, TestHost, withEngine, withoutEngines } from '../support/engines.ts';
import { EVERYTHING, fingerprint, project } from './project.ts';

const STORE = join(process.env['XDG_STATE_HOME'] ?? '', 'acode', 'f');
const FORK = { workspace: 'fork' } as const;
const withoutBubblewrap = process.getuid?.() === 0 || !existsSync('/usr/bin/bwrap');

const others = targets.filter(({ name, level }) => level === 'bubblewrap' || name.startsWith('podman'));

describe.each(others)('a fork on $name', target => {
  let host: ConformanceHost;
  let before: string;
  const runIn = (script: string, policy: PolicyInput = FORK): Promise<RunResult> =>
    host.acode.run(['sh', '-c', script], {
      policy: policyFrom({ ...host.image(images.debian), ...policy }),
      risk: 'low',
    });

  beforeAll(async () => {
    host = await openHost(target);
    project(host.workspace);
    before = fingerprint(host.workspace);
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it('takes everything that a command does, and the host’s tree is what it was', async () => {
    const { exitCode, fork, stderr } = await runIn(EVERYTHING);
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
    expect(fork?.id).toMatch(/^[a-z0-9]{8}$/);
    expect(fingerprint(host.workspace)).toBe(before);
    const { changes } = await host.acode.forks.diff();
    const of = (path: string) => changes.find(change => change.path === path);
    expect(of('a.txt')).toMatchObject({ change: 'changed', bytes: { before: 4, after: 9 } });
    expect(of('src/deep/b.txt')).toMatchObject({ change: 'deleted' });
    expect(of('.git/hooks/post-checkout')).toMatchObject({ change: 'added' });
    // The control: without a fork, the same command changes it.
    writeFileSync(host.file('control'), '');
    await runIn('echo more >> control', {});
    expect(fingerprint(host.workspace)).not.toBe(before);
    rmSync(host.file('control'));
    before = fingerprint(host.workspace);
  });

  it('is what the next command sees, until it is taken back and removed', async () => {
    expect((await runIn('cat a.txt src/c; test ! -e src/deep; stat -c %a run.sh; rm src/c')).stdout).toBe(
      'one\nmore\nnew\n600\n',
    );
    expect((await runIn('ls src')).stdout).toBe('');
    expect(await host.acode.forks.undo()).toHaveLength(1);
    // What the kernel made in the work directory for the deleted files is removed too.
    expect((await runIn('ls src; rm -r src run.sh a.txt')).stdout).toBe('c\n');
    await host.acode.forks.discard();
    expect(readdirSync(STORE)).toEqual([]);
    expect(fingerprint(host.workspace)).toBe(before);
  });

  it('says in what way it is mounted, as it was found by trying', async () => {
    const { notes } = await host.acode.explain(['true'], {
      policy: policyFrom({ ...host.image(images.debian), ...FORK }),
    });
    const [, minor = 0] = target.level === 'bubblewrap' ? bubblewrapVersion() : [];
    const local = minor >= 11 ? 'bubblewrap mounts' : '`mount` makes in a user namespace';
    const way = target.level === 'bubblewrap' ? local : 'the engine mounts, as a volume';
    expect(notes.join('\n')).toContain(`The fork of the workspace is an overlay that ${way}`);
  });

  it('is a copy where that is asked for: same changes, host’s tree as it was, masked files empty', async () => {
    writeFileSync(host.file('.env'), 'TOKEN=1\n');
    const was = fingerprint(host.workspace);
    const copy = { fork: 'copied', forkCopy: true };
    const { exitCode, stdout, stderr } = await runIn(`cat .env; ${EVERYTHING}`, copy);
    expect({ exitCode, stdout, stderr }).toEqual({ exitCode: 0, stdout: '', stderr: '' });
    const { notes } = await host.acode.explain(['true'], {
      policy: policyFrom({ ...host.image(images.debian), ...copy }),
    });
    expect(notes.join('\n')).toContain('The fork of the workspace is a copy');
    await runIn(EVERYTHING, { fork: 'mounted' });
    const [copied, mounted] = await Promise.all(
      ['copied', 'mounted'].map(async fork => {
        const { changes } = await host.acode.forks.diff({ fork });
        return changes.map(({ change, kind, path }) => `${change} ${kind} ${path}`);
      }),
    );
    expect(copied).toEqual(mounted);
    // Each goes on in the other way.
    const read = 'cat a.txt src/c; test ! -e src/deep; stat -c %a run.sh; rm src/c; echo 2 > two';
    expect((await runIn(read, copy)).stdout).toBe('one\nmore\nnew\n600\n');
    expect((await runIn('ls src; cat two', { fork: 'copied' })).stdout).toBe('2\n');
    expect(await host.acode.forks.undo({ fork: 'copied' })).toHaveLength(1);
    expect((await runIn('ls src', copy)).stdout).toBe('c\n');
    expect(fingerprint(host.workspace)).toBe(was);
    for (const { id } of await host.acode.forks.list()) await host.acode.forks.discard(id);
    expect(readdirSync(STORE)).toEqual([]);
    rmSync(host.file('.env'));
    before = fingerprint(host.workspace);
  });

  it('is written by one command at a time, and others have a fork of their own', async () => {
    const first = await host.acode.spawn(['sh', '-c', 'echo 1 > first; read line'], {
      policy: policyFrom({ ...host.image(images.debian), fork: 'shared' }),
      risk: 'low',
    });
    await expect(runIn('echo 2 > second', { fork: 'shared' })).rejects.toMatchObject({ code: 'ACODE-FRK-003' });
    expect((await runIn('ls first 2>/dev/null; echo 2 > second', { fork: 'other' })).stdout).toBe('');
    await first.closeStdin();
    await first.result;
    expect((await runIn('ls first second 2>/dev/null', { fork: 'shared' })).stdout).toBe('first\n');
    for (const { id } of await host.acode.forks.list()) await host.acode.forks.discard(id);
    expect(readdirSync(STORE)).toEqual([]);
  });
});

describe.skipIf(withoutBubblewrap)('a fork at level bubblewrap that is attacked', () => {
  it.each(['upper', 'work', 'lower', 'workspace'] as const)('is refused where its %s is exchanged', async part => {
    await using bench = new LevelBench(new BubblewrapBackend({ ...OPTIONS, acceptProcessLimits: true }));
    const store = mkdtempSync('/var/tmp/acode-test-');
    for (const name of ['1', '2', 'b']) mkdirSync(join(store, name));
    writeFileSync(join(bench.workspace, 'own'), 'own');
    const { mounts } = await bench.spec();
    const overlay = {
      fork: 'attacked',
      upper: partAt(join(store, '2')),
      work: partAt(join(store, 'b')),
      lowers: [partAt(join(store, '1'))],
    };
    const forked = mounts
      .filter(({ purpose }) => purpose === 'workspace')
      .map(mount => ({ ...mount, readOnly: false, overlay }));
    const at = {
      upper: overlay.upper.path,
      work: overlay.work.path,
      lower: join(store, '1'),
      workspace: bench.workspace,
    };
    const attacked = async (weakenings: readonly 'verification'[]): Promise<string> => {
      let armed = false;
      const exchange = async (): Promise<void> => {
        if (!armed) return;
        renameSync(at[part], `${at[part]}.aside`);
        mkdirSync(at[part]);
        if (part !== 'work') writeFileSync(join(at[part], 'planted'), 'planted');
      };
      const backend = bench.backend.weakened(weakenings, exchange);
      await backend.forkWay?.(join(store, 'trial'), AbortSignal.timeout(60_000));
      armed = true;
      const spec = await bench.spec({ changes: { mounts: forked } });
      await using sandbox = await backend.prepare(spec, AbortSignal.timeout(60_000));
      await sandbox.verify(AbortSignal.timeout(60_000));
      return 'taken';
    };
    try {
      await expect(attacked([])).rejects.toMatchObject({ code: 'ACODE-SBX-010' });
      rmSync(at[part], { recursive: true });
      renameSync(`${at[part]}.aside`, at[part]);
      // The control: without the comparison, the sandbox is made over what was put there.
      expect(await attacked(['verification'])).toBe('taken');
    } finally {
      rmSync(`${bench.workspace}.aside`, { recursive: true, force: true });
      removeTree(store);
    }
  });

  it('is refused where the kernel would cut its mount options', async () => {
    const workspace = makeWorkspace();
    const deep = join(workspace, ...Array.from({ length: 16 }, (_, at) => `${at}`.padEnd(240, 'x')), 'y'.repeat(100));
    mkdirSync(deep, { recursive: true });
    await using acode = await onBubblewrap(deep);
    const forked = acode.run(['true'], { policy: FORK, risk: 'low' });
    await expect(forked).rejects.toMatchObject({ code: 'ACODE-FRK-004' });
    rmSync(workspace, { recursive: true });
  });
});

describe.skipIf(withoutBubblewrap || withoutEngines)('a fork that an engine and bubblewrap write in turn', () => {
  it('has the layers of both', async () => {
    const workspace = makeWorkspace();
    project(workspace);
    await using onEngine = await Acode.open({ workspace, engine: { socket: mainEngine.socket } });
    await using local = await onBubblewrap(workspace);
    const policy = policyFrom({ image: images.busybox, ...FORK });
    const here = (script: string): Promise<RunResult> => local.run(['sh', '-c', script], { policy: FORK, risk: 'low' });
    const there = (script: string): Promise<RunResult> => onEngine.run(['sh', '-c', script], { policy });
    await there('rm a.txt; echo 1 > one');
    expect((await here('ls; rm one; rm -r src; echo 2 > two')).stdout).toBe('link\none\nrun.sh\nsrc\n');
    expect((await there('ls; rm two')).stdout).toBe('link\nrun.sh\ntwo\n');
    expect((await here('ls')).stdout).toBe('link\nrun.sh\n');
    await onEngine.forks.discard();
    rmSync(workspace, { recursive: true });
  });
});

describe.skipIf(withoutEngines)('the fork of a persistent sandbox', () => {
  const policy = { image: images.busybox, ...FORK };

  it('takes what its commands write, is in use while the sandbox exists, and keeps the changes when it is removed', async () => {
    await using host = await TestHost.open(mainEngine);
    project(host.workspace);
    const before = fingerprint(host.workspace);
    const { workspace } = host;
    const sandbox = await host.acode.create({ policy, keep: true });
    expect((await sandbox.run(['sh', '-c', 'echo 1 > one; rm a.txt; ls'])).stdout).toBe('link\none\nrun.sh\nsrc\n');
    // Another process goes on in it.
    await using other = await Acode.open({ workspace, engine: { socket: mainEngine.socket } });
    const again = await other.connect(sandbox.id);
    await again.run(['sh', '-c', 'rm one; echo 2 > two']);
    await expect(host.acode.run(['ls'], { policy })).rejects.toMatchObject({ code: 'ACODE-FRK-003' });
    const [{ id } = { id: '' }] = await host.acode.forks.list();
    await expect(host.acode.forks.undo({ fork: id })).rejects.toMatchObject({ code: 'ACODE-FRK-003' });
    await again.kill();
    const { changes } = await host.acode.forks.diff({ fork: id });
    expect(changes.map(({ path, change }) => `${change} ${path}`).sort()).toEqual(['added two', 'deleted a.txt']);
    expect((await host.acode.run(['ls'], { policy })).stdout).toBe('link\nrun.sh\nsrc\ntwo\n');
    expect(await volumesOf(sandbox.id)).toEqual([]);
    expect(fingerprint(workspace)).toBe(before);
    await host.acode.forks.discard();
  });

  it('is shown and applied while it is written: the sandbox is paused, goes on, and what it changes later is the next diff', async () => {
    await using host = await TestHost.open(mainEngine);
    const { workspace } = host;
    const names = Array.from({ length: 60 }, (_, at) => `f${String(at).padStart(3, '0')}`);
    for (const name of names) writeFileSync(host.file(name), '0\n');
    writeFileSync(host.file('a.txt'), 'one\n');
    const sandbox = await host.acode.create({ policy, keep: true });
    await sandbox.run(['sh', '-c', 'echo two > a.txt']);
    expect((await sandbox.diff()).changes.map(({ path, change }) => `${change} ${path}`)).toEqual(['changed a.txt']);
    expect(await sandbox.apply()).toMatchObject({ outcome: 'applied', applied: 1, removed: false });
    expect(readFileSync(host.file('a.txt'), 'utf8')).toBe('two\n');
    expect((await sandbox.diff()).changes).toEqual([]);
    // A command that never rests: every state that its files ever have at once is a run of one number, and then of the one before.
    const writer = 'i=0; echo up; while :; do i=$((i+1)); for f in f*; do echo $i > $f; done; done';
    const running = await sandbox.spawn(['sh', '-c', writer]);
    await running.stdout[Symbol.asyncIterator]().next();
    await expect.poll(async () => (await sandbox.run(['cat', 'f059'])).stdout).not.toBe('0\n');
    const { id: diffId } = await sandbox.diff();
    await expect(sandbox.apply({ diffId })).rejects.toMatchObject({ code: 'ACODE-FRK-015' });
    expect(await sandbox.apply()).toMatchObject({ outcome: 'applied', applied: 60 });
    const numbers = names.map(name => Number(readFileSync(host.file(name), 'utf8')));
    const [first = 0] = numbers;
    const at = numbers.findIndex(number => number !== first);
    const until = at < 0 ? names.length : at;
    // The one that is being written may be empty.
    expect(numbers.slice(until + 1)).toEqual(names.slice(until + 1).map(() => first - 1));
    await running.kill('SIGKILL');
    await running.result;
    await sandbox.run(['sh', '-c', 'echo three >> a.txt; echo 1 > new']);
    await using other = await Acode.open({ workspace, engine: { socket: mainEngine.socket } });
    const again = await other.connect(sandbox.id);
    const { changes } = await again.diff();
    expect(changes.map(({ path }) => path)).toEqual(expect.arrayContaining(['a.txt', 'new']));
    expect(await again.apply({ only: ['a.txt'] })).toMatchObject({ outcome: 'applied', applied: 1 });
    expect(readFileSync(host.file('a.txt'), 'utf8')).toBe('two\nthree\n');
    await again.kill();
    const left = await host.acode.forks.diff();
    expect(left.changes.map(({ path }) => path)).not.toContain('a.txt');
    expect(left.changes.map(({ path }) => path)).toContain('new');
    await host.acode.forks.discard();
  });

  it('is copied while it is written, and that copy is what another sandbox goes back to', async () => {
    await using host = await TestHost.open(mainEngine);
    for (const name of ['a', 'b', 'c']) writeFileSync(host.file(name), `${name}\n`);
    const sandbox = await host.acode.create({ policy, keep: true });
    // A command that never rests: what it writes to two files is the same at every moment but one.
    const work = 'rm a; mkdir d; echo 1 > d/made; echo B > b; rm -r d; mkdir d; echo 2 > d/made';
    await sandbox.run(['sh', '-c', work]);
    const running = await sandbox.spawn([
      'sh',
      '-c',
      'echo up; i=0; while :; do i=$((i+1)); echo $i > t; mv t one; echo $i > t; mv t two; done',
    ]);
    await running.stdout[Symbol.asyncIterator]().next();
    const copy = await sandbox.snapshot('before');
    expect(copy).toMatchObject({ name: 'before', commands: 1, sandbox: null, isCurrent: false });
    await running.kill('SIGKILL');
    await running.result;
    // What the sandbox does later, what it takes back included, is not in the copy.
    await sandbox.run(['sh', '-c', 'rm -rf b c d t one two; echo a > a']);
    await expect(sandbox.snapshot('before')).rejects.toMatchObject({ code: 'ACODE-FRK-007' });
    await sandbox.kill();
    const again = await host.acode.create({ policy: { ...policy, fork: 'before' } });
    const { stdout } = await again.run(['sh', '-c', 'ls; cat b c d/made; cat one; cat two']);
    const [one, two] = stdout.trim().split('\n').slice(-2).map(Number);
    expect(stdout).toMatch(/^b\nc\nd\none\n(?:t\n)?two\nB\nc\n2\n/);
    expect([0, 1]).toContain((one ?? 0) - (two ?? 0));
    await again.kill();
    expect(readFileSync(host.file('a'), 'utf8')).toBe('a\n');
    for (const { id } of await host.acode.forks.list()) await host.acode.forks.discard(id);
    expect(readdirSync(STORE)).toEqual([]);
  });

  it('goes on where acode was killed while the sandbox was paused; one that another program paused is left alone', async () => {
    await using host = await TestHost.open(mainEngine);
    const sandbox = await host.acode.create({ policy, keep: true });
    const [{ id } = { id: '' }] = await host.acode.forks.list();
    const store = new ForkStore(join(process.env['XDG_STATE_HOME'] ?? '', 'acode'), Date.now);
    const connect = async (): Promise<string> => {
      await using other = await Acode.open({ workspace: host.workspace, engine: { socket: mainEngine.socket } });
      return (await (await other.connect(sandbox.id)).run(['echo', 'on'])).stdout;
    };
    await withEngine(mainEngine, engine =>
      engine.containers.freeze(sandbox.containerId, 'pause', { signal: AbortSignal.timeout(60_000) }),
    );
    await expect(connect()).rejects.toMatchObject({ code: 'ACODE-SBX-026' });
    store.paused(id, true);
    expect(await connect()).toBe('on\n');
    expect(store.read(id)?.active?.paused).toBeUndefined();
    await sandbox.kill();
  });

  it('has commands of its own on the command line, which name a sandbox', async () => {
    await using bench = await Bench.at(mainEngine);
    writeFileSync(join(bench.workspace, 'a.txt'), 'one\n');
    const create = ['sandbox', 'create', '--image', images.busybox];
    const made = await bench.call([...create, '--fork', '--name', 'web-1']);
    expect(made.status, made.stderr).toBe(0);
    await bench.call(['sandbox', 'exec', '--in', 'web-1', '--', 'sh', '-c', 'echo two > a.txt; echo 1 > new']);
    const diff = await bench.call(['sandbox', 'diff', 'web-1', '--name-only']);
    expect(diff.stdout.toString(), diff.stderr).toBe('a.txt\nnew\n');
    const applied = await bench.call(['sandbox', 'apply', 'web-1', '--only', 'a.txt', '--yes']);
    expect(applied.stdout.toString(), applied.stderr).toContain('`acode sandbox diff web-1` shows what is left');
    expect(readFileSync(join(bench.workspace, 'a.txt'), 'utf8')).toBe('two\n');
    expect(existsSync(join(bench.workspace, 'new'))).toBe(false);
    expect((await bench.call(['sandbox', 'diff', 'web-1', '--name-only'])).stdout.toString()).toBe('new\n');
    await bench.call([...create, '--name', 'plain']);
    const refused = await bench.call(['sandbox', 'diff', 'plain']);
    expect(refused).toMatchObject({ status: 125, stderr: expect.stringContaining('ACODE-FRK-021') });
    await bench.call(['sandbox', 'kill', 'web-1', 'plain']);
    await bench.call(['fork', 'discard']);
  });

  it('keeps the changes of a sandbox that something else removed, and of one that ends with its process', async () => {
    await using host = await TestHost.open(mainEngine);
    project(host.workspace);
    const sandbox = await host.acode.create({ policy });
    await sandbox.run(['sh', '-c', 'echo 1 > one']);
    await withEngine(mainEngine, engine =>
      engine.containers.remove(sandbox.containerId, {
        force: true,
        volumes: true,
        signal: AbortSignal.timeout(60_000),
      }),
    );
    await sandbox.ended;
    await using second = await host.acode.create({ policy });
    expect((await second.run(['sh', '-c', 'cat one; echo 2 > two'])).stdout).toBe('1\n');
    await second.kill();
    expect((await host.acode.run(['cat', 'one', 'two'], { policy })).stdout).toBe('1\n2\n');
    expect((await host.acode.forks.history()).map(({ command }) => command)).toEqual([
      'acode sandbox create',
      'acode sandbox create',
    ]);
    await host.acode.forks.discard();
  });

  it('does not exist where the sandbox could not be made', async () => {
    await using host = await TestHost.open(mainEngine);
    const refused = host.acode.create({ policy: { ...policy, image: images.noshell }, keep: true });
    await expect(refused).rejects.toMatchObject({ code: 'ACODE-SBX-016' });
    expect(await host.acode.forks.list()).toEqual([]);
  });
});

// What the engine has for a sandbox besides its container, asked past the library.
function volumesOf(sandboxId: string): Promise<string[]> {
  return withEngine(mainEngine, async engine =>
    (await engine.volumes.list({ labels: [`acode.sandbox=${sandboxId}`], signal: AbortSignal.timeout(60_000) })).map(
      ({ Name }) => Name,
    ),
  );
}

function bubblewrapVersion(): number[] {
  const text = execFileSync('/usr/bin/bwrap', ['--version'], { encoding: 'utf8' });
  return text.replace('bubblewrap ', '').split('.').map(Number);
}

function onBubblewrap(workspace: string): Promise<Acode> {
  return Acode.open({
    workspace,
    engine: { socket: '/nonexistent/docker.sock' },
    config: { sandbox: { level: 'bubblewrap', bubblewrap: { accept_process_limits: true } } },
  });
}

// The kernel makes a directory without any permission in the work directory.
function removeTree(path: string): void {
  for (const name of ['b', 'b.aside'])
    if (existsSync(join(path, name, 'work'))) chmodSync(join(path, name, 'work'), 0o700);
  rmSync(path, { recursive: true, force: true });
}
