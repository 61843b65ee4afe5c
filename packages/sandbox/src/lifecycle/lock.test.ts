// Lock between processes: one holder at a time, never taken from a live holder, always freed from a dead one.

import { mkdtempSync, readdirSync, readlinkSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { holderText, isProvablyGone, parseHolder, processLine, thisHolder } from './lock.ts';
import type { Holder, Processes } from './lock.ts';
import { releaseLock, sweepLocks, takeLock } from './lock.ts';

const me: Holder = { pid: 100, start: '5', boot: 'a'.repeat(16), namespace: '1', machine: '0'.repeat(8) };
const other: Holder = { ...me, pid: 200 };
const third: Holder = { ...me, pid: 300 };

let directory = '';
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'locks-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

const put = (name: string, holder: Holder): void => symlinkSync(holderText(holder), join(directory, name));
const gone =
  (...pids: number[]) =>
  (holder: Holder): boolean =>
    pids.includes(holder.pid);

describe('a lock', () => {
  it('is had by one at a time, and by the next when it is given back', () => {
    expect(takeLock(directory, 5, me, true, gone())).toEqual({ held: true, generation: 0 });
    expect(takeLock(directory, 5, other, true, gone())).toMatchObject({ held: false, holder: me });
    expect(takeLock(directory, 6, other, true, gone())).toMatchObject({ held: true });
    releaseLock(directory, 5, 0, false);
    expect(takeLock(directory, 5, other, true, gone())).toMatchObject({ held: true });
  });

  it('of the dead passes on, and their locks stay until the record exists', () => {
    put('lock.5', other);
    put('lock.5.1', third);
    expect(takeLock(directory, 5, me, true, gone(200, 300))).toEqual({ held: true, generation: 2 });
    expect(readdirSync(directory).sort()).toEqual(['lock.5', 'lock.5.1', 'lock.5.2']);
    releaseLock(directory, 5, 2, true);
    expect(readdirSync(directory)).toEqual([]);
  });

  it('that was taken over and given back unwritten leaves only the dead', () => {
    put('lock.5', other);
    takeLock(directory, 5, me, true, gone(200));
    releaseLock(directory, 5, 1, false);
    expect(readdirSync(directory)).toEqual(['lock.5']);
    expect(takeLock(directory, 5, third, true, gone(200))).toEqual({ held: true, generation: 1 });
  });

  it('is not taken from a living one, however many dead there were before', () => {
    put('lock.5', other);
    put('lock.5.1', third);
    expect(takeLock(directory, 5, me, true, gone(200))).toMatchObject({ held: false, holder: third });
    expect(readdirSync(directory).sort()).toEqual(['lock.5', 'lock.5.1']);
  });

  it.each([0, 1])('is not had where a dead one had released its lock %i, and another has it', generation => {
    put('lock.5', other);
    put('lock.5.1', third);
    const name = ['lock.5', 'lock.5.1'][generation] ?? '';
    // Between being read and being found dead, the lock passes to a live process.
    const late = (holder: Holder): boolean => {
      if (holder.pid === 300) {
        unlinkSync(join(directory, name));
        put(name, { ...me, pid: 400 });
      }
      return holder.pid !== 400;
    };
    expect(takeLock(directory, 5, me, true, late)).toMatchObject({ held: false });
    expect(readdirSync(directory).sort()).toEqual(['lock.5', 'lock.5.1']);
    expect(readlinkSync(join(directory, name))).toBe(holderText({ ...me, pid: 400 }));
  });

  it('cannot be taken when its content is unreadable', () => {
    symlinkSync('nonsense', join(directory, 'lock.5'));
    writeFileSync(join(directory, 'lock.6'), '');
    const all = (): boolean => true;
    expect(takeLock(directory, 5, me, true, all)).toMatchObject({ held: false, holder: null });
    expect(takeLock(directory, 6, me, true, all)).toMatchObject({ held: false, holder: null });
  });

  it('is asked about only when it is worth it', () => {
    put('lock.5', other);
    expect(takeLock(directory, 5, me, false, gone(200))).toMatchObject({ held: false });
  });

  it('for a record that exists is swept away, and no other', () => {
    for (const name of ['lock.3', 'lock.4.1', 'lock.5', 'lock.6', 'locksmith']) put(name, other);
    sweepLocks(directory, 5);
    expect(readdirSync(directory).sort()).toEqual(['lock.6', 'locksmith']);
  });
});

describe('whether a holder is dead', () => {
  const processes = (exists: boolean | null, found: ReturnType<Processes['inspect']>): Processes => ({
    exists: () => exists,
    inspect: () => found,
  });
  const alive = { start: '5', over: false };

  it.each<[string, Partial<Holder>, Processes, boolean]>([
    ['there is no such process', {}, processes(false, null), true],
    ['another process has the number', {}, processes(true, { start: '6', over: false }), true],
    ['nothing of it can run any more', {}, processes(true, { start: '5', over: true }), true],
    ['the machine was started anew', { boot: 'b'.repeat(16) }, processes(true, alive), true],
    ['it lives', {}, processes(true, alive), false],
    ['it cannot be inspected', {}, processes(true, null), false],
    ['it cannot be asked for', {}, processes(null, null), false],
    ['it counts in another namespace', { namespace: '2' }, processes(false, null), false],
    ['it is on another machine', { machine: '1'.repeat(8), boot: 'b'.repeat(16) }, processes(false, null), false],
    ['its boot is unknown', { boot: '-' }, processes(false, null), false],
    ['its start is unknown, and the number is in use', { start: '-' }, processes(true, alive), false],
  ])('%s', (_, differs, looked, expected) => {
    expect(isProvablyGone({ ...me, ...differs }, me, looked)).toBe(expected);
  });

  it('is known of this process and of one that never was', () => {
    const self = thisHolder();
    expect(isProvablyGone(self, self)).toBe(false);
    expect(isProvablyGone({ ...self, start: '1' }, self)).toBe(true);
    expect(isProvablyGone({ ...self, pid: 2 ** 22 + 1 }, self)).toBe(true);
    // Short enough to be kept in the inode of a link.
    expect(holderText(self).length).toBeLessThan(60);
    expect(parseHolder(holderText(self))).toEqual(self);
  });

  it('is read from a line that names of programs cannot confuse', () => {
    const line = (state: string, threads: number): string =>
      `7 (a) b) Z) ${state} 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 ${threads} 0 12345 1 1`;
    expect(processLine(line('S', 1))).toEqual({ start: '12345', over: false });
    expect(processLine(line('Z', 1))).toEqual({ start: '12345', over: true });
    // The main thread has ended, and another one may still be writing.
    expect(processLine(line('Z', 2))).toEqual({ start: '12345', over: false });
    expect(processLine('nonsense')).toBeNull();
  });
});
