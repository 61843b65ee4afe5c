import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../telemetry/clock.ts';
import { MemoryShare } from './memory-share.ts';

const GIB = 1024 ** 3;

describe('the memory that sandboxes share', () => {
  let directory: string;
  const dead = new Set<number>();
  const kept = new Set<string>();
  beforeEach(() => void (directory = mkdtempSync(join(tmpdir(), 'acode-memory-'))));
  afterEach(() => {
    rmSync(directory, { recursive: true });
    dead.clear();
    kept.clear();
  });
  const share = (pid: number) =>
    new MemoryShare({
      directory,
      clock: systemClock,
      self: { pid, startTime: '1' },
      isAlive: owner => !dead.has(owner.pid),
      isKept: id => kept.has(id),
    });
  const take = (
    pid: number,
    gib: number,
    {
      deadlineMs = 0,
      keep = false,
      sandboxId = randomUUID(),
      signal = new AbortController().signal,
      onWait = () => {},
    } = {},
  ) =>
    share(pid).take(
      { sandboxId, memoryBytes: gib * GIB, machineBytes: 16 * GIB, keep },
      { deadlineMs, signal, onWait },
    );
  const left = () => readdirSync(join(directory, 'memory'));

  it('is three quarters of the machine’s, for all processes together', async () => {
    const releases = [await take(1, 4), await take(1, 4), await take(2, 4)];
    await expect(take(3, 1)).rejects.toMatchObject({ code: 'ACODE-CTN-013', context: { othersBytes: 12 * GIB } });
    releases[0]?.();
    expect(left()).toHaveLength(2);
    await expect(take(3, 4)).resolves.toBeTypeOf('function');
  });

  it('is waited for, which is said once, and given to who waits', async () => {
    const release = await take(1, 12);
    const said: number[] = [];
    const onWait = (others: number): void => {
      said.push(others);
      setTimeout(release, 400);
    };
    const second = await take(2, 1, { deadlineMs: 20_000, onWait: onWait as () => void });
    expect(said).toEqual([12 * GIB]);
    second();
    expect(left()).toEqual([]);
  });

  it('is always there for one that is alone, however much it wants', async () => {
    (await take(1, 64))();
    expect(left()).toEqual([]);
  });

  it('is not held by a process that is gone, nor by a kept sandbox that is', async () => {
    const id = randomUUID();
    await take(1, 6);
    await take(1, 6, { keep: true, sandboxId: id });
    dead.add(1);
    kept.add(id);
    await expect(take(2, 8)).rejects.toMatchObject({ context: { othersBytes: 6 * GIB } });
    kept.clear();
    await expect(take(2, 8)).resolves.toBeTypeOf('function');
    expect(left()).toHaveLength(1);
  });

  it('is left by who is cancelled, and nothing else in the directory counts', async () => {
    await take(1, 12);
    writeFileSync(join(directory, 'memory', 'notes.txt'), 'x');
    const stop = new AbortController();
    const waiting = take(2, 4, { deadlineMs: 60_000, signal: stop.signal, onWait: () => stop.abort() });
    await expect(waiting).rejects.toThrow(/abort/);
    expect(left()).toHaveLength(2);
  });
});
