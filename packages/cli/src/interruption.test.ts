// Signals: the first stops, the second leaves.

import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Interruption } from './interruption.ts';

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

it.each([
  ['SIGHUP', 129],
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const)('%s stops what is under way and asks for status %i', (name, status) => {
  const source = new EventEmitter();
  const leave = vi.fn<(status: number) => void>();
  using interruption = new Interruption(source, leave);
  expect(interruption.exitStatus).toBeNull();
  source.emit(name);
  expect(interruption.signal.aborted).toBe(true);
  expect(interruption).toMatchObject({ name, exitStatus: status });
  expect(leave).not.toHaveBeenCalled();
});

it('a second signal leaves at once', () => {
  const source = new EventEmitter();
  const leave = vi.fn<(status: number) => void>();
  using _ = new Interruption(source, leave);
  source.emit('SIGINT');
  vi.advanceTimersByTime(1000);
  source.emit('SIGINT');
  expect(leave).toHaveBeenCalledWith(130);
});

it('one Ctrl-C that arrives twice, as below npx, is one', () => {
  const source = new EventEmitter();
  const leave = vi.fn<(status: number) => void>();
  using _ = new Interruption(source, leave);
  source.emit('SIGINT');
  vi.advanceTimersByTime(5);
  source.emit('SIGINT');
  expect(leave).not.toHaveBeenCalled();
});

it('lets go of the signals when it is done', () => {
  const source = new EventEmitter();
  {
    using _ = new Interruption(source, () => undefined);
    expect(source.listenerCount('SIGINT')).toBe(1);
  }
  expect(source.listenerCount('SIGINT')).toBe(0);
});
