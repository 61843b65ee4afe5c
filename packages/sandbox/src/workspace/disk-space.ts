// Free disk space, as a run and the doctor judge it.

import { statfsSync } from 'node:fs';
import { formatBytes } from '../contract/units.ts';

// A small file system that is mostly empty is not a full disk, so a run warns only if both are undershot.
const LOW_BYTES = 1024 ** 3;
const LOW_SHARE = 0.1;

/** The part of statfs(2) that counts. */
export interface FileSystemSpace {
  readonly bavail: number;
  readonly blocks: number;
  readonly bsize: number;
}

/** Warnings about a nearly full disk: that of the workspace, and that of the engine if it is on this machine. */
export function lowDiskNotes(
  workspace: string,
  engineDirectory: string | undefined,
  read: (directory: string) => FileSystemSpace = statfsSync,
): string[] {
  return [
    ...lowNote('the workspace', workspace, 'A full disk ends commands in the middle: free some space.', read),
    ...(engineDirectory === undefined
      ? []
      : lowNote(
          'the engine',
          engineDirectory,
          'acode sandbox prune-images removes images that were not used for a while.',
          read,
        )),
  ];
}

function lowNote(
  whose: string,
  directory: string,
  remedy: string,
  read: (directory: string) => FileSystemSpace,
): string[] {
  try {
    const { bavail, blocks, bsize } = read(directory);
    if (bavail * bsize >= LOW_BYTES || bavail >= blocks * LOW_SHARE) return [];
    return [`Little disk space: ${formatBytes(bavail * bsize)} are free for ${whose} in ${directory}. ${remedy}`];
  } catch {
    // For example, an engine in a virtual machine: its directory is not on this machine.
    return [];
  }
}
