import { describe, expect, it } from 'vitest';
import { EngineError, type EngineErrorKind } from '../engine/protocol.ts';
import { OwnedResources, whenItAnswers } from './owned.ts';

const away = new EngineError({ kind: 'unreachable', operation: 'GET /containers/json', detail: 'nobody listens' });

/** Late looks on a clock that runs as fast as it is waited for. */
function fast(): { looks: OwnedResources; close: () => void; now: () => number } {
  let now = 0;
  const after = (ms: number, action: () => void): (() => void) => {
    now += ms;
    queueMicrotask(action);
    return () => undefined;
  };
  const closing = new AbortController();
  const looks = new OwnedResources(
    {
      clock: { now: () => now, monotonic: () => now, after },
      closing: closing.signal,
      keep: () => undefined,
      making: (_, make) => make(),
    },
    async () => [],
  );
  return { looks, close: () => closing.abort(), now: () => now };
}

describe('a create that was not answered', () => {
  it('is looked for more than once, and is open until the last look', async () => {
    const { looks } = fast();
    const open: (readonly string[])[] = [];
    await looks.follow('a', async () => void open.push(looks.unanswered.map(({ id }) => id)));
    expect(open).toEqual([['a'], ['a']]);
    expect(looks.unanswered.map(({ id }) => id)).toEqual([]);
  });

  it('is looked for until an engine that was away answers', async () => {
    const { looks } = fast();
    let asked = 0;
    await looks.follow('a', async () => {
      asked += 1;
      if (asked <= 20) throw away;
    });
    expect(asked).toBe(22);
    expect(looks.unanswered.map(({ id }) => id)).toEqual([]);
  });

  it('stays open where the engine never answers, in bounded time', async () => {
    const { looks, now } = fast();
    await expect(looks.follow('a', () => Promise.reject(away))).rejects.toBe(away);
    expect(looks.unanswered.map(({ id }) => id)).toEqual(['a']);
    expect(now()).toBeLessThan(70_000);
  });

  it('is looked for again before something else is made, where it had been given up', async () => {
    const { looks } = fast();
    let isAway = true;
    const look = async (): Promise<void> => {
      if (isAway) throw away;
    };
    await expect(looks.follow('a', look)).rejects.toBe(away);
    await looks.again();
    expect(looks.unanswered.map(({ id }) => id)).toEqual(['a']);
    isAway = false;
    await looks.again();
    expect(looks.unanswered.map(({ id }) => id)).toEqual([]);
  });

  it('stays open where the session closes first, and is given up at once then', async () => {
    const { looks, close, now } = fast();
    close();
    await expect(looks.follow('a', () => Promise.reject(away))).rejects.toBe(away);
    expect(looks.unanswered.map(({ id }) => id)).toEqual(['a']);
    expect(now()).toBeLessThan(1000);
  });
});

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
