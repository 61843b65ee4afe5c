// The time limit: asked to end first, killed after the grace, and never touched when it ended in time.

import { describe, expect, it, vi } from 'vitest';
import { systemClock } from '../telemetry/clock.ts';
import type { Ending, Execution } from './backend.ts';
import { supervise } from './supervise.ts';

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
    const supervised = supervise(command.execution, { timeoutMs: 1000, graceMs: 100 }, systemClock);
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
      const supervised = supervise(command.execution, { timeoutMs: 1000, graceMs: 100 }, systemClock);
      await vi.advanceTimersByTimeAsync(1500);
      expect(await supervised).toEqual({ ending, timedOut: true });
      expect(command.signals).toEqual(signals);
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  it('gives up on one that an engine never reports the end of', async () => {
    vi.useFakeTimers();
    try {
      const command = execution(null);
      const supervised = supervise(command.execution, { timeoutMs: 1000, graceMs: 100 }, systemClock);
      const refused = expect(supervised).rejects.toMatchObject({ code: 'ACODE-SBX-018' });
      await vi.advanceTimersByTimeAsync(12_000);
      await refused;
      expect(command.signals).toEqual(['SIGTERM', 'SIGKILL']);
    } finally {
      vi.useRealTimers();
    }
  });
});
