// Disk throughput: the block devices that a limit is for, or why it cannot be kept.

import { realpathSync, readFileSync, existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { AcodeError } from '../contract/errors.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { DiskThroughput, FileIdentity, MountSpec } from '../contract/spec.ts';
import { text } from '../contract/wording.ts';
import type { Text } from '../contract/wording.ts';
import type { Capability } from '../isolation/backend.ts';
import { sourceOf } from '../policy/layers.ts';

/** What a limit of disk throughput is planned from. */
export interface ThroughputFor {
  readonly level: Level;
  readonly policy: Pick<EffectivePolicy, 'diskReadRate' | 'diskWriteRate'>;
  readonly capability: Pick<Capability, 'throughput'>;
  readonly mounts: readonly MountSpec[];
}

/** Where the kernel lists its block devices, each as a link with its numbers as the name. A test has a directory of its own. */
const BLOCK_DEVICES = '/sys/dev/block';

const KEY = 'sandbox.defaults.blkio';
// What of this host commands read and write in bulk. The rest are single files of acode’s own.
const COUNTED: ReadonlySet<MountSpec['purpose']> = new Set(['workspace', 'worktree', 'additional', 'state']);
const UNCAUGHT =
  'sandbox.defaults.blkio.write_bps limits the writes that a program waits for (O_DIRECT, fsync). This engine has control groups of version 1: with them, the kernel does not count what it writes back later.';

/** The limit of a sandbox, and what to say about it. Refused where the host cannot keep it: nobody would notice. */
export function planThroughput(
  { level, policy: { diskReadRate, diskWriteRate }, capability, mounts }: ThroughputFor,
  devices = BLOCK_DEVICES,
): { readonly throughput?: DiskThroughput; readonly notes: readonly string[] } {
  const set = [diskReadRate, diskWriteRate].find(({ value }) => value !== null);
  if (!set) return { notes: [] };
  const refuse = (where: Text): never => {
    throw new AcodeError('ACODE-SBX-016', {
      what: text`A limit of disk throughput (\`${KEY}\`, set by ${sourceOf(set)}) ${where}`,
      instead: 'Leave it out: the kernel would not keep it.',
    });
  };
  if (level !== 'docker') return refuse(text`at level ${level}`);
  if (!capability.throughput) return refuse(text`on this engine, which limits none,`);
  const found = mounts.filter(({ purpose }) => COUNTED.has(purpose)).flatMap(directoriesOf);
  const on = found.map(([path, identity]) => ({ path, device: deviceOf(identity, devices) }));
  const without = on.find(({ device }) => device === null);
  if (without) return refuse(text`for ${without.path}, whose file system is on no block device,`);
  const isPartial = diskWriteRate.value !== null && capability.throughput === 'waiting';
  return {
    throughput: {
      devices: [...new Set(on.flatMap(({ device }) => device ?? []))].sort(),
      ...rate('readBytes', diskReadRate.value),
      ...rate('writeBytes', diskWriteRate.value),
    },
    notes: isPartial ? [UNCAUGHT] : [],
  };
}

function rate(name: 'readBytes' | 'writeBytes', value: number | null): Partial<DiskThroughput> {
  return value === null ? {} : { [name]: value };
}

// What a sandbox writes to a fork goes to its layer, which may be on another disk.
function directoriesOf({ source, identity, overlay }: MountSpec): readonly (readonly [string, FileIdentity])[] {
  const upper = overlay?.upper.identities.at(-1);
  return [[source, identity], ...(overlay && upper ? [[overlay.upper.path, upper] as const] : [])];
}

/** The disk that a file is on, as `/dev/sda`; null where it is on none. The kernel limits whole disks, not their partitions. */
export function deviceOf({ device }: Pick<FileIdentity, 'device'>, devices = BLOCK_DEVICES): string | null {
  const number = BigInt(device);
  const major = ((number >> 8n) & 0xfffn) | ((number >> 32n) & ~0xfffn);
  const minor = (number & 0xffn) | ((number >> 12n) & 0xffffff00n);
  try {
    const entry = realpathSync(join(devices, `${major}:${minor}`));
    const disk = existsSync(join(entry, 'partition')) ? dirname(entry) : entry;
    const [, name] = /^DEVNAME=(.+)$/m.exec(readFileSync(join(disk, 'uevent'), 'utf8')) ?? [];
    return name === undefined ? null : `/dev/${name}`;
  } catch {
    return null;
  }
}
