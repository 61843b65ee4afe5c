// The entry of the user inside, added to an image’s own lists of users and groups. Pure.
//
// Without one, `whoami`, `os.userInfo()`, `getpass.getuser()` and `ssh` fail in every image that does not happen to know the
// caller’s uid. The image’s lists are its maker’s: nothing in them is trusted, and nothing in them is changed.

import type { UserId } from '../contract/policy.ts';

/** The user that an entry is for. */
export interface UserInside extends UserId {
  /** What to call the user, if the image has no other user of that name. */
  readonly name: string;
  readonly home: string;
}

/** One of an image’s lists: its bytes, null where the image has none, or why it cannot be used. */
export type ImageList = Buffer | null | { readonly unusable: string };

/** The list as the sandbox gets it: with the entry added, the image’s own where that has one already, or why neither. */
export type ListInside = { readonly content: Buffer } | { readonly unusable: string } | 'as it is';

/** The most bytes of a list: more than any image has, and little enough to keep for every image. */
export const MAX_LIST_BYTES = 256 * 1024;

/** The name of a user whose own name cannot be used. */
export const PLAIN_NAME = 'sandbox';

/** A login name that every program and every file format takes, or the plain one. */
export function safeName(login: string | null): string {
  return login !== null && login !== 'root' && /^[A-Za-z_][A-Za-z0-9_-]{0,31}$/.test(login) ? login : PLAIN_NAME;
}

/** `/etc/passwd` with an entry for the user. */
export function withUser(list: ImageList, user: UserInside): ListInside {
  const { uid, gid, home } = user;
  return added(list, uid, user, name => `${name}:x:${uid}:${gid}:${name}:${home}:/bin/sh`);
}

/** `/etc/group` with an entry for the user’s group. */
export function withGroup(list: ImageList, user: UserInside): ListInside {
  return added(list, user.gid, user, name => `${name}:x:${user.gid}:`);
}

function added(list: ImageList, id: number, { name }: UserInside, line: (name: string) => string): ListInside {
  if (list !== null && 'unusable' in list) return list;
  const bytes = list ?? Buffer.alloc(0);
  if (bytes.length > MAX_LIST_BYTES) return { unusable: `is larger than ${MAX_LIST_BYTES / 1024} KiB` };
  if (bytes.includes(0)) return { unusable: 'is not text' };
  const entries = bytes
    .toString('latin1')
    .split('\n')
    .map(entry => entry.split(':'));
  if (entries.some(([, , number]) => number !== undefined && number.trim() !== '' && Number(number) === id))
    return 'as it is';
  const taken = new Set(entries.map(([first]) => first));
  const free = [name, PLAIN_NAME, `${PLAIN_NAME}-${id}`].find(candidate => !taken.has(candidate));
  if (free === undefined) return { unusable: `has other users called ${PLAIN_NAME} and ${PLAIN_NAME}-${id}` };
  // Added to a last line without an end, the entry would be a part of that line.
  const end = bytes.length === 0 || bytes.at(-1) === 0x0a ? '' : '\n';
  return { content: Buffer.concat([bytes, Buffer.from(`${end}${line(free)}\n`)]) };
}
