// Error codes from the messages of programs, in each C library’s wording, as node names them.

import * as fs from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { codeIn, fileError, nulError } from './errno.ts';

describe('what a program printed', () => {
  it.each([
    ['cat: /x: No such file or directory\n', 'ENOENT'],
    ["cat: can't open '/x': Permission denied\n", 'EACCES'],
    ["stat: cannot statx '/x': Too many levels of symbolic links\n", 'ELOOP'],
    ["stat: can't stat '/x': Symbolic link loop\n", 'ELOOP'],
    ["mkdir: can't create directory '/x': Filename too long\n", 'ENAMETOOLONG'],
    ["dd: error writing '/x': No space left on device\n3+0 records in\n2+0 records out\n", 'ENOSPC'],
    ["mv: can't rename '/x': Resource busy\n", 'EBUSY'],
    // The name of a file may say anything; what the system says stands at the end of a line.
    ["cat: '/a: Permission denied'$'\\n''b': No such file or directory\n", 'ENOENT'],
    ["chmod: cannot operate on dangling symlink '/x'\n", 'ENOENT'],
    ['Killed\n', null],
    ['', null],
  ])('%j means %s', (stderr, code) => {
    expect(codeIn(stderr)).toBe(code);
  });
});

describe('errors', () => {
  it('have everything that node’s have', async () => {
    const real: unknown = await fs.copyFile('/nonexistent/a', '/nonexistent/b').catch((error: unknown) => error);
    const own = fileError('ENOENT', { syscall: 'copyfile', path: '/nonexistent/a', dest: '/nonexistent/b' });
    expect(own.message).toBe((real as Error).message);
    expect(Object.fromEntries(Object.entries(own))).toEqual(Object.fromEntries(Object.entries(real as Error)));
  });

  it('of a path with a NUL are node’s', async () => {
    const real: unknown = await fs.readFile('a\0b').catch((error: unknown) => error);
    const own = nulError('path', 'a\0b');
    expect(own).toBeInstanceOf(TypeError);
    expect(own).toMatchObject({ code: 'ERR_INVALID_ARG_VALUE', message: (real as Error).message });
  });
});
