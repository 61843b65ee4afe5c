// When a fork is measured, paused and ended: with readings of a disk that a test makes up, and a clock of its own.

import { chmodSync, linkSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { Execution } from '../isolation/backend.ts';
import { DiskJudge, type DiskReaders, type DiskSpace, directoriesOf, diskUse, floorOf, limitDisk } from './disk.ts';

const MIB = 1024 ** 2;
const BLOCK = 4096;
const TOTAL = 100 * 1024 * MIB;

/** A file system with so much free, of which root keeps some. */
function space(freeBytes: number, reservedBytes = 0): DiskSpace {
  const blocks = (bytes: number): number => Math.floor(bytes / BLOCK);
  return { bsize: BLOCK, blocks: blocks(TOTAL), bfree: blocks(freeBytes), bavail: blocks(freeBytes - reservedBytes) };
}

const FREE = 50 * 1024 * MIB;
const whole = (bytes: number) => ({ bytes, isComplete: true });
const quick = { tookMs: 1, now: 0 };

describe('what is kept free', () => {
  it('is 512 MiB, and a twentieth of a small file system', () => {
    expect(floorOf(space(FREE))).toBe(512 * MIB);
    expect(floorOf({ ...space(FREE), blocks: (1000 * MIB) / BLOCK })).toBe(50 * MIB);
  });
});

describe('a limit of 100 MiB', () => {
  const judge = () => new DiskJudge(100 * MIB, space(FREE), 0);

  it('is looked at the sooner the less is left of it', () => {
    const far = new DiskJudge(100 * 1024 * MIB, space(FREE), 0);
    expect(far.looked(space(FREE), 0)).toEqual({ kind: 'wait', ms: 250 });
    expect(judge().looked(space(FREE), 0)).toMatchObject({ kind: 'wait', ms: expect.closeTo(26.2, 1) });
    expect(judge().looked(space(FREE - 90 * MIB), 0)).toEqual({ kind: 'wait', ms: 4 });
  });

  it('has the fork measured once so much was written, by anybody, and not before', () => {
    const one = judge();
    expect(one.looked(space(FREE - 99 * MIB), 0).kind).toBe('wait');
    expect(one.looked(space(FREE - 100 * MIB), 0)).toEqual({ kind: 'measure', paused: false });
    // It was another program: what was measured counts, and as much may be written again as is left.
    expect(one.measured(whole(10 * MIB), false, quick).kind).toBe('wait');
    expect(one.looked(space(FREE - 189 * MIB), 0).kind).toBe('wait');
    expect(one.looked(space(FREE - 190 * MIB), 0).kind).toBe('measure');
  });

  it('counts what was written although as much was freed in between', () => {
    const one = judge();
    one.looked(space(FREE - 60 * MIB), 0);
    one.looked(space(FREE), 0);
    expect(one.looked(space(FREE - 60 * MIB), 0).kind).toBe('measure');
  });

  it('pauses the command where it seems reached, measures again, and ends it', () => {
    const one = judge();
    one.looked(space(FREE - 100 * MIB), 0);
    expect(one.measured(whole(100 * MIB), false, quick)).toEqual({ kind: 'measure', paused: true });
    expect(one.measured(whole(101 * MIB), true, quick)).toEqual({ kind: 'end', by: 'limit' });
  });

  it('lets a command go on that has removed what it wrote meanwhile', () => {
    const one = judge();
    one.looked(space(FREE - 100 * MIB), 0);
    one.measured(whole(100 * MIB), false, quick);
    expect(one.measured(whole(5 * MIB), true, quick).kind).toBe('wait');
  });

  it('pauses first where the last measurement took long', () => {
    const one = judge();
    one.looked(space(FREE - 100 * MIB), 0);
    one.measured(whole(50 * MIB), false, { tookMs: 11, now: 0 });
    expect(one.looked(space(FREE - 150 * MIB), 0)).toEqual({ kind: 'measure', paused: true });
  });

  it('counts all that was written since the start where something cannot be read', () => {
    const one = judge();
    one.looked(space(FREE - 120 * MIB), 0);
    expect(one.measured({ bytes: 1, isComplete: false }, true, quick)).toEqual({ kind: 'end', by: 'limit' });
    const other = judge();
    other.looked(space(FREE - 80 * MIB), 0);
    expect(other.measured({ bytes: 1, isComplete: false }, true, quick).kind).toBe('wait');
  });

  it('is measured from time to time in any case, the seldomer the longer that takes', () => {
    const one = judge();
    expect(one.looked(space(FREE), 1999).kind).toBe('wait');
    expect(one.looked(space(FREE), 2000)).toEqual({ kind: 'measure', paused: false });
    one.measured(whole(0), false, { tookMs: 100, now: 2000 });
    expect(one.looked(space(FREE), 6999).kind).toBe('wait');
    expect(one.looked(space(FREE), 7000).kind).toBe('measure');
  });
});

describe('free space', () => {
  it('ends a command below the floor, with or without a limit, and what root keeps is not free', () => {
    for (const limit of [null, 100 * 1024 * MIB]) {
      const one = new DiskJudge(limit, space(FREE), 0);
      expect(one.looked(space(512 * MIB), 0)).toEqual({ kind: 'wait', ms: 4 });
      expect(one.looked(space(512 * MIB - BLOCK), 0)).toEqual({ kind: 'end', by: 'free-space' });
      expect(one.looked(space(5 * 1024 * MIB, 4.6 * 1024 * MIB), 0)).toEqual({ kind: 'end', by: 'free-space' });
    }
  });

  it('is all that counts without a limit', () => {
    const one = new DiskJudge(null, space(FREE), 0);
    expect(one.looked(space(FREE - 20 * 1024 * MIB), 1e9)).toEqual({ kind: 'wait', ms: 250 });
  });
});

describe('what directories take', () => {
  const top = mkdtempSync(join(tmpdir(), 'acode-disk-use-'));
  afterAll(() => rmSync(top, { recursive: true, force: true }));

  it('is their blocks: no holes, hard links once, and nothing beyond what is enough', async () => {
    const one = join(top, 'one');
    mkdirSync(join(one, 'deep'), { recursive: true });
    writeFileSync(join(one, 'deep', 'file'), Buffer.alloc(MIB, 1));
    linkSync(join(one, 'deep', 'file'), join(one, 'again'));
    const { bytes, isComplete } = await diskUse([one]);
    expect(isComplete).toBe(true);
    expect(bytes).toBeGreaterThanOrEqual(MIB);
    expect(bytes).toBeLessThan(1.2 * MIB);
    for (let at = 0; at < 300; at += 1) writeFileSync(join(one, `f${at}`), 'x');
    expect((await diskUse([one], { enough: 2 * BLOCK })).bytes).toBeLessThan(MIB + 4 * BLOCK);
    expect((await diskUse([join(top, 'none')])).isComplete).toBe(true);
  });

  it.skipIf(process.getuid?.() === 0)(
    'is not known where a directory cannot be read, unless only the kernel can',
    async () => {
      const two = join(top, 'two');
      mkdirSync(join(two, 'shut'), { recursive: true });
      chmodSync(join(two, 'shut'), 0o300);
      expect((await diskUse([two])).isComplete).toBe(false);
      expect((await diskUse([], { blind: [two] })).isComplete).toBe(true);
      chmodSync(join(two, 'shut'), 0o700);
    },
  );

  it('counts the layers of the fork itself, and not those of another that it began with', () => {
    const part = (path: string) => ({ path, identities: [] });
    const lowers = [part('/f/aa/2'), part('/f/aa/1'), part('/f/bb/7')];
    const git = { fork: 'aa', upper: part('/f/aa/3g'), work: part('/f/aa/wg'), lowers: [part('/f/aa/1g')] };
    expect(directoriesOf([{ fork: 'aa', upper: part('/f/aa/3'), work: part('/f/aa/w'), lowers }, git])).toEqual({
      store: '/f/aa',
      live: ['/f/aa/3', '/f/aa/3g'],
      work: ['/f/aa/w', '/f/aa/wg'],
      earlier: ['/f/aa/2', '/f/aa/1', '/f/aa/1g'],
    });
  });
});

describe('a command that is watched', () => {
  const part = (path: string) => ({ path, identities: [] });
  const directories = directoriesOf([{ fork: 'aa', upper: part('/f/aa/1'), work: part('/f/aa/w'), lowers: [] }]);
  const rules = { of: 'fork', directories, limitBytes: 100 * MIB, earlierBytes: 40 * MIB } as const;
  // Time passes whenever somebody waits for it.
  const clock = {
    now: () => 0,
    monotonic: () => 0,
    after: (ms: number, act: () => void) => {
      if (ms > 1000) return () => undefined;
      const timer = setImmediate(act);
      return () => clearImmediate(timer);
    },
  };
  const told = (calls: string[]): Execution => {
    const tell = (name: string) => async () => void calls.push(name);
    const execution: Partial<Execution> = { pause: tell('pause'), resume: tell('resume'), kill: tell('kill') };
    const halt = (): void => void calls.push('halt');
    return { ...execution, halt } as Execution;
  };
  const after = async (isDone: () => boolean): Promise<void> => {
    for (let round = 0; round < 200 && !isDone(); round += 1) await new Promise(resolve => void setImmediate(resolve));
  };

  it('is paused, measured, killed and let go, in this order; layers of earlier commands count', async () => {
    const calls: string[] = [];
    let written = 0;
    const readers: DiskReaders = {
      space: () => space(FREE - written),
      use: async () => {
        calls.push('measure');
        return whole(written);
      },
    };
    const limit = limitDisk(told(calls), rules, clock, readers);
    await after(() => false);
    expect([limit.cut, calls]).toEqual([null, []]);
    written = 60 * MIB;
    await after(() => calls.includes('resume'));
    expect(calls).toEqual(['measure', 'pause', 'measure', 'halt', 'kill', 'resume']);
    expect(limit.cut).toEqual({ by: 'limit', of: 'fork', floorBytes: 512 * MIB });
    limit.stop();
  });

  it('is ended where the disk cannot be watched any more', async () => {
    const calls: string[] = [];
    const readers: DiskReaders = {
      space: () => {
        throw new Error('EIO');
      },
      use: async () => whole(0),
    };
    const limit = limitDisk(told(calls), rules, clock, readers);
    await expect(limit.failed).rejects.toMatchObject({ code: 'ACODE-SBX-018' });
    expect(calls).toEqual(['halt', 'pause', 'kill', 'resume']);
  });

  it('is ended at once where the disk is full already, and left alone once it has ended', async () => {
    const calls: string[] = [];
    const readers: DiskReaders = { space: () => space(0), use: async () => whole(200 * MIB) };
    const limit = limitDisk(told(calls), rules, clock, readers);
    await after(() => calls.includes('resume'));
    expect(limit.cut?.by).toBe('free-space');
    limit.stop();
    const ended: string[] = [];
    const calm = limitDisk(told(ended), rules, clock, { ...readers, space: () => space(FREE) });
    calm.stop();
    await after(() => false);
    expect([calm.cut, ended]).toEqual([null, []]);
  });
});
