// Copy failures name the path that was meant, and what helps on its side.

import { AcodeError } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { copyFailure } from './copy-files.ts';
import type { CopyRequest } from './copy-files.ts';

const into: CopyRequest = { direction: 'in', sandbox: 's', inside: '/usr/x', outside: '/home/u/a' };
const out: CopyRequest = { direction: 'out', sandbox: 's', inside: '/etc/x', outside: '/home/u/b' };
const failure = (code: string, path: string): Error => Object.assign(new Error(code), { code, path });

describe('a copy that failed', () => {
  it.each<[string, string, string, CopyRequest, RegExp]>([
    [
      'what is read-only inside',
      'EROFS',
      '/usr/x',
      into,
      /^\/usr\/x: is read-only\. .*\/tmp and the home directory can/,
    ],
    ['a full place inside', 'ENOSPC', '/tmp/x', into, /^\/tmp\/x: there is no space left\. .*--tmp/],
    ['memory that is full inside', 'EIO', '/tmp/x', into, /use memory\. Copy to the workspace/],
    ['a source here', 'EACCES', '/home/u/a', into, /^\/home\/u\/a: access is denied\. That is a path of this machine/],
    ['below a source here', 'EACCES', '/home/u/a/b', into, /That is a path of this machine/],
    ['a source inside', 'EACCES', '/etc/x', out, /^\/etc\/x: access is denied\. Inside, .* sandbox’s own user/],
    ['no source inside', 'ENOENT', '/etc/x', out, /^\/etc\/x: does not exist\. Paths in the sandbox are absolute/],
    ['a target here', 'EACCES', '/home/u', out, /^\/home\/u: access is denied\. That is a path of this machine/],
    ['a full disk here', 'ENOSPC', '/home/u/b', out, /That is a path of this machine, whose disk is full/],
    [
      'a held directory',
      'EACCES',
      '/proc/self/fd/21/.acode-x',
      out,
      /^\/home\/u\/b: access is denied\. That is a path of/,
    ],
  ])('tells of %s', (_, code, path, copied, said) => {
    const error = copyFailure(failure(code, path), copied);
    if (!(error instanceof AcodeError)) throw new Error('no error of ours');
    expect(error.code).toBe('ACODE-FIL-005');
    expect(`${error.message} ${error.hint}`).toMatch(said);
  });

  it('for another reason is told as it is', () => {
    const error = new AcodeError('ACODE-FIL-004', { path: 'x' });
    expect(copyFailure(error, into)).toBe(error);
    const other = new TypeError('x');
    expect(copyFailure(other, into)).toBe(other);
  });
});
