// What the answers of engines about a path mean, as they were recorded from Docker 28 and 20.10 and from Podman.

import { expect, it } from 'vitest';
import { pathKind } from './exec.ts';

const header = (stat: object): string => Buffer.from(JSON.stringify(stat)).toString('base64');

it.each([
  ['a directory of Docker', 200, { name: 'etc', size: 4096, mode: 2147484141, linkTarget: '' }, 'directory'],
  ['a directory of Podman', 200, { name: 'etc', mode: 2147484141, isDir: true, linkTarget: '/etc' }, 'directory'],
  ['a link of Docker', 200, { name: 'acode', mode: 134218239, linkTarget: '/workspace/a/b' }, 'symbolic link'],
  ['a link of Podman to a directory', 200, { mode: 134218239, isDir: true }, 'symbolic link'],
  ['a link of Podman that leads nowhere', 404, { mode: 134218239, isDir: false }, 'symbolic link'],
  ['a file', 200, { mode: 0o644 }, 'file'],
  ['a file with the bit of its owner', 200, { mode: 0o755 + 0x800000 }, 'file'],
  ['a device', 200, { mode: 0x4000000 + 0o666 }, 'other'],
  ['an answer without a mode', 200, { name: 'etc' }, 'other'],
  ['a directory that is not found', 404, { mode: 2147484141 }, 'other'],
] as const)('%s', (_, status, stat, kind) => {
  expect(pathKind(status, header(stat))).toBe(kind);
});

it('says that nothing is there only for an answer that says nothing else', () => {
  expect(pathKind(404, undefined)).toBe('absent');
  expect(pathKind(200, undefined)).toBe('other');
  expect(pathKind(200, 'not base64 of anything')).toBe('other');
});
