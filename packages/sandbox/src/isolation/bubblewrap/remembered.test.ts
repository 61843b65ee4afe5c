// What is remembered of a sandbox that held: only under the same circumstances, only the user’s own, and not for long.

import { chmodSync, mkdtempSync, renameSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../lifecycle/clock.ts';
import { circumstances, heldLately, rememberHeld } from './backend.ts';

describe('a sandbox that held', () => {
  let directory = '';
  const memory = (uid = process.getuid?.() ?? -1) => ({ directory, uid, clock: systemClock });
  const file = (): string => join(directory, 'bubblewrap-held');

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'held-'));
  });
  afterEach(() => rmSync(directory, { recursive: true }));

  it('is remembered under the same circumstances alone', async () => {
    expect(heldLately(memory(), 'word')).toBe(false);
    rememberHeld(memory(), 'word');
    expect(heldLately(memory(), 'word')).toBe(true);
    expect(heldLately(memory(), 'other')).toBe(false);
  });

  it.each([
    ['too long ago', () => utimesSync(file(), 0, Date.now() / 1000 - 601)],
    ['in the future', () => utimesSync(file(), 0, Date.now() / 1000 + 60)],
    ['where others may write', () => chmodSync(file(), 0o666)],
    [
      'behind a link',
      () => {
        renameSync(file(), join(directory, 'away'));
        symlinkSync(join(directory, 'away'), file());
      },
    ],
  ])('does not count %s', async (_, change) => {
    rememberHeld(memory(), 'word');
    expect(heldLately(memory(), 'word')).toBe(true);
    change();
    expect(heldLately(memory(), 'word')).toBe(false);
  });

  it('does not count where somebody else wrote it', async () => {
    rememberHeld(memory(), 'word');
    expect(heldLately(memory(12_345), 'word')).toBe(false);
  });

  it('is not remembered where there is no directory', async () => {
    const nowhere = { ...memory(), directory: join(directory, 'none') };
    rememberHeld(nowhere, 'word');
    expect(heldLately(nowhere, 'word')).toBe(false);
  });

  it('is another one with another program, or another control group', async () => {
    const program = join(directory, 'bwrap');
    writeFileSync(program, 'one');
    const words = [await circumstances(program, { delegation: null }), await circumstances(program, { delegation: 1 })];
    writeFileSync(program, 'another');
    words.push(await circumstances(program, { delegation: null }));
    expect(new Set(words).size).toBe(3);
  });
});
