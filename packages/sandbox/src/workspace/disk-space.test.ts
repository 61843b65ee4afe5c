// Warnings about a nearly full disk.

import { describe, expect, it } from 'vitest';
import { lowDiskNotes } from './disk-space.ts';

const MIB = 1024 ** 2;
/** Sizes in MiB. */
const of = (free: number, total: number) => () => ({ bavail: free, blocks: total, bsize: MIB });

describe('free disk space', () => {
  it.each([
    ['much of a large disk', of(50_000, 100_000)],
    ['less than a tenth, and still gigabytes', of(5000, 100_000)],
    ['little, of a small file system that is mostly empty', of(60, 64)],
  ])('is no warning: %s', (_, read) => {
    expect(lowDiskNotes('/work', '/var/lib/docker', read)).toEqual([]);
  });

  it('is a warning with the figure, the directory and a remedy, for the workspace and for the engine', () => {
    expect(lowDiskNotes('/work', '/var/lib/docker', of(300, 100_000))).toEqual([
      'Little disk space: 300 MiB are free for the workspace in /work. A full disk ends commands in the middle: free some space.',
      'Little disk space: 300 MiB are free for the engine in /var/lib/docker. acode sandbox prune-images removes images that were not used for a while.',
    ]);
    expect(lowDiskNotes('/work', undefined, of(300, 100_000))).toHaveLength(1);
  });

  it('of a directory that is not on this machine is not judged', () => {
    expect(lowDiskNotes('/no/such/directory', '/none/either')).toEqual([]);
  });
});
