// Copies in the base of a fork: of what a file was, only what the fork’s own file lacks is stored.

import { closeSync, fstatSync, mkdtempSync, openSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { hasCopy, linkCopy, openCopy, removeCopy, storeShared, storedBytes } from './base-copies.ts';
import type { BaseCopy } from './base-copies.ts';

let directory = '';
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'acode-copies-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const own = (): string => join(directory, 'own');

function store(before: Buffer, after: Buffer, number = 1): BaseCopy | null {
  writeFileSync(own(), after);
  const file = openSync(own(), 'r');
  try {
    const found = storeShared({ directory, number }, before, { file, path: own() });
    return found && 'shared' in found ? { directory, number, size: before.length, shared: found.shared } : null;
  } finally {
    closeSync(file);
  }
}

function contentOf(copy: BaseCopy): Buffer | null {
  const file = openCopy(copy);
  if (file === null) return null;
  try {
    expect(fstatSync(file).size).toBe(copy.size);
    return readFileSync(file);
  } finally {
    closeSync(file);
  }
}

const SOURCE = Buffer.from(Array.from({ length: 5000 }, (_, line) => `line ${line} of a source file\n`).join(''));
const edited = (at: number, text: string, removed = 0): Buffer =>
  Buffer.concat([SOURCE.subarray(0, at), Buffer.from(text), SOURCE.subarray(at + removed)]);

describe('a copy', () => {
  it.each([
    ['the same', SOURCE, 0],
    ['longer', edited(SOURCE.length, 'more\n'), 0],
    ['longer at its beginning', edited(0, 'more\n'), 0],
    ['changed in a line', edited(60_000, 'CHANGED', 7), 0],
    ['shorter', SOURCE.subarray(0, SOURCE.length - 500), 0],
    [
      'changed in two lines, and longer',
      Buffer.concat([
        edited(900, 'A').subarray(0, 90_000),
        Buffer.from('B\n'),
        SOURCE.subarray(90_000),
        Buffer.from('C'),
      ]),
      0,
    ],
    ['in another order', Buffer.concat([SOURCE.subarray(60_000), SOURCE.subarray(0, 60_000)]), 0],
    ['changed in many lines', edited(60_000, 'x'.repeat(20_000), 20_000), 20_000],
  ])('of a file that is %s stores what differs', (_, after, bytes) => {
    const copy = store(SOURCE, after);
    expect(copy && storedBytes(copy.size, copy.shared)).toBeLessThanOrEqual(bytes);
    expect(copy && hasCopy(copy)).toBe(true);
    expect(copy && contentOf(copy)?.equals(SOURCE)).toBe(true);
    // The layer’s file may go, as with a squash of layers; nothing but the copy is left.
    rmSync(own());
    expect(copy && contentOf(copy)?.equals(SOURCE)).toBe(true);
    removeCopy(directory, 1);
    expect(readdirSync(directory)).toEqual([]);
  });

  it('of a file that is mostly another is a whole one', () => {
    expect(store(SOURCE, Buffer.from('other\n'))).toBeNull();
    expect(store(SOURCE, edited(10, 'y'.repeat(100_000), 100_000))).toBeNull();
    expect(readdirSync(directory)).toEqual(['own']);
  });

  it('is not needed where a merge would always be a conflict', () => {
    const kept = (before: Buffer, after: Buffer): string => {
      writeFileSync(own(), after);
      const from = openSync(own(), 'r');
      const found = storeShared({ directory, number: 1 }, before, { file: from, path: own() });
      closeSync(from);
      removeCopy(directory, 1);
      return found === null ? 'whole' : 'shared' in found ? 'shared' : 'digest';
    };
    const lines = (text: string): Buffer => Buffer.from(`${text}\n`.repeat(500));
    expect(kept(SOURCE, lines('of another file'))).toBe('digest');
    expect(kept(Buffer.concat([Buffer.alloc(9000), SOURCE]), lines('text'))).toBe('digest');
    expect(kept(SOURCE, Buffer.alloc(9000))).toBe('digest');
    expect(kept(SOURCE, Buffer.concat([lines('of another file'), SOURCE.subarray(0, 2000)]))).toBe('whole');
    expect(kept(Buffer.from('short\n'), lines('of another file'))).toBe('shared');
  });

  it('is none any more where the fork’s file or its own part was changed', () => {
    const copy = store(SOURCE, edited(60_000, 'x'.repeat(20_000), 20_000));
    writeFileSync(join(directory, '1'), Buffer.alloc(20_000));
    expect(copy && contentOf(copy)).toBeNull();
    rmSync(join(directory, '1'));
    expect(copy && hasCopy(copy)).toBe(false);
    const other = store(SOURCE, edited(SOURCE.length, 'more\n'), 2);
    writeFileSync(own(), 'written in place\n');
    expect(other && contentOf(other)).toBeNull();
  });

  it('is given to another base under the same number', () => {
    const copy = store(SOURCE, edited(60_000, 'x'.repeat(20_000), 20_000));
    const other = mkdtempSync(join(directory, 'other-'));
    linkCopy(directory, other, 1);
    linkCopy(directory, other, 1);
    removeCopy(directory, 1);
    expect(copy && contentOf({ ...copy, directory: other })?.equals(SOURCE)).toBe(true);
  });

  it('is the file, whatever the two are', () => {
    const piece = fc.uint8Array({ maxLength: 9000 });
    let stored = 0;
    fc.assert(
      fc.property(piece, piece, piece, piece, (head, before, after, tail) => {
        const was = Buffer.concat([head, before, tail]);
        const copy = store(was, Buffer.concat([head, after, tail]));
        if (copy) stored += 1;
        const isRight = !copy || contentOf(copy)?.equals(was) === true;
        removeCopy(directory, 1);
        return isRight;
      }),
      { numRuns: 200 },
    );
    expect(stored).toBeGreaterThan(20);
  });
});
