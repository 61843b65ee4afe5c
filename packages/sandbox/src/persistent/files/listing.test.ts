// Walks as they come in from inside: in any pieces, with any names, and with what went away in between.

import { describe, expect, it } from 'vitest';
import { WalkReader, readStats } from './listing.ts';
import type { Listed } from './listing.ts';
import { Pauses } from '../../lifecycle/clock.ts';
import { sortedBy } from './files.ts';
import { changesBetween } from './watching.ts';

const DATE = '2026-11-16 00:32:29.712826137 +0000';

function line(mode: string, name: string, ino = 7): string {
  return `${mode} 12 ${ino} ${DATE} ${DATE} ${name}\n`;
}

function portion(names: readonly string[], lines: string): string {
  return `${names.map(name => `${name}\0`).join('')}\0${lines}\0`;
}

describe('a walk', () => {
  const odd = 'w/81a4 12 7\nline: x\n';
  const names = ['w/a', 'w/gone', odd, 'w/z'];
  const text = `${portion(names, line('81a4', 'w/a') + line('41ed', odd) + line('a1ff', 'w/z'))}${portion(['w/last'], line('81a4', 'w/last'))}\0`;

  const bounds = { path: 'w', maxBytes: 1024 ** 2, maxEntries: 5 };

  it.each([1, 2, 7, 4096])('is the same in pieces of %i bytes', async size => {
    const found: Listed[] = [];
    const reader = new WalkReader(bounds, entry => found.push(entry));
    const bytes = Buffer.from(text);
    let isOver = false;
    for (let at = 0; at < bytes.length; at += size) {
      expect(isOver).toBe(false);
      isOver = await reader.push(bytes.subarray(at, at + size));
    }
    expect(isOver).toBe(true);
    expect(found.map(({ name, facts }) => [name, facts?.mode ?? null])).toEqual([
      ['w/a', 0o100644],
      ['w/gone', null],
      [odd, 0o040755],
      ['w/z', 0o120777],
      ['w/last', 0o100644],
    ]);
  });

  it('of nothing is one too', async () => {
    expect(await new WalkReader(bounds, () => expect.unreachable()).push(Buffer.from('\0'))).toBe(true);
  });

  it.each([
    ['another after it', '\0\0', 'ACODE-FIL-002'],
    ['a rest after it', '\0w/a', 'ACODE-FIL-002'],
    ['one entry too many', `${text.slice(0, -1)}${portion(['w/more'], '')}\0`, 'ACODE-FIL-003'],
    ['a byte too many', `w/a\0\0${'x'.repeat(1024 ** 2)}`, 'ACODE-FIL-003'],
    ['a name that no kernel knows', 'x'.repeat(10_000), 'ACODE-FIL-002'],
  ])('with %s is refused', async (_, sent, code) => {
    const reader = new WalkReader(bounds, () => undefined);
    await expect(reader.push(Buffer.from(sent))).rejects.toMatchObject({ code });
  });
});

describe('sorting', () => {
  it.each([0, 1, 4096, 4097, 50_000])('%i items gives the order that node gives', async count => {
    const items = Array.from({ length: count }, (_, at) => `${(at * 7919) % 1009}/${at % 13}`);
    expect(await sortedBy(items, item => item, new Pauses(null))).toEqual(items.toSorted());
  });
});

describe('a line of stat', () => {
  it('tells times with their fractions', () => {
    const stats = readStats(`81a4 1325 1000 1001 1 2244616 1794789149 ${DATE}\n`);
    expect(stats).toMatchObject({ size: 1325, mode: 0o100644, uid: 1000, gid: 1001, nlink: 1, ino: 2244616 });
    expect(stats?.mtimeMs).toBeCloseTo(1794789149712.826, 3);
    expect(stats?.isFile()).toBe(true);
  });

  it('before the epoch too', () => {
    expect(readStats('81a4 0 0 0 1 1 -1 1969-12-31 23:59:59.500000000 +0000')?.mtimeMs).toBe(-500);
  });

  it('that is none is nothing', () => {
    expect(readStats('stat: something')).toBeNull();
  });
});

describe('changes between two looks', () => {
  const file = { mode: 0o100644, ino: '1', version: 'a' };
  it.each([
    ['nothing', { x: file }, { x: file }, []],
    ['a new one', {}, { x: file }, [['rename', 'x']]],
    ['one that was removed', { x: file }, {}, [['rename', 'x']]],
    ['one that is another', { x: file }, { x: { ...file, ino: '2' } }, [['rename', 'x']]],
    ['one that was written to', { x: file }, { x: { ...file, version: 'b' } }, [['change', 'x']]],
    ['other permissions', { x: file }, { x: { ...file, mode: 0o100600 } }, [['change', 'x']]],
    ['a directory’s times', { x: { ...file, mode: 0o040755 } }, { x: { ...file, mode: 0o040755, version: 'b' } }, []],
  ])('%s', (_, before, now, expected) => {
    const changes = changesBetween(new Map(Object.entries(before)), new Map(Object.entries(now)));
    expect(Array.from(changes, ({ eventType, filename }) => [eventType, filename])).toEqual(expected);
  });
});
