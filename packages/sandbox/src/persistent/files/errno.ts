// Gives the mistakes that programs inside report the shape that `node:fs/promises` gives its own.

import { getSystemErrorMap, inspect } from 'node:util';

/** What was being done, as node names it in an error. */
export interface Attempt {
  readonly syscall: string;
  /** As the caller wrote it. */
  readonly path?: string;
  readonly dest?: string;
}

/** An error with the fields of node’s errors of the file system. */
export interface FileError extends NodeJS.ErrnoException {
  readonly dest?: string;
}

// The words of glibc, then those of musl where they differ. An image may have either.
const WORDS: Readonly<Record<string, string>> = {
  'Operation not permitted': 'EPERM',
  'No such file or directory': 'ENOENT',
  'Input/output error': 'EIO',
  'No such device or address': 'ENXIO',
  'Cannot allocate memory': 'ENOMEM',
  'Permission denied': 'EACCES',
  'Device or resource busy': 'EBUSY',
  'File exists': 'EEXIST',
  'Invalid cross-device link': 'EXDEV',
  'No such device': 'ENODEV',
  'Not a directory': 'ENOTDIR',
  'Is a directory': 'EISDIR',
  'Invalid argument': 'EINVAL',
  'Too many open files in system': 'ENFILE',
  'Too many open files': 'EMFILE',
  'Text file busy': 'ETXTBSY',
  'File too large': 'EFBIG',
  'No space left on device': 'ENOSPC',
  'Illegal seek': 'ESPIPE',
  'Read-only file system': 'EROFS',
  'Too many links': 'EMLINK',
  'Broken pipe': 'EPIPE',
  'File name too long': 'ENAMETOOLONG',
  'Directory not empty': 'ENOTEMPTY',
  'Too many levels of symbolic links': 'ELOOP',
  'Operation not supported': 'ENOTSUP',
  'Disk quota exceeded': 'EDQUOT',
  'Stale file handle': 'ESTALE',
  'I/O error': 'EIO',
  'Out of memory': 'ENOMEM',
  'Resource busy': 'EBUSY',
  'Cross-device link': 'EXDEV',
  'Too many open files in the system': 'ENFILE',
  'No file descriptors available': 'EMFILE',
  'Invalid seek': 'ESPIPE',
  'Filename too long': 'ENAMETOOLONG',
  'Symbolic link loop': 'ELOOP',
  'Not supported': 'ENOTSUP',
  'Quota exceeded': 'EDQUOT',
};

// What programs say in words of their own, instead of the system’s.
const SAYINGS: readonly (readonly [RegExp, string])[] = [
  [/to a subdirectory of itself/, 'EINVAL'],
  [/cannot operate on dangling symlink/, 'ENOENT'],
  [/refusing to remove '\.' or '\.\.'/, 'EINVAL'],
];

const NUMBERS: ReadonlyMap<string, readonly [number, string]> = new Map(
  Array.from(getSystemErrorMap(), ([errno, [code, text]]) => [code, [errno, text]]),
);

/** The code that is meant by what a program printed on standard error; the first, where it printed several. */
export function codeIn(stderr: string): string | null {
  for (const line of stderr.split('\n')) {
    const words = line.slice(line.lastIndexOf(': ') + 2).trim();
    const code = WORDS[words] ?? SAYINGS.find(([saying]) => saying.test(line))?.[1];
    if (code !== undefined) return code;
  }
  return null;
}

/** The error that node would raise. */
export function fileError(code: string, { syscall, path, dest }: Attempt, cause?: unknown): FileError {
  const [errno, text] = NUMBERS.get(code) ?? [undefined, 'unknown error'];
  const where = path === undefined ? '' : ` '${path}'`;
  const whereTo = dest === undefined ? '' : ` -> '${dest}'`;
  const error = new Error(
    `${code}: ${text}, ${syscall}${where}${whereTo}`,
    cause === undefined ? undefined : { cause },
  );
  return Object.assign(
    error,
    { ...(errno !== undefined && { errno }), code, syscall },
    path !== undefined && { path },
    dest !== undefined && { dest },
  );
}

/** What node’s `rm` says of a directory that was not to be removed with its content. */
export function isDirectoryError(path: string): FileError {
  const error = new Error(`Path is a directory: rm returned EISDIR (is a directory) ${path}`);
  error.name = 'SystemError';
  return Object.assign(error, { code: 'ERR_FS_EISDIR', errno: 21, syscall: 'rm', path });
}

/** The error that node raises for a call whose signal has fired. */
export function abortError(reason: unknown): Error {
  const error = new Error('The operation was aborted', { cause: reason });
  error.name = 'AbortError';
  return Object.assign(error, { code: 'ABORT_ERR' });
}

/** The error that node raises for a path with a NUL in it. */
export function nulError(argument: string, value: string): Error {
  const text = `The argument '${argument}' must be a string, Uint8Array, or URL without null bytes. Received ${inspect(value)}`;
  return Object.assign(new TypeError(text), { code: 'ERR_INVALID_ARG_VALUE' });
}

/** The error that node raises for an unknown option value. */
export function valueError(argument: string, fault: string, value: unknown): Error {
  const text = `The argument '${argument}' ${fault}. Received ${inspect(value, { depth: 0 })}`;
  return Object.assign(new TypeError(text), { code: 'ERR_INVALID_ARG_VALUE' });
}

/** The error that node raises for an invalid number. */
export function rangeError(argument: string, range: string, value: unknown): Error {
  const text = `The value of "${argument}" is out of range. It must be ${range}. Received ${inspect(value)}`;
  return Object.assign(new RangeError(text), { code: 'ERR_OUT_OF_RANGE' });
}

/** The error that node raises for an argument of another type. */
export function typeError(argument: string, wanted: string, value: unknown): Error {
  const text = `The "${argument}" argument must be ${wanted}. Received ${inspect(value, { depth: 0 })}`;
  return Object.assign(new TypeError(text), { code: 'ERR_INVALID_ARG_TYPE' });
}

/** The code of an error of the file system; `EIO` if it has none. */
export function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : 'EIO';
}
