// System errors: the code that Node gives a failed system call, and its meaning for a person.

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
  ENFILE: 'too many files are open',
  ENOMEM: 'no memory left',
  EIO: 'the disk does not work',
};

/** The code of a failed system call; empty where the error has none. */
export function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';
}

/** What went wrong, for a person. */
export function reasonOf(error: unknown): string {
  const words = WORDS[codeOf(error)];
  return words ?? (error instanceof Error ? error.message.replace(/\.$/, '') : String(error));
}

/** What a machine can run out of. */
export type Shortage = 'disk' | 'memory' | 'processes' | 'files';

// The words of the kernel as the C library, Go and Node write them; engines and bubblewrap pass them on.
const SHORTAGES: readonly (readonly [Shortage, RegExp])[] = [
  ['disk', /no space left on device|disk quota exceeded|\bE(?:NOSPC|DQUOT)\b/i],
  ['memory', /cannot allocate memory|\bENOMEM\b/i],
  ['processes', /resource temporarily unavailable|pthread_create failed|\bEAGAIN\b/i],
  ['files', /too many open files|\bE[MN]FILE\b/i],
];

/** What the machine ran out of, where the reason for a failure says so. */
export function shortageIn(reason: string): { readonly shortage?: Shortage } {
  const found = SHORTAGES.find(([, words]) => words.test(reason));
  return found ? { shortage: found[0] } : {};
}
