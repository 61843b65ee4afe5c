// Call queue: so many calls run, so many wait, and the others get a typed refusal.

import { describe, expect, it } from 'vitest';
import { Turns } from './call-queue.ts';

const never = new AbortController().signal;

function held(): { readonly work: () => Promise<string>; readonly end: () => void } {
  let end = (): void => undefined;
  const promise = new Promise<string>(resolve => (end = () => resolve('done')));
  return { work: () => promise, end: () => end() };
}

describe('turns', () => {
  it('run so many, let so many wait, refuse the others, and are free again afterwards', async () => {
    const turns = new Turns({ running: 2, waiting: 3, weight: 100 });
    const works = Array.from({ length: 1000 }, () => held());
    const calls = works.map(({ work }) => turns.during(0, never, work));
    const settled = Promise.allSettled(calls);
    for (const { end } of works) end();
    const results = await settled;
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(5);
    expect(results.at(-1)).toMatchObject({ reason: { code: 'ACODE-MCP-003', context: { running: 2, waiting: 3 } } });
    await expect(turns.during(0, never, async () => 'again')).resolves.toBe('again');
  });

  it('refuse what weighs too much together, and let one heavy call through alone', async () => {
    const turns = new Turns({ running: 8, waiting: 8, weight: 10 });
    const { work, end } = held();
    const heavy = turns.during(50, never, work);
    await expect(turns.during(1, never, work)).rejects.toMatchObject({ code: 'ACODE-MCP-003' });
    end();
    await heavy;
    await expect(turns.during(5, never, async () => 'fits')).resolves.toBe('fits');
  });

  it('lose no slot to a call that failed or was cancelled while it waited', async () => {
    const turns = new Turns({ running: 1, waiting: 5, weight: 10 });
    const { work, end } = held();
    const first = turns.during(0, never, work);
    const cancel = new AbortController();
    const cancelled = turns.during(0, cancel.signal, work);
    const failing = turns.during(0, never, () => Promise.reject(new Error('no')));
    const last = turns.during(0, never, async () => 'last');
    cancel.abort();
    await expect(cancelled).rejects.toThrow(/abort/i);
    end();
    await expect(first).resolves.toBe('done');
    await expect(failing).rejects.toThrow('no');
    await expect(last).resolves.toBe('last');
  });
});
