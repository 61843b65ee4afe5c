// Recent commands: two within ten minutes are noticed per workspace, in a small private file.

import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { endedRecently, forgetEnds, noteEnd } from './recent.ts';
import { SocketDirectory } from './socket-path.ts';

const NOW = 1_800_000_000_000;
const MINUTE = 60_000;
const name = (of: number): string => `serve-${String(of).padStart(16, '0')}.sock`;

describe('the end of a command', () => {
  let directory: string;
  let place: SocketDirectory;

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'acode-recent-'));
    chmodSync(directory, 0o700);
    const opened = SocketDirectory.open(directory, process.getuid?.() ?? -1);
    if ('unsafe' in opened) throw new Error(opened.unsafe);
    place = opened;
  });
  afterEach(() => {
    place[Symbol.dispose]();
    rmSync(directory, { recursive: true });
  });
  const file = (): string => join(directory, 'recent-commands');

  it('is recent for ten minutes, for such commands only, and never before it happened', () => {
    expect(noteEnd(place, name(1), NOW)).toBe(false);
    expect(noteEnd(place, name(2), NOW)).toBe(false);
    expect(noteEnd(place, name(1), NOW + 10 * MINUTE - 1)).toBe(true);
    expect(noteEnd(place, name(2), NOW + 10 * MINUTE)).toBe(false);
    expect(noteEnd(place, name(2), NOW)).toBe(false);
    expect([1, 2, 3].map(of => endedRecently(place, name(of), NOW + 10 * MINUTE))).toEqual([true, false, false]);
  });

  it('does not count any more once a server was started', () => {
    noteEnd(place, name(1), NOW);
    forgetEnds(place, name(1));
    expect(noteEnd(place, name(1), NOW + 1)).toBe(false);
  });

  it('is kept for the workspaces that were used last, in a private file that does not grow', () => {
    for (let of = 0; of < 200; of++) noteEnd(place, name(of), NOW + of);
    expect(statSync(file()).size).toBeLessThan(2048);
    expect(statSync(file()).mode & 0o777).toBe(0o600);
    expect([0, 199].map(of => endedRecently(place, name(of), NOW + 300))).toEqual([false, true]);
  });

  it('is read from whole lines alone, and never through a link', () => {
    writeFileSync(file(), `${name(1)} ${NOW}\n${name(2)} 18x\nserve-\n\0\n${name(3)} ${NOW}`);
    expect([1, 2, 3].map(of => endedRecently(place, name(of), NOW))).toEqual([true, false, true]);
    rmSync(file());
    writeFileSync(join(directory, 'other'), 'kept');
    symlinkSync(join(directory, 'other'), file());
    expect(() => noteEnd(place, name(1), NOW)).toThrow('ELOOP');
    expect(readFileSync(join(directory, 'other'), 'utf8')).toBe('kept');
  });
});
