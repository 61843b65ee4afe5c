// Two builds of one project at once: one after the other, and the second finds what the first made.

import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { buildUnderLock } from './building.ts';
import type { BuildLock } from './building.ts';
import { Locks } from '../../lifecycle/lock.ts';
import { systemClock } from '../../lifecycle/clock.ts';

let directory = '';
beforeEach(() => {
  directory = realpathSync(mkdtempSync(join(tmpdir(), 'acode-lock-')));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

// Each with locks of its own, as two processes have them.
function lock(more: Partial<BuildLock> = {}): BuildLock {
  const locks = new Locks({ directory, uid: process.getuid?.() ?? 0, clock: systemClock });
  const { signal } = new AbortController();
  return { locks, engine: 'engine', reference: 'acode-sandbox-x:project', deadlineMs: 20_000, signal, ...more };
}

it('never runs two at once, and builds once what both want', async () => {
  let image: string | null = null;
  let [now, most, builds] = [0, 0, 0];
  const work = async (): Promise<string> => {
    now += 1;
    most = Math.max(most, now);
    await new Promise(resolve => setTimeout(resolve, 20));
    if (image === null) builds += 1;
    image ??= 'made';
    now -= 1;
    return image;
  };
  expect(await Promise.all([1, 2, 3].map(() => buildUnderLock(lock(), work)))).toEqual(['made', 'made', 'made']);
  expect([most, builds]).toEqual([1, 1]);
  // The control: other projects do not wait for each other. Each ends when both have begun.
  let begun = 0;
  const together = async (): Promise<void> => {
    begun += 1;
    await expect.poll(() => begun).toBe(2);
  };
  await Promise.all([1, 2].map(n => buildUnderLock(lock({ reference: `acode-sandbox-${n}:project` }), together)));
});

it('names the process that has the lock when it is not free in time', async () => {
  let end = (): void => undefined;
  let begun = false;
  const first = buildUnderLock(lock(), () => {
    begun = true;
    return new Promise<void>(resolve => (end = resolve));
  });
  await expect.poll(() => begun).toBe(true);
  await expect(buildUnderLock(lock({ deadlineMs: 50 }), async () => undefined)).rejects.toMatchObject({
    code: 'ACODE-IMG-001',
    message: expect.stringContaining(`process ${process.pid}`),
  });
  end();
  await first;
  await expect(buildUnderLock(lock(), async () => 'again')).resolves.toBe('again');
});
