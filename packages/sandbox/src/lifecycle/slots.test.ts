// Slots: limited, given in order, and every waiter gets one or a timeout.

import { describe, expect, it, vi } from 'vitest';
import { systemClock } from './clock.ts';
import { Slots } from './slots.ts';

const signal = new AbortController().signal;

describe('Slots', () => {
  it('never admits more than its limit and loses no waiter', async () => {
    const slots = new Slots(8, systemClock);
    let now = 0;
    let peak = 0;
    const one = async (): Promise<void> => {
      const release = await slots.take(5000, signal);
      now += 1;
      peak = Math.max(peak, now);
      await new Promise(resolve => setImmediate(resolve));
      now -= 1;
      release();
    };
    await Promise.all(Array.from({ length: 50 }, one));
    expect(peak).toBe(8);
    expect(slots.taken).toBe(0);
  });

  it('admits in the order of arrival', async () => {
    const slots = new Slots(1, systemClock);
    const first = await slots.take(0, signal);
    const order: number[] = [];
    const waiting = [1, 2, 3].map(async n => {
      const release = await slots.take(5000, signal);
      order.push(n);
      release();
    });
    first();
    await Promise.all(waiting);
    expect(order).toEqual([1, 2, 3]);
  });

  it('refuses at once with a deadline of zero', async () => {
    const slots = new Slots(1, systemClock);
    await slots.take(0, signal);
    await expect(slots.take(0, signal)).rejects.toMatchObject({ code: 'ACODE-CTN-009', context: { limit: 1 } });
  });

  it('refuses at the deadline and does not give the place to who has left', async () => {
    vi.useFakeTimers();
    try {
      const slots = new Slots(1, systemClock);
      const release = await slots.take(0, signal);
      const late = slots.take(1000, signal);
      const refused = expect(late).rejects.toMatchObject({ code: 'ACODE-CTN-009', context: { waitedMs: 1000 } });
      await vi.advanceTimersByTimeAsync(1000);
      await refused;
      release();
      release();
      expect(slots.taken).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  it('lets a caller leave the queue by its signal', async () => {
    const slots = new Slots(1, systemClock);
    await slots.take(0, signal);
    const controller = new AbortController();
    const waiting = slots.take(5000, controller.signal);
    controller.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
  });
});
