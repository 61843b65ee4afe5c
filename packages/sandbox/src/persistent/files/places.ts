// What a path means inside: checked as node checks it, and made absolute, so that no program takes it for an option.

import { fileError, nulError, typeError } from './errno.ts';

// With the NUL at its end, what the kernel takes.
const MAX_LENGTH = 4095;

/** A path as the caller wrote it, and as programs inside get it. */
export interface Place {
  readonly written: string;
  readonly inside: string;
}

/** How a path is called in errors about it, and what is to be done with it. */
export interface Naming {
  readonly syscall: string;
  readonly argument?: string;
}

/**
 * The place of a path. It is not tidied up: `..` after a link means what the kernel says it means, and a slash at the end
 * asks for a directory.
 */
export function placeOf(path: string, workdir: string, { syscall, argument = 'path' }: Naming): Place {
  assertPath(path, argument);
  // Nothing is at the empty path, where appending it to the directory would be the directory.
  if (path === '') throw fileError('ENOENT', { syscall, path });
  const inside = path.startsWith('/') ? path : `${workdir.replace(/\/+$/, '')}/${path}`;
  // Some programs go a long way step by step, where the kernel would not take the path at all.
  if (Buffer.byteLength(inside) > MAX_LENGTH) throw fileError('ENAMETOOLONG', { syscall, path });
  return { written: path, inside };
}

/** Checks what is to be a path, or the target of a link. */
export function assertPath(path: unknown, argument: string): asserts path is string {
  if (typeof path !== 'string') throw typeError(argument, 'of type string', path);
  if (path.includes('\0')) throw nulError(argument, path);
}

/** The directory that holds a place. */
export function parentOf(inside: string): string {
  const plain = inside.replace(/\/+$/, '');
  return plain.slice(0, plain.lastIndexOf('/')) || '/';
}

/** What the names of a directory’s entries begin with, as `find` prints them. */
export function prefixOf(inside: string): string {
  return `${inside.replace(/\/+$/, '')}/`;
}

/** Whether a path ends in a name that stands for a directory and is none of its entries. */
export function endsInDots(inside: string): boolean {
  return /(?:^|\/)\.{1,2}\/*$/.test(inside);
}

/** Whether names lead from a directory to something below it, and nowhere else. */
export function leadsBelow(way: string): boolean {
  // Most are one name, and need no search.
  if (!way.includes('/')) return way !== '' && way !== '.' && way !== '..';
  return !/(?:^|\/)\.{0,2}(?:\/|$)/.test(way);
}
