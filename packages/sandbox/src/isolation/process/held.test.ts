// What is held of a sandbox that waits, shown on processes and directories of this host.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { lstatSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AcodeError } from '../../contract/errors.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { systemClock } from '../../lifecycle/clock.ts';
import { type SandboxProcesses, WaitingProcesses } from './execution.ts';
import { readKernelView, uncoveredDifferences } from '../kernel.ts';
import { assertHeld, assertInPlace, endOfAll, hold, protection, sameness, identify } from './held.ts';
import { identityOf } from '../../workspace/file-identity.ts';

let top = '';
beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'held-'));
  mkdirSync(join(top, 'source'));
});
afterEach(() => rmSync(top, { recursive: true }));

function spec(): Pick<SandboxSpec, 'mounts' | 'identity'> {
  const source = join(top, 'source');
  const identity = identityOf(lstatSync(source));
  const mount = { purpose: 'protected', source, target: '/w', readOnly: true, identity } as const;
  return { mounts: [mount], identity: { sandboxId: 's', name: 'n', labels: {}, correlationId: '' } };
}

function maskedSpec(source: string, onto: string): Pick<SandboxSpec, 'mounts' | 'identity'> {
  const covers = { path: onto, identity: identityOf(lstatSync(onto)) };
  const mount = { purpose: 'masked', source, target: onto, readOnly: true, covers } as const;
  return { ...spec(), mounts: [{ ...mount, identity: identityOf(lstatSync(source)) }] };
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

  it('was held before it was compared: what goes while it is compared is a change', async () => {
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

  it('holds where what is mounted is replaced, and not where what it is mounted on is', async () => {
    const [from, onto] = [join(top, 'from'), join(top, 'onto')];
    for (const file of [from, onto]) writeFileSync(file, '');
    const program = 'mount --bind "$1" "$2" && echo ready && exec sleep 60';
    const words = ['-rm', 'sh', '-c', program, 'sh', from, onto];
    const child = spawn('unshare', words, { stdio: ['ignore', 'pipe', 'ignore'] });
    try {
      await once(child.stdout, 'data');
      const held = hold(child.pid ?? 0, '');
      if (!held) throw new Error('the child can be seen');
      const look = protection(spec(), held);
      const replace = (file: string): void => {
        writeFileSync(`${file}.new`, '');
        renameSync(`${file}.new`, file);
      };
      replace(from);
      // The control: the kernel does say so, and the mount is still there.
      expect(readFileSync(`/proc/${child.pid}/mountinfo`, 'utf8')).toMatch(/from\/\/deleted \S+onto /);
      expect(look).not.toThrow();
      replace(onto);
      expect(look).toThrow(/mounts are not those/);
    } finally {
      child.kill('SIGKILL');
    }
  });

  it('holds where a directory above a mask is renamed, and not where the masked file is replaced or renamed', async () => {
    const [from, deep] = [join(top, 'from'), join(top, 'a b')];
    mkdirSync(deep);
    const onto = join(deep, '.env');
    for (const file of [from, onto]) writeFileSync(file, '');
    const planned = maskedSpec(from, onto);
    const program = 'mount --bind "$1" "$2" && echo ready && exec sleep 60';
    for (const lose of ['replace', 'rename'] as const) {
      const child = spawn('unshare', ['-rm', 'sh', '-c', program, 'sh', from, onto], {
        stdio: ['ignore', 'pipe', 'ignore'],
      });
      try {
        await once(child.stdout, 'data');
        const held = hold(child.pid ?? 0, '');
        if (!held) throw new Error('the child can be seen');
        const look = protection(planned, held);
        renameSync(deep, join(top, 'c'));
        // The control: the kernel shows the mask at another path.
        expect(readFileSync(`/proc/${child.pid}/mountinfo`, 'utf8')).toMatch(/\/c\/\.env /);
        expect(look).not.toThrow();
        renameSync(join(top, 'c'), deep);
        writeFileSync(`${onto}.new`, '');
        if (lose === 'replace') renameSync(`${onto}.new`, onto);
        else renameSync(onto, `${onto}.bak`);
        expect(look).toThrow(/\.env, which is masked, was replaced/);
        writeFileSync(onto, '');
      } finally {
        child.kill('SIGKILL');
      }
    }
  });

  it('does not hold, where the mounts cannot be seen, once another file is at the path of a masked one', () => {
    const [from, onto] = [join(top, 'from'), join(top, 'onto')];
    for (const file of [from, onto]) writeFileSync(file, '');
    const planned = maskedSpec(from, onto);
    for (const look of [protection(planned, null), sameness(planned, null)]) expect(look).not.toThrow();
    renameSync(onto, join(top, 'aside'));
    // A directory above it may have been renamed from inside.
    for (const look of [protection(planned, null), sameness(planned, null)]) expect(look).not.toThrow();
    expect(uncoveredDifferences(planned)).toHaveLength(1);
    writeFileSync(onto, '');
    for (const look of [protection(planned, null), sameness(planned, null)]) expect(look).toThrow(/which is masked/);
    expect(uncoveredDifferences(planned)).toHaveLength(1);
    expect(uncoveredDifferences(maskedSpec(from, onto))).toEqual([]);
  });

  it('is not taken for changed while the process ends, when the kernel has put its mounts away', async () => {
    const seen = { ended: 0, changed: 0 };
    for (let count = 0; count < 40; count += 1) {
      const words = ['-rm', 'sh', '-c', 'echo ready; exec sleep 60'];
      const child = spawn('unshare', words, { stdio: ['ignore', 'pipe', 'ignore'] });
      await once(child.stdout, 'data');
      const held = hold(child.pid ?? 0, '');
      if (!held) throw new Error('the child can be seen');
      const look = protection(spec(), held);
      child.kill('SIGKILL');
      // Without a pause, so that no moment of its end is missed.
      for (let over = false; !over;) {
        try {
          look();
        } catch (error) {
          over = true;
          if (error instanceof AcodeError && error.is('ACODE-SBX-006')) seen.ended += 1;
          else seen.changed += 1;
        }
      }
    }
    expect(seen).toEqual({ ended: 40, changed: 0 });
  });

  it('is not had of a process that has ended and was not buried', async () => {
    const child = spawn('sh', ['-c', 'sleep 0.1 & echo $!; exec sleep 60'], { stdio: ['ignore', 'pipe', 'ignore'] });
    try {
      const [said] = (await once(child.stdout, 'data')) as [Buffer];
      const pid = Number(said.toString());
      const state = (): string => readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1] ?? '';
      while (!state().startsWith('Z')) await new Promise(resolve => void setTimeout(resolve, 5));
      expect(() => readFileSync(`/proc/${pid}/mountinfo`)).toThrow(/EINVAL/);
      expect(hold(pid, '')).toBeNull();
      expect(await readKernelView(pid, '', { mounts: [] })).toBeNull();
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
    await new Promise(resolve => void setTimeout(resolve, 20));
    mkdirSync(join(top, 'source', 'inside'));
    expect(() => assertInPlace(planned)).not.toThrow();
    rmSync(join(top, 'source'), { recursive: true });
    expect(() => assertInPlace(planned)).toThrow(/is not what was checked/);
    mkdirSync(join(top, 'source'));
    expect(() => assertInPlace(planned)).toThrow(/is not what was checked/);
  });
});
