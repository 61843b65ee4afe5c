// Content of the archive, read back by an independent reader.

import { execFileSync } from 'node:child_process';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { tarEnd, tarPadding } from './tar-read.ts';
import { tarHeader } from './context-tar.ts';

/** The names that GNU tar finds. */
function listed(archive: Buffer): string[] {
  const text = execFileSync('tar', ['--quoting-style=literal', '-tf', '-'], { input: archive }).toString('utf8');
  return text.split('\n').slice(0, -1);
}

function fileOf(path: string, content: Buffer): Buffer {
  const header = tarHeader({ path, kind: 'file', mode: 0o644, size: content.length });
  return Buffer.concat([header, content, tarPadding(content.length), tarEnd()]);
}

it('has files, directories and links with their modes, root’s and without a time', () => {
  const archive = Buffer.concat([
    tarHeader({ path: 'a', kind: 'directory', mode: 0o755, size: 0 }),
    tarHeader({ path: 'a/run', kind: 'file', mode: 0o755, size: 3 }),
    Buffer.from('abc'),
    tarPadding(3),
    tarHeader({ path: 'a/link', kind: 'link', mode: 0o777, size: 0, target: 'run' }),
    tarEnd(),
  ]);
  const text = execFileSync('tar', ['--utc', '--numeric-owner', '-tvf', '-'], { input: archive }).toString();
  expect(text.replaceAll(/ +/g, ' ').split('\n')).toEqual([
    'drwxr-xr-x 0/0 0 1970-01-01 00:00 a/',
    '-rwxr-xr-x 0/0 3 1970-01-01 00:00 a/run',
    'lrwxrwxrwx 0/0 0 1970-01-01 00:00 a/link -> run',
    '',
  ]);
});

it.each([99, 100, 101, 255, 998, 999, 1000, 9990])('has a name of %i characters as it is', length => {
  const path = `d/${'x'.repeat(length - 2)}`;
  expect(listed(fileOf(path, Buffer.from('x')))).toEqual([path]);
});

it('has any name and any content as they are', () => {
  const name = fc.string({ unit: 'binary', minLength: 1, maxLength: 40 });
  const path = name.filter(
    text => !/[\n\0/\\]/.test(text) && Buffer.from(text).toString() === text && !/^\.{1,2}$/.test(text),
  );
  fc.assert(
    fc.property(path, fc.uint8Array({ maxLength: 1100 }), (one, bytes) => {
      const archive = fileOf(one, Buffer.from(bytes));
      expect(listed(archive)).toEqual([one]);
      const content = execFileSync('tar', ['-xOf', '-'], { input: archive });
      expect(content.equals(Buffer.from(bytes))).toBe(true);
    }),
    { numRuns: 25 },
  );
});
