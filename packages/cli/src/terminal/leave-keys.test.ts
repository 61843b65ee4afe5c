// The way out of a shell works whatever runs in it, and takes nothing else from what is typed.

import { describe, expect, it } from 'vitest';
import { LeaveKeys } from './leave-keys.ts';

function typed(...parts: string[]): [text: string, leave: boolean] {
  const keys = new LeaveKeys();
  let text = '';
  for (const part of parts) {
    const { data, leave } = keys.push(Buffer.from(part));
    text += Buffer.from(data).toString();
    if (leave) return [text, true];
  }
  return [text, false];
}

describe('the keys that leave', () => {
  it.each<[string[], string, boolean]>([
    [['~.'], '', true],
    [['ls\r', '~', '.'], 'ls\r', true],
    [['ls\r~.rest'], 'ls\r', true],
    [['a~.'], 'a~.', false],
    [['~~.'], '~.', false],
    [['~/bin\r'], '~/bin\r', false],
    [['~', '/'], '~/', false],
    [['\r\r~x~.'], '\r\r~x~.', false],
    [['\u0003\u001b[A'], '\u0003\u001b[A', false],
    [['~\r~.'], '~\r', true],
  ])('of %j give %j, and leave: %j', (parts, text, leave) => {
    expect(typed(...parts)).toEqual([text, leave]);
  });
});
