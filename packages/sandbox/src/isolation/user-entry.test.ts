import { describe, expect, it } from 'vitest';
import { MAX_LIST_BYTES, safeName, withGroup, withUser, type ListInside } from './user-entry.ts';

const user = { uid: 1001, gid: 100, name: 'ann', home: '/home/sandbox' };
const text = (list: ListInside): unknown =>
  typeof list === 'object' && 'content' in list ? list.content.toString('latin1') : list;

describe('the entry of the user inside', () => {
  it.each<[string, string | null, unknown]>([
    ['an image without a list', null, 'ann:x:1001:100:ann:/home/sandbox:/bin/sh\n'],
    [
      'an ordinary list',
      'root:x:0:0::/:/bin/sh\n',
      'root:x:0:0::/:/bin/sh\nann:x:1001:100:ann:/home/sandbox:/bin/sh\n',
    ],
    ['a last line without an end', 'a:x:1:1::/:', 'a:x:1:1::/:\nann:x:1001:100:ann:/home/sandbox:/bin/sh\n'],
    ['the uid in it', 'node:x:1001:1001::/home/node:/bin/sh\n', 'as it is'],
    ['the uid written another way', 'node:x:01001:1:::\n', 'as it is'],
    [
      'the gid in the place of the uid',
      'node:x:5:1001:::\n',
      'node:x:5:1001:::\nann:x:1001:100:ann:/home/sandbox:/bin/sh\n',
    ],
    ['the name taken', 'ann:x:5:5:::\n', 'ann:x:5:5:::\nsandbox:x:1001:100:sandbox:/home/sandbox:/bin/sh\n'],
    [
      'both names taken',
      'ann:x:5:5:::\nsandbox:x:6:6:::\n',
      'ann:x:5:5:::\nsandbox:x:6:6:::\nsandbox-1001:x:1001:100:sandbox-1001:/home/sandbox:/bin/sh\n',
    ],
    ['every name taken', 'ann:\nsandbox:\nsandbox-1001:\n', { unusable: expect.stringContaining('other users') }],
    ['bytes that are not UTF-8', '\xff\xfe:x:3:3\n', '\xff\xfe:x:3:3\nann:x:1001:100:ann:/home/sandbox:/bin/sh\n'],
    ['a NUL', 'root\0', { unusable: 'is not text' }],
    ['one byte too many', 'x'.repeat(MAX_LIST_BYTES + 1), { unusable: expect.stringContaining('larger') }],
  ])('is right for %s', (_, image, expected) => {
    expect(text(withUser(image === null ? null : Buffer.from(image, 'latin1'), user))).toEqual(expected);
  });

  it('of the group goes by the gid alone', () => {
    expect(text(withGroup(Buffer.from('root:x:0:\n'), user))).toBe('root:x:0:\nann:x:100:\n');
    expect(text(withGroup(Buffer.from('users:x:100:\n'), user))).toBe('as it is');
    expect(withGroup({ unusable: 'is a directory' }, user)).toEqual({ unusable: 'is a directory' });
  });

  it('has the login name only where nothing in it could be read as something else', () => {
    for (const login of ['ann', 'Ann_1-x', '_x']) expect(safeName(login)).toBe(login);
    for (const login of [null, '', 'root', 'a:b', 'a\nb', 'a b', '-a', '1a', 'ä', 'a'.repeat(33), 'a,b', 'a$'])
      expect(safeName(login)).toBe('sandbox');
  });
});
