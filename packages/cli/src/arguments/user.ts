// The user a command runs as inside the sandbox.

import { InvalidArgumentError } from '@commander-js/extra-typings';

/** `caller`, or user and group by number. */
export function user(text: string): 'caller' | `${number}:${number}` {
  if (text === 'caller') return text;
  const [, uid, gid] = /^(\d{1,10}):(\d{1,10})$/.exec(text) ?? [];
  if (uid === undefined || gid === undefined)
    throw new InvalidArgumentError('Expected numbers as uid:gid, such as 1000:1000; names differ from image to image.');
  return `${Number(uid)}:${Number(gid)}`;
}
