// What /proc says is read rightly, and a process that is not the container is not taken for it.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, copyFileSync, existsSync, mkdtempSync, realpathSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../contract/spec.ts';
import { locate, parseMountinfo, parseStatus, readKernelView } from './kernel.ts';

describe('parseMountinfo', () => {
  it('reads device, root, target, options and propagation, also with spaces in paths', () => {
    expect(
      parseMountinfo(
        '175 157 254:0 /var/my\\040dir /workspace rw,relatime master:6 - ext4 /dev/vda rw\n176 157 0:51 / /tmp rw,nosuid - tmpfs tmpfs rw\n',
      ),
    ).toEqual([
      {
        id: '175',
        parent: '157',
        device: '254:0',
        root: '/var/my dir',
        target: '/workspace',
        options: ['rw', 'relatime'],
        shared: true,
        receives: true,
        type: 'ext4',
        superOptions: ['rw'],
      },
      {
        id: '176',
        parent: '157',
        device: '0:51',
        root: '/',
        target: '/tmp',
        options: ['rw', 'nosuid'],
        shared: false,
        receives: false,
        type: 'tmpfs',
        superOptions: ['rw'],
      },
    ]);
  });
});

describe('parseStatus', () => {
  it('reads ids, capabilities, privileges and the filter', () => {
    const status =
      'Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t5\t5\t5\nGroups:\t5 7 \nCapInh:\t0\nCapPrm:\t0\nCapEff:\t01\nCapBnd:\t0\nCapAmb:\t0\nNoNewPrivs:\t1\nSeccomp:\t2\n';
    expect(parseStatus(status)).toEqual({
      uids: [1, 2, 3, 4],
      gids: [5, 5, 5, 5],
      groups: [5, 7],
      capabilities: { CapInh: '0', CapPrm: '0', CapEff: '01', CapBnd: '0', CapAmb: '0' },
      noNewPrivileges: true,
      seccompFilter: true,
    });
  });

  it('takes what is missing for unsafe', () => {
    expect(parseStatus('')).toMatchObject({
      noNewPrivileges: false,
      seccompFilter: false,
      capabilities: { CapEff: 'unknown' },
    });
  });
});

describe('locate', () => {
  const mounts = parseMountinfo(
    [
      '1 0 8:1 / / rw - ext4 d rw',
      '2 1 8:2 /homes /home rw - ext4 d rw',
      '3 1 8:3 / /home/me/disk rw - ext4 d rw',
      '4 1 8:4 / /home/me/disk rw - ext4 d rw',
    ].join('\n'),
  );
  it.each([
    ['/srv/x', '8:1', '/srv/x'],
    ['/home/me/project', '8:2', '/homes/me/project'],
    ['/homework', '8:1', '/homework'],
    ['/home/me/disk', '8:4', '/'],
    ['/home/me/disk/a', '8:4', '/a'],
  ])('%s is %s %s', (path, device, root) => {
    expect(locate(path, mounts)).toEqual({ device, root });
  });
});

describe('readKernelView', () => {
  const here = realpathSync('.');
  const spec = {
    mounts: [{ source: here, target: here, readOnly: false, identity: { device: 0, inode: 0 } }],
  } as unknown as SandboxSpec;

  it('has no view of a process whose control group does not name the container', async () => {
    expect(await readKernelView(process.pid, 'f'.repeat(64), spec)).toBeNull();
    expect(await readKernelView(2 ** 30, '/', spec)).toBeNull();
  });

  it('sees what is really mounted where, and which namespaces are shared', async () => {
    const view = await readKernelView(process.pid, '/', spec);
    const { dev, ino, birthtimeMs } = statSync(here);
    expect(view?.identities.get(here)).toEqual({ device: dev, inode: ino, born: birthtimeMs });
    expect(view?.sharedNamespaces).toEqual(['mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup']);
    expect(view?.sources.get(here)?.root).toContain(here.split('/').at(-1));
  });

  const holder = { mounts: [], store: { target: '/store', bytes: 1, volume: '', mountpoint: '' } };

  // What may be executed and not be read is hidden by the kernel from everybody but root, as a runtime’s first process is.
  it.skipIf(process.getuid?.() === 0).each([
    { name: 'waits for a process that hides itself only at its start', of: spec, seconds: 0.1, seen: true },
    { name: 'waits for one that has memory for others, and no mounts', of: holder, seconds: 0.1, seen: true },
    { name: 'waits longer for what a runtime is called', is: 'runc:[2:INIT]', of: spec, seconds: 1, seen: true },
    { name: 'goes on without what stays hidden', of: spec, seconds: 20, seen: false },
  ])('$name', async ({ is = 'shell', of, seconds, seen }) => {
    const directory = mkdtempSync(join(tmpdir(), 'acode-test-'));
    const shell = join(directory, is);
    copyFileSync('/bin/sh', shell);
    chmodSync(shell, 0o111);
    const child = spawn(shell, ['-c', `sleep ${seconds}; exec sleep 10`], { stdio: 'ignore' });
    try {
      await once(child, 'spawn');
      const view = await readKernelView(child.pid ?? 0, '', of);
      expect(existsSync(`/proc/${child.pid ?? 0}/root/proc`)).toBe(seen);
      expect(view?.identities.has(here)).toBe(seen && of === spec);
    } finally {
      child.kill('SIGKILL');
      rmSync(directory, { recursive: true });
    }
  });
});
