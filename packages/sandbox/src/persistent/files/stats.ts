// Reads what `stat` prints inside. Pure.

import type { DirectoryEntry, FileStats } from '../../contract/sandbox.ts';

const KIND = 0o170000;
const KINDS = { file: 0o100000, directory: 0o040000, link: 0o120000 } as const;

// mode, size, owner, group, links, inode, seconds, and the same as a date, which alone has the fraction.
const LINE = /^([0-9a-f]+) (\d+) (\d+) (\d+) (\d+) (\d+) (-?\d+) [-\d]+ [\d:]+(?:\.(\d+))?/;

/** What a line of `stat` tells; null where it is none. */
export function readStats(line: string): FileStats | null {
  const [, mode = '', size, uid, gid, nlink, ino, seconds, fraction = ''] = LINE.exec(line) ?? [];
  if (seconds === undefined) return null;
  const mtimeMs = Number(seconds) * 1000 + Number(`0.${fraction || '0'}`) * 1000;
  return {
    ...kindOf(Number.parseInt(mode, 16)),
    size: Number(size),
    mode: Number.parseInt(mode, 16),
    uid: Number(uid),
    gid: Number(gid),
    nlink: Number(nlink),
    ino: Number(ino),
    mtimeMs,
    mtime: new Date(mtimeMs),
  };
}

/** An entry of a directory, of which only the mode is known, or not even that. */
export function entryOf(name: string, parentPath: string, mode: number | null): DirectoryEntry {
  return { name, parentPath, ...kindOf(mode ?? 0) };
}

/** Whether a mode is a directory’s. */
export function isDirectoryMode(mode: number): boolean {
  return (mode & KIND) === KINDS.directory;
}

type Kind = Pick<FileStats, 'isFile' | 'isDirectory' | 'isSymbolicLink'>;

// The same functions for all of one kind: a directory may have a million entries.
const OTHER = kind(0);
const BY_BITS: ReadonlyMap<number, Kind> = new Map(Object.values(KINDS).map(bits => [bits, kind(bits)]));

function kind(bits: number): Kind {
  return {
    isFile: () => bits === KINDS.file,
    isDirectory: () => bits === KINDS.directory,
    isSymbolicLink: () => bits === KINDS.link,
  };
}

function kindOf(mode: number): Kind {
  return BY_BITS.get(mode & KIND) ?? OTHER;
}
