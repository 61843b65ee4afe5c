// The limits of a command: asked to end first, killed after the grace, and never touched when it ended in time; killed at once where
// its sandbox has changed.

import { describe, expect, it, vi } from 'vitest';
import { AcodeError } from '../contract/errors.ts';
import type { Clock } from '../contract/ports.ts';
import { systemClock } from '../lifecycle/clock.ts';
import type { Ending, Execution } from './backend.ts';
import { limitNetwork, supervise } from './supervise.ts';

const LIMITS = { timeoutMs: 1000, graceMs: 100, sandboxId: 's' };
const ending: Ending = { exitCode: 0, oomKilled: false, pidsRefused: false };

function execution(endsOn: string | null) {
  const signals: string[] = [];
  let end: (value: Ending) => void = () => undefined;
  const ended = new Promise<Ending>(resolve => (end = resolve));
  const kill = async (signal: string): Promise<void> => {
    signals.push(signal);
    if (signal === endsOn) end(ending);
    if (signal === 'SIGTERM') throw new Error('the engine did not answer');
  };
  return { signals, end: () => end(ending), execution: { ended, kill } as unknown as Execution };
}

describe('supervise', () => {
  it('lets a command end by itself', async () => {
    const command = execution(null);
    const supervised = supervise(command.execution, LIMITS, systemClock);
    command.end();
    expect(await supervised).toEqual({ ending, timedOut: false });
    expect(command.signals).toEqual([]);
  });

  it.each([
    ['SIGTERM', ['SIGTERM']],
    ['SIGKILL', ['SIGTERM', 'SIGKILL']],
  ])('ends one that obeys %s, whatever becomes of the request', async (endsOn, signals) => {
    vi.useFakeTimers();
    try {
      const command = execution(endsOn);
      const supervised = supervise(command.execution, LIMITS, systemClock);
      await vi.advanceTimersByTimeAsync(1500);
      expect(await supervised).toEqual({ ending, timedOut: true });
      expect(command.signals).toEqual(signals);
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  it.each([
    ['SIGTERM', ['SIGTERM']],
    ['SIGKILL', ['SIGTERM', 'SIGKILL']],
  ])('ends one that is stopped, and that obeys %s, which is no time limit', async (endsOn, signals) => {
    vi.useFakeTimers();
    try {
      const command = execution(endsOn);
      const stopped = new Promise<void>(resolve => void setTimeout(resolve, 500));
      const supervised = supervise(command.execution, { ...LIMITS, stopped }, systemClock);
      await vi.advanceTimersByTimeAsync(499);
      expect(command.signals).toEqual([]);
      await vi.advanceTimersByTimeAsync(200);
      expect(command.signals).toEqual(signals);
      expect(await supervised).toEqual({ ending, timedOut: false });
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  it('leaves one alone that has ended before it is stopped', async () => {
    const command = execution(null);
    let stop: () => void = () => undefined;
    const stopped = new Promise<void>(resolve => (stop = resolve));
    const supervised = supervise(command.execution, { ...LIMITS, stopped }, systemClock);
    command.end();
    await supervised;
    stop();
    await stopped;
    expect(command.signals).toEqual([]);
  });

  it('ends one whose sandbox is not what it was, and goes on looking where it could not look', async () => {
    vi.useFakeTimers();
    try {
      const command = execution(null);
      const changed = new AcodeError('ACODE-SBX-010', { violation: 'MountMismatch', detail: 'a mount is gone' });
      const looks = [null, new Error('no more descriptors'), null, changed];
      let looked = 0;
      const assertSame = (): void => {
        const found = looks[looked];
        looked += 1;
        if (found) throw found;
      };
      const limits = { ...LIMITS, timeoutMs: 60_000 };
      const supervised = supervise({ ...command.execution, assertSame }, limits, systemClock);
      const refused = expect(supervised).rejects.toMatchObject({
        code: 'ACODE-SBX-025',
        context: { sandbox: 's', reason: expect.stringContaining('a mount is gone') as string },
      });
      await vi.advanceTimersByTimeAsync(3900);
      expect(command.signals).toEqual([]);
      await vi.advanceTimersByTimeAsync(200);
      await refused;
      expect(command.signals).toEqual(['SIGKILL']);
      expect(looked).toBe(4);
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  it('gives up on one that an engine never reports the end of', async () => {
    vi.useFakeTimers();
    try {
      const command = execution(null);
      const supervised = supervise(command.execution, LIMITS, systemClock);
      const refused = expect(supervised).rejects.toMatchObject({ code: 'ACODE-SBX-018' });
      await vi.advanceTimersByTimeAsync(12_000);
      await refused;
      expect(command.signals).toEqual(['SIGTERM', 'SIGKILL']);
    } finally {
      vi.useRealTimers();
    }
  });
});

// The network’s time limit, on a clock of the test’s own: the network goes, the command stays; if it will not go, both do.

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

function unreachable(failures: number) {
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
    const command = unreachable(0);
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
    const twice = unreachable(2);
    const limit = limitNetwork(twice.execution, 10, clock);
    await clock.pass(10);
    expect([twice.calls, limit.cut]).toEqual([['disconnect', 'disconnect', 'disconnect'], 'disconnected']);
    const always = unreachable(9);
    const other = limitNetwork(always.execution, 10, clock);
    await clock.pass(10);
    expect([always.calls, other.cut]).toEqual([['disconnect', 'disconnect', 'disconnect', 'SIGKILL'], 'killed']);
  });

  it('does nothing after the end of the command, and nothing without a limit', async () => {
    const clock = handClock();
    const command = unreachable(0);
    limitNetwork(command.execution, 10, clock).stop();
    limitNetwork(command.execution, null, clock).stop();
    expect(clock.waiting).toBe(0);
    await clock.pass(100);
    expect(command.calls).toEqual([]);
  });
});
