import { describe, expect, it } from 'vitest';
import { EngineError } from '../engine/error.ts';
import type { EngineErrorKind } from '../engine/error.ts';
import { whenItAnswers } from './persist.ts';

function failure(kind: EngineErrorKind, status?: number): EngineError {
  return new EngineError({ kind, operation: 'DELETE /x', detail: 'no', ...(status === undefined ? {} : { status }) });
}

/** A clock whose waits are over at once, and remembered. */
function recorded(): { clock: Parameters<typeof whenItAnswers>[1]['clock']; waits: number[] } {
  const waits: number[] = [];
  const after = (ms: number, action: () => void): (() => void) => {
    waits.push(ms);
    queueMicrotask(action);
    return () => undefined;
  };
  return { clock: { now: () => 0, monotonic: () => 0, after }, waits };
}

/** A call that fails with each of these in turn, and then succeeds. */
function failing(...errors: readonly unknown[]): { call: () => Promise<string>; calls: () => number } {
  let made = 0;
  const call = async (): Promise<string> => {
    made += 1;
    if (made <= errors.length) throw errors[made - 1];
    return 'done';
  };
  return { call, calls: () => made };
}

describe('a call to an engine that is away', () => {
  it.each(['unreachable', 'disconnected', 'timeout'] as const)('is repeated while it is %s', async kind => {
    const { call, calls } = failing(...Array.from({ length: 8 }, () => failure(kind)));
    const { clock, waits } = recorded();
    expect(await whenItAnswers(call, { clock, isOver: () => false })).toBe('done');
    expect(calls()).toBe(9);
    expect(Math.max(...waits)).toBeLessThanOrEqual(500);
    expect(waits[0]).toBeLessThanOrEqual(50);
  });

  it.each([
    ['an answer that says no', failure('status', 409)],
    ['a failure of the engine itself', failure('status', 500)],
    ['a caller who gave up', failure('aborted')],
    ['a permission that is missing', failure('refused')],
    ['a mistake of ours', new TypeError('x')],
  ])('is not repeated after %s', async (_, error) => {
    const { call, calls } = failing(error);
    await expect(whenItAnswers(call, { ...recorded(), isOver: () => false })).rejects.toBe(error);
    expect(calls()).toBe(1);
  });

  it('is given up once there is no point in it', async () => {
    const { call, calls } = failing(failure('unreachable'), failure('unreachable'), failure('unreachable'));
    await expect(whenItAnswers(call, { ...recorded(), isOver: () => calls() === 2 })).rejects.toThrow('no');
    expect(calls()).toBe(2);
  });
});
