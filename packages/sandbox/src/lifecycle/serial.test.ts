// Operations on one container never overlap; operations on different ones do.

import { describe, expect, it } from 'vitest';
import { Serial } from './serial.ts';

const pause = (): Promise<void> => new Promise(resolve => setTimeout(resolve, 2));

describe('Serial', () => {
  it('keeps 50 operations on five containers from overlapping on any one of them', async () => {
    const serial = new Serial();
    const busy = new Map<string, number>();
    let overlapping = 0;
    let together = 0;
    await Promise.all(
      Array.from({ length: 50 }, (_, n) =>
        serial.run(String(n % 5), async () => {
          const key = String(n % 5);
          if (busy.get(key)) overlapping += 1;
          busy.set(key, 1);
          together = Math.max(
            together,
            [...busy.values()].reduce((a, b) => a + b, 0),
          );
          await pause();
          busy.set(key, 0);
        }),
      ),
    );
    expect(overlapping).toBe(0);
    expect(together).toBe(5);
  });

  it('goes on after an operation that failed, and hands its error to its own caller only', async () => {
    const serial = new Serial();
    const failed = serial.run('a', () => Promise.reject(new Error('no')));
    const after = serial.run('a', () => Promise.resolve('yes'));
    await expect(failed).rejects.toThrow('no');
    await expect(after).resolves.toBe('yes');
  });
});
