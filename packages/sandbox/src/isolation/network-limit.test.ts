// The network’s time limit, on a clock of the test’s own: the network goes, the command stays; if it will not go, both do.

import { describe, expect, it } from 'vitest';
import type { Clock } from '../contract/ports.ts';
import type { Execution } from './backend.ts';
import { limitNetwork } from './network-limit.ts';

function handClock(): Clock & { pass(ms: number): Promise<void>; readonly waiting: number } {
  const timers = new Map<symbol, { at: number; action: () => void }>();
  let time = 0;
  return {
    now: () => time,
    monotonic: () => time,
    after(ms, action) {
      const key = Symbol('timer');
      timers.set(key, { at: time + ms, action });
      return () => void timers.delete(key);
    },
    async pass(ms) {
      time += ms;
      for (const [key, { at, action }] of timers) {
        if (at > time) continue;
        timers.delete(key);
        action();
      }
      await new Promise(resolve => setImmediate(resolve));
    },
    get waiting() {
      return timers.size;
    },
  };
}

function execution(failures: number) {
  const calls: string[] = [];
  let left = failures;
  const disconnect = async (): Promise<void> => {
    calls.push('disconnect');
    left -= 1;
    if (left >= 0) throw new Error('the engine did not answer');
  };
  const kill = async (signal: string): Promise<void> => {
    calls.push(signal);
    throw new Error('the engine did not answer');
  };
  return { calls, execution: { disconnect, kill } as unknown as Execution };
}

describe('limitNetwork', () => {
  it('takes the network away at the limit and not before, once', async () => {
    const clock = handClock();
    const command = execution(0);
    const limit = limitNetwork(command.execution, 1000, clock);
    await clock.pass(999);
    expect([command.calls, limit.cut]).toEqual([[], 'none']);
    await clock.pass(1);
    expect([command.calls, limit.cut]).toEqual([['disconnect'], 'disconnected']);
    await clock.pass(10_000);
    expect(command.calls).toEqual(['disconnect']);
  });

  it('tries again when the engine fails, and ends the command when it keeps failing', async () => {
    const clock = handClock();
    const twice = execution(2);
    const limit = limitNetwork(twice.execution, 10, clock);
    await clock.pass(10);
    expect([twice.calls, limit.cut]).toEqual([['disconnect', 'disconnect', 'disconnect'], 'disconnected']);
    const always = execution(9);
    const other = limitNetwork(always.execution, 10, clock);
    await clock.pass(10);
    expect([always.calls, other.cut]).toEqual([['disconnect', 'disconnect', 'disconnect', 'SIGKILL'], 'killed']);
  });

  it('does nothing after the end of the command, and nothing without a limit', async () => {
    const clock = handClock();
    const command = execution(0);
    limitNetwork(command.execution, 10, clock).stop();
    limitNetwork(command.execution, null, clock).stop();
    expect(clock.waiting).toBe(0);
    await clock.pass(100);
    expect(command.calls).toEqual([]);
  });
});
