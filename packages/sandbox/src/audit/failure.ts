// Why a file of the log could not be used, in words, and as the error that refuses what it was to be written for.

import { AcodeError } from '../contract/errors.ts';

const WORDS: Readonly<Record<string, string>> = {
  EACCES: 'permission denied',
  EPERM: 'the file system does not allow it',
  EROFS: 'the file system is read-only',
  ENOSPC: 'no space left on the disk',
  EDQUOT: 'your quota on that disk is used up',
  EFBIG: 'the file would be larger than this process may write',
  ELOOP: 'a symbolic link stands in its place',
  ENOTDIR: 'something in the path is not a directory',
  EMFILE: 'too many files are open',
  EIO: 'the disk does not work',
};

/** The code of a failed system call. */
export function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}

/** What went wrong with a file, for a person. */
export function reasonOf(error: unknown): string {
  const words = WORDS[codeOf(error) ?? ''];
  return words ?? (error instanceof Error ? error.message.replace(/\.$/, '') : String(error));
}

/** The error that a record could not be written. What is an error of ours already says it better. */
export function notWritten(error: unknown, file: string): AcodeError {
  if (isOurs(error)) return error;
  return new AcodeError('ACODE-AUD-001', { file: pathOf(error) ?? file, reason: reasonOf(error) }, { cause: error });
}

function pathOf(error: unknown): string | null {
  return error instanceof Error && 'path' in error && typeof error.path === 'string' ? error.path : null;
}

function isOurs(error: unknown): error is AcodeError {
  return error instanceof AcodeError && (error.is('ACODE-AUD-001') || error.is('ACODE-AUD-002'));
}
