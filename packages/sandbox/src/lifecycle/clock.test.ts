// Deadlines: work that takes too long is cancelled, and its listeners are removed.

import { expect, it, vi } from 'vitest';
import { systemClock, withDeadline } from './clock.ts';

const hanging = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('the call was cut'))));
const deadline = (signal: AbortSignal, ms: number) => ({
  clock: systemClock,
  ms,
  signal,
  reason: () => new Error('too late'),
});

it('ends work that takes too long, with the reason', async () => {
  await expect(withDeadline(deadline(new AbortController().signal, 10), hanging)).rejects.toThrow('too late');
});

it('ends work with its caller, and does not begin where the caller has left', async () => {
  const caller = new AbortController();
  const ended = expect(withDeadline(deadline(caller.signal, 5000), hanging)).rejects.toThrow('enough');
  caller.abort(new Error('enough'));
  await ended;
  let begun = false;
  const work = async (): Promise<void> => void (begun = true);
  await expect(withDeadline(deadline(caller.signal, 5000), work)).rejects.toThrow('enough');
  expect(begun).toBe(false);
});

it('passes on what the work came to, and leaves no listener with the caller', async () => {
  const { signal } = new AbortController();
  const [added, removed] = [vi.spyOn(signal, 'addEventListener'), vi.spyOn(signal, 'removeEventListener')];
  expect(await withDeadline(deadline(signal, 5000), async () => 7)).toBe(7);
  await expect(withDeadline(deadline(signal, 5000), async () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  expect(removed.mock.calls.map(([type, listener]) => [type, listener])).toEqual(
    added.mock.calls.map(([type, listener]) => [type, listener]),
  );
  expect(added).toHaveBeenCalledTimes(2);
});
