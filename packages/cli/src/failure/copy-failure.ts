// Why something could not be copied, and what to do about it, by the side it happened on.

import { AcodeError } from '@acode/sandbox';
import { sep } from 'node:path';
import type { Copying } from '../arguments/copying.ts';
import { fileCode, fileReason } from './file-reasons.ts';

const WHERE = {
  inside: 'Paths inside begin in the workspace, or with a slash.',
  outside: 'That is a path of this machine, which begins where you stand, or with a slash.',
} as const;

const INSIDE_REMEDIES: Readonly<Record<string, string>> = {
  EROFS: 'Inside, the workspace, /tmp and the home directory can be written.',
  EACCES: 'Inside, everything is done as the sandbox’s own user: name what it may read, or write to /tmp.',
  EPERM: 'Inside, everything is done as the sandbox’s own user: name what it may read, or write to /tmp.',
  EIO: 'What wrote inside was stopped, as where memory is full: /tmp and the home directory count as memory. Copy to the workspace, or create a sandbox with more (`acode sandbox create --memory 1g`).',
  ENOSPC:
    'Inside, /tmp and the home directory are in memory: copy to the workspace, or create a sandbox with more (`acode sandbox create --tmp 512`).',
};
const OUTSIDE_REMEDIES: Readonly<Record<string, string>> = {
  EROFS: 'That is a path of this machine, on a file system that cannot be written: name another.',
  EACCES: 'That is a path of this machine: name one that you may read, or write to.',
  EPERM: 'That is a path of this machine: name one that you may read, or write to.',
  ENOSPC: 'That is a path of this machine, whose disk is full: make room, or name another.',
};

const REMEDIES = { inside: INSIDE_REMEDIES, outside: OUTSIDE_REMEDIES } as const;

/** The error for a copy that failed: a path that is wrong is no fault of anybody’s but the path’s. */
export function copyFailure(error: unknown, copied: Copying): unknown {
  const code = fileCode(error);
  if (code === null || error instanceof AcodeError) return error;
  const found = error instanceof Error && 'path' in error ? String(error.path) : '';
  const side = happenedOutside(found, copied) ? 'outside' : 'inside';
  // Directories that are held open have names that only this process knows.
  const path = found === '' || isHeld(found) ? copied[side] : found;
  const remedy = REMEDIES[side][code] ?? WHERE[side];
  return new AcodeError('ACODE-FIL-005', { path, reason: fileReason(code), remedy }, { cause: error });
}

function happenedOutside(path: string, { way, inside, outside }: Copying): boolean {
  if (isHeld(path)) return true;
  // The source is named as it was given; what is neither it nor below it is the target, or on the way there.
  const [source, isSourceOutside] = way === 'in' ? [outside, true] : [inside, false];
  const isSource = path === source || path.startsWith(source.endsWith(sep) ? source : `${source}${sep}`);
  return isSource === isSourceOutside;
}

function isHeld(path: string): boolean {
  return /^\/(?:proc\/self|dev)\/fd\//.test(path);
}
