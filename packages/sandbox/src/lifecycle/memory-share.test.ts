import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from './clock.ts';
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
      persistent = false,
      sandboxId = randomUUID(),
      signal = new AbortController().signal,
      onWait = () => {},
    } = {},
  ) =>
    share(pid).take(
      { sandboxId, memoryBytes: gib * GIB, machineBytes: 16 * GIB, persistent },
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

  it('is not held by a dead process, nor by a persistent sandbox that was removed', async () => {
    const id = randomUUID();
    await take(1, 6);
    const release = await take(1, 6, { persistent: true, sandboxId: id });
    // Between the two the record of the sandbox is written.
    kept.add(id);
    share(1).keep({ sandboxId: id, memoryBytes: 6 * GIB });
    dead.add(1);
    const asked = { persistent: true };
    await expect(take(2, 8, asked)).rejects.toMatchObject({ context: { othersBytes: 6 * GIB } });
    release();
    await expect(take(2, 8, asked)).rejects.toMatchObject({ context: { othersBytes: 6 * GIB } });
    kept.clear();
    await expect(take(2, 8, asked)).resolves.toBeTypeOf('function');
    expect(left()).toHaveLength(1);
  });

  it('is held by a persistent sandbox while its record is not written yet', async () => {
    const release = await take(1, 6, { persistent: true });
    await expect(take(2, 8, { persistent: true })).rejects.toMatchObject({ context: { othersBytes: 6 * GIB } });
    expect(left()).toHaveLength(1);
    release();
    expect(left()).toEqual([]);
  });

  it('is never taken from single commands by persistent sandboxes: those count at most half of it', async () => {
    for (let number = 0; number < 3; number += 1) await take(1, 4, { persistent: true });
    await expect(take(2, 1, { persistent: true })).rejects.toMatchObject({ context: { othersBytes: 12 * GIB } });
    const first = await take(2, 4);
    await take(3, 2);
    await expect(take(3, 1)).rejects.toMatchObject({ code: 'ACODE-CTN-013' });
    first();
    await expect(take(3, 4)).resolves.toBeTypeOf('function');
  });

  it('is there for one command that asks for more than is left beside persistent sandboxes', async () => {
    await take(1, 6, { persistent: true });
    await expect(take(2, 8)).resolves.toBeTypeOf('function');
  });

  it('is given to the longest waiter, not to a later one that asks for less', async () => {
    const holders = [await take(1, 6), await take(1, 6)];
    const stop = new AbortController();
    let waits = (): void => undefined;
    const waiting = new Promise<void>(resolve => (waits = resolve));
    const large = take(2, 10, { deadlineMs: 60_000, signal: stop.signal, onWait: waits });
    await waiting;
    // Of two that begin in the same millisecond, the id decides.
    await new Promise(resolve => void setTimeout(resolve, 5));
    holders[0]?.();
    // There is room for this one, and there would always be another such one.
    await expect(take(3, 1)).rejects.toMatchObject({ code: 'ACODE-CTN-013' });
    holders[1]?.();
    (await large)();
    (await take(3, 1))();
    expect(left()).toEqual([]);
  });

  it('is not blocked by a waiter that has died, has timed out, or wants a persistent sandbox', async () => {
    const release = await take(1, 6);
    const now = systemClock.now();
    const waits = (pid: number, until: number, kind = '') =>
      writeFileSync(join(directory, 'memory', `waiting.${pid}-1.${randomUUID()}.${now - 1000}.${until}${kind}`), '');
    waits(7, now + 60_000);
    dead.add(7);
    waits(8, now - 1);
    waits(9, now + 60_000, '.persistent');
    (await take(3, 1))();
    waits(9, now + 60_000);
    await expect(take(3, 1)).rejects.toMatchObject({ code: 'ACODE-CTN-013' });
    release();
  });

  it('is left by who is cancelled, and nothing else in the directory counts', async () => {
    await take(1, 12);
    writeFileSync(join(directory, 'memory', 'notes.txt'), 'x');
    const stop = new AbortController();
    const waiting = take(2, 4, { deadlineMs: 60_000, signal: stop.signal, onWait: () => stop.abort() });
    await expect(waiting).rejects.toThrow(/abort/);
    expect(left().filter(name => name.startsWith('waiting'))).toEqual([]);
    expect(left()).toHaveLength(2);
  });
});
