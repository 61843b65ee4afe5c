// What is held of a sandbox that waits, shown on processes and directories of this host.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { lstatSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../contract/spec.ts';
import { systemClock } from '../../telemetry/clock.ts';
import type { SandboxProcesses } from './execution.ts';
import { assertBirths, assertHeld, birthsOf, endOfAll, hold } from './held.ts';
import { identify } from './identity.ts';
import { WaitingProcesses } from './waiting.ts';

let top = '';
beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'held-'));
  mkdirSync(join(top, 'source'));
});
afterEach(() => rmSync(top, { recursive: true }));

function spec(): Pick<SandboxSpec, 'mounts' | 'identity'> {
  const source = join(top, 'source');
  const { dev: device, ino: inode } = lstatSync(source);
  const mount = { purpose: 'workspace', source, target: '/w', readOnly: false, identity: { device, inode } } as const;
  return { mounts: [mount], identity: { sandboxId: 's', name: 'n', labels: {}, correlationId: '' } };
}

// One during whose comparison something happens. Its plan has no mounts, so that nothing but the table of mounts can tell.
function waiting(inside: number, meanwhile: () => void): WaitingProcesses {
  const child = { ended: false, exit: new Promise<never>(() => undefined) };
  return new WaitingProcesses({
    spec: { ...spec(), mounts: [], hash: '' } as unknown as SandboxSpec,
    processes: { child } as unknown as SandboxProcesses,
    verify: () => Promise.resolve(meanwhile()),
    inside,
    remove: () => Promise.resolve(),
  });
}

function recheck({ keeping }: WaitingProcesses): Promise<void> {
  return keeping.recheck(new AbortController().signal);
}

describe.skipIf(process.platform !== 'linux')('what the kernel showed of a sandbox', () => {
  it('is held as long as nothing changes', () => {
    const held = hold(process.pid, '');
    if (!held) throw new Error('this process can be seen');
    expect(() => assertHeld(held, spec())).not.toThrow();
  });

  it('is not had of a process of another control group, nor of none', () => {
    const groups = readFileSync('/proc/self/cgroup', 'utf8');
    expect(hold(process.pid, groups.trim())).not.toBeNull();
    expect(hold(process.pid, 'no such container')).toBeNull();
    expect(hold(2 ** 22 + 1, '')).toBeNull();
  });

  it('does not hold once its table of mounts is another', () => {
    const held = hold(process.pid, '');
    if (!held) throw new Error('this process can be seen');
    const other = { ...held, mounts: `${held.mounts}1 2 3:4 / /more rw - tmpfs tmpfs rw\n` };
    expect(() => assertHeld(other, spec())).toThrow(/mounts are not those/);
  });

  it('does not hold once the process has ended, whoever has its number now', () => {
    const held = hold(process.pid, '');
    if (!held) throw new Error('this process can be seen');
    const before = { ...held, process: { ...held.process, startTime: '1' } };
    expect(() => assertHeld(before, spec())).toThrow(/ended while it waited/);
  });

  it('does not hold once another directory is at the path of a source, or none', () => {
    const held = hold(process.pid, '');
    if (!held) throw new Error('this process can be seen');
    const planned = spec();
    mkdirSync(join(top, 'other'));
    renameSync(join(top, 'source'), join(top, 'aside'));
    expect(() => assertHeld(held, planned)).toThrow(/is not what was checked/);
    renameSync(join(top, 'other'), join(top, 'source'));
    expect(() => assertHeld(held, planned)).toThrow(/is not what was checked/);
  });

  it('was held before it was compared: what goes while it is compared is a change', { timeout: 20_000 }, async () => {
    const source = join(top, 'source');
    const program = 'mount --bind "$1" "$1" && echo ready && exec sleep 60';
    const child = spawn('unshare', ['-rm', 'sh', '-c', program, 'sh', source], { stdio: ['ignore', 'pipe', 'ignore'] });
    try {
      await once(child.stdout, 'data');
      const anew = (): void => {
        rmSync(source, { recursive: true });
        mkdirSync(source);
      };
      // The control: where nothing changes meanwhile, it may be used.
      const before = waiting(child.pid ?? 0, () => undefined);
      await before.verify(new AbortController().signal);
      await expect(recheck(before)).resolves.toBeUndefined();
      const during = waiting(child.pid ?? 0, anew);
      await during.verify(new AbortController().signal);
      await expect(recheck(during)).rejects.toThrow(/mounts are not those/);
    } finally {
      child.kill('SIGKILL');
    }
  });

  it('ends with the first process, which is known without waiting for anybody to bury it', async () => {
    const child = spawn('sleep', ['60'], { stdio: 'ignore' });
    const exit = once(child, 'exit');
    const first = identify(child.pid ?? 0);
    if (!first) throw new Error('the child can be seen');
    let over = false;
    const watched = endOfAll([first], systemClock).then(() => (over = true));
    await new Promise(resolve => void setTimeout(resolve, 50));
    expect(over).toBe(false);
    child.kill('SIGKILL');
    await watched;
    await exit;
  });
});

describe('when a source was made', () => {
  it('tells it from one in its place, even of the same number, and stays while things are made in it', async () => {
    const planned = spec();
    const births = birthsOf(planned);
    await new Promise(resolve => void setTimeout(resolve, 20));
    mkdirSync(join(top, 'source', 'inside'));
    expect(() => assertBirths(births, planned)).not.toThrow();
    rmSync(join(top, 'source'), { recursive: true });
    expect(() => assertBirths(births, planned)).toThrow(/is not what was checked/);
    mkdirSync(join(top, 'source'));
    expect(() => assertBirths(births, planned)).toThrow(/is not what was checked/);
  });
});
