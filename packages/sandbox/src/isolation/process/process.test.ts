// What local levels share: programs, descriptors and process numbers, as they really are on this host.

import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Child, inheritedDescriptors, signalNamed } from './child.ts';
import { groupLives, identify, isAlive, onlyChild, parseStat, signalTree } from './held.ts';

const linux = process.platform === 'linux';
const plain = { environment: {}, cwd: '/' };

async function textOf(stream: AsyncIterable<Buffer> | Iterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

async function firstOf(stream: AsyncIterable<Buffer>): Promise<string> {
  for await (const chunk of stream) return chunk.toString();
  return '';
}

describe('a child', () => {
  it('has exactly the environment, the words and the descriptors it was given', async () => {
    const script = 'cat <&4; printf "%s|" "$@"; echo "${PATH-none}${HOME-none}${GIVEN-none}"; echo out >&3';
    const child = await Child.start({
      program: '/bin/sh',
      argv: ['-c', script, 'sh', 'a b', '$(id)'],
      environment: { PATH: '/usr/bin:/bin', GIVEN: 'given' },
      cwd: '/',
      inputs: ['from us '],
      outputs: 1,
    });
    const [stdout, further] = await Promise.all([textOf(child.stdout), textOf(child.output(0))]);
    expect(stdout).toBe('from us a b|$(id)|/usr/bin:/binnonegiven\n');
    expect(further).toBe('out\n');
    expect(await child.exit).toEqual({ exitCode: 0 });
  });

  it.runIf(linux)('leads a process group of its own', async () => {
    const child = await Child.start({ ...plain, program: '/bin/sleep', argv: ['20'] });
    process.kill(-child.pid, 'SIGTERM');
    expect(await child.exit).toEqual({ exitCode: 143 });
  });

  it('that ended before anybody read what it printed still has it', async () => {
    const child = await Child.start({ ...plain, program: '/bin/sh', argv: ['-c', 'echo out; echo err >&2'] });
    await child.exit;
    await new Promise(resolve => void setTimeout(resolve, 50));
    expect([await textOf(child.stdout), await textOf(child.stderr)]).toEqual(['out\n', 'err\n']);
  });

  it('that cannot be started is an error', async () => {
    await expect(Child.start({ ...plain, program: '/nonexistent/program', argv: [] })).rejects.toThrow('ENOENT');
  });

  it('that has ended takes what is written to it for read', async () => {
    const child = await Child.start({ ...plain, program: '/bin/sh', argv: ['-c', ':'] });
    await child.exit;
    await expect(child.write('x'.repeat(1024 * 1024))).resolves.toBeUndefined();
    await expect(child.closeStdin()).resolves.toBeUndefined();
  });
});

describe.runIf(linux)('process numbers', () => {
  it('stand for a process only together with its start', async () => {
    const sleeper = spawn('/bin/sleep', ['20']);
    const found = identify(sleeper.pid ?? 0);
    expect(found).not.toBeNull();
    if (!found) return;
    expect(isAlive(found)).toBe(true);
    expect(isAlive({ ...found, startTime: '1' })).toBe(false);
    sleeper.kill('SIGKILL');
    await new Promise(resolve => void sleeper.once('exit', resolve));
    expect(isAlive(found)).toBe(false);
  });

  it('of an only child are found', async () => {
    const parent = await Child.start({ ...plain, program: '/bin/sh', argv: ['-c', '/bin/sleep 20 & echo $!; wait'] });
    const said = await firstOf(parent.stdout);
    expect(await onlyChild(parent.pid)).toBe(Number(said));
    process.kill(-parent.pid, 'SIGKILL');
    await parent.exit;
    expect(await onlyChild(2 ** 22 + 1)).toBeNull();
  });

  it('of a group count while a member lives, and not when only remains are left', async () => {
    const leader = await Child.start({ ...plain, program: '/bin/sh', argv: ['-c', '/bin/sleep 20 & echo on; wait'] });
    expect(await firstOf(leader.stdout)).toBe('on\n');
    expect(groupLives(leader.pid)).toBe(true);
    process.kill(-leader.pid, 'SIGKILL');
    await leader.exit;
    await expect.poll(() => groupLives(leader.pid), { interval: 5 }).toBe(false);
  });

  it('are read past any name', () => {
    const stat = '77 (a) b ) S 5 77 77 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1';
    expect(parseStat(stat)).toEqual({ state: 'S', parent: 5, group: 77, startTime: '4711' });
  });
});

describe('descriptors', () => {
  it.runIf(linux)('that Node opened are not passed on; those it was started with are, and are named', async () => {
    const own = openSync('/dev/null', 'r');
    expect(inheritedDescriptors(3)).not.toContain(own);
    closeSync(own);
    const file = new URL('child.ts', import.meta.url).pathname.replace('/src/', '/dist/').replace(/\.ts$/, '.js');
    const program = `import(${JSON.stringify(file)}).then(m => console.log(JSON.stringify(m.inheritedDescriptors(3))))`;
    const given = openSync('/etc/hostname', 'r');
    const stdio = ['ignore', 'pipe', 'inherit', ...Array.from({ length: 74 }, () => 'ignore' as const), given] as const;
    const child = spawn(process.execPath, ['-e', program], { stdio: [...stdio] });
    closeSync(given);
    expect(JSON.parse(await textOf(child.stdout ?? []))).toContain(77);
  });
});

describe('signals', () => {
  it('are known by either name, and others not at all', () => {
    expect(['SIGTERM', 'TERM', 'SIGNOTHING', '9', ''].map(signalNamed)).toEqual([
      'SIGTERM',
      'SIGTERM',
      null,
      null,
      null,
    ]);
  });
});

describe.runIf(linux)('a tree of processes', () => {
  const stateOf = (pid: number): string => parseStat(readFileSync(`/proc/${pid}/stat`, 'utf8')).state;

  it('is stopped, let go and killed as a whole', async () => {
    const shell = spawn('/bin/sh', ['-c', 'sleep 60 & sleep 60 & echo $! ; wait'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const child = Number(await firstOf(shell.stdout));
    const first = identify(shell.pid ?? -1);
    if (!first) throw new Error('it has not started');
    expect(signalTree(first, 'SIGSTOP')).toBe(true);
    await expect.poll(() => [stateOf(first.pid), stateOf(child)]).toEqual(['T', 'T']);
    expect(signalTree(first, 'SIGCONT')).toBe(true);
    await expect.poll(() => [stateOf(first.pid), stateOf(child)]).toEqual(['S', 'S']);
    signalTree(first, 'SIGKILL');
    await expect.poll(() => [isAlive(first), identify(child)]).toEqual([false, null]);
    expect(signalTree(first, 'SIGSTOP')).toBe(false);
  });

  it.skipIf(process.getuid?.() === 0)('is not stopped where it is not ours', () => {
    expect(signalTree(identify(1) ?? { pid: 1, startTime: '' }, 'SIGCONT')).toBe(false);
  });
});
