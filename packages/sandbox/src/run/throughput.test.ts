// Disk throughput: which device a limit is for, and where it is refused.

import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { MountSpec } from '../contract/spec.ts';
import { deviceOf, planThroughput } from './throughput.ts';
import type { ThroughputFor } from './throughput.ts';

const user = { layer: 'user', where: 'mine.yml:2:3' } as const;
const none = { value: null, layer: 'built-in', where: 'built-in default' } as const;
const mount = (device: number, more: Partial<MountSpec> = {}): MountSpec => ({
  purpose: 'workspace',
  source: '/w',
  target: '/workspace',
  readOnly: false,
  identity: { device, inode: 2 },
  ...more,
});

describe('disk throughput', () => {
  let top: string;
  let devices: string;

  // As the kernel has it: a disk, a partition of it and a volume of LVM, each a link named by its numbers.
  beforeAll(() => {
    top = mkdtempSync(join(tmpdir(), 'acode-devices-'));
    devices = join(top, 'block');
    for (const one of ['sda/sda2', 'dm-3', 'block']) mkdirSync(join(top, one), { recursive: true });
    writeFileSync(join(top, 'sda/uevent'), 'MAJOR=8\nMINOR=0\nDEVNAME=sda\nDEVTYPE=disk\n');
    writeFileSync(join(top, 'sda/sda2/uevent'), 'DEVNAME=sda2\n');
    writeFileSync(join(top, 'sda/sda2/partition'), '2\n');
    writeFileSync(join(top, 'dm-3/uevent'), 'DEVNAME=dm-3\n');
    symlinkSync('../sda', join(devices, '8:0'));
    symlinkSync('../sda/sda2', join(devices, '8:2'));
    symlinkSync('../dm-3', join(devices, '253:259'));
  });
  afterAll(() => rmSync(top, { recursive: true }));

  it('is limited on the disk that a partition is of, and on a volume itself', () => {
    // As stat(2) has the numbers: 12 bits of the minor number stand above the major one.
    const volume = (259 & 0xff) | (253 << 8) | ((259 & ~0xff) << 12);
    expect([2049 - 1, 2050, volume, 42].map(device => deviceOf({ device }, devices))).toEqual([
      '/dev/sda',
      '/dev/sda',
      '/dev/dm-3',
      null,
    ]);
  });

  const planned = (changes: Partial<ThroughputFor> = {}) =>
    planThroughput(
      {
        level: 'docker',
        policy: { diskReadRate: { value: 1024, ...user }, diskWriteRate: none },
        capability: { throughput: 'waiting' },
        mounts: [mount(2050)],
        ...changes,
      },
      devices,
    );

  it('is limited for every disk that a command reads and writes, a layer of a fork included', () => {
    expect(planned()).toEqual({ throughput: { devices: ['/dev/sda'], readBytes: 1024 }, notes: [] });
    const upper = {
      path: '/f/1',
      identities: [
        { device: 0, inode: 1 },
        { device: 1_113_347, inode: 2 },
      ],
    };
    const overlay = { fork: 'k', upper, work: upper, lowers: [] };
    const writes = { diskReadRate: none, diskWriteRate: { value: 2048, ...user } };
    const forked = planned({ policy: writes, mounts: [mount(2050, { overlay }), mount(42, { purpose: 'identity' })] });
    expect(forked.throughput).toEqual({ devices: ['/dev/dm-3', '/dev/sda'], writeBytes: 2048 });
    expect(forked.notes).toEqual([expect.stringContaining('control groups of version 1')]);
    expect(planned({ policy: writes, capability: { throughput: 'all' } }).notes).toEqual([]);
  });

  it('is nothing where nobody limits it, and refused where the host would not keep it', () => {
    const policy = { diskReadRate: none, diskWriteRate: none };
    expect(planned({ policy, level: 'bubblewrap', capability: {} })).toEqual({ notes: [] });
    const refused: [Partial<ThroughputFor>, RegExp][] = [
      [{ level: 'bubblewrap' }, /blkio.*mine\.yml:2:3.*at level bubblewrap/],
      [{ level: 'gvisor' }, /at level gvisor/],
      [{ capability: {} }, /on this engine, which limits none/],
      [{ mounts: [mount(42)] }, /for \/w, whose file system is on no block device/],
    ];
    for (const [changes, message] of refused)
      expect(() => planned(changes)).toThrow(
        expect.objectContaining({ code: 'ACODE-SBX-016', message: expect.stringMatching(message) }),
      );
  });
});
