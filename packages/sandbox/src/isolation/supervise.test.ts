// The limits of a command: asked to end first, killed after the grace, and never touched when it ended in time; killed at once where
// its sandbox has changed.

import { describe, expect, it, vi } from 'vitest';
import { AcodeError } from '../contract/errors.ts';
import { systemClock } from '../lifecycle/clock.ts';
import type { Ending, Execution } from './backend.ts';
import { supervise } from './supervise.ts';

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
