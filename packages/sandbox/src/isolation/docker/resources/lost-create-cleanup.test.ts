import { describe, expect, it } from 'vitest';
import { EngineError } from '../engine/error.ts';
import { LostCreateCleanup } from './lost-create-cleanup.ts';

const away = new EngineError({ kind: 'unreachable', operation: 'GET /containers/json', detail: 'nobody listens' });

/** Late looks on a clock that runs as fast as it is waited for. */
function fast(): { looks: LostCreateCleanup; close: () => void; now: () => number } {
  let now = 0;
  const after = (ms: number, action: () => void): (() => void) => {
    now += ms;
    queueMicrotask(action);
    return () => undefined;
  };
  const closing = new AbortController();
  const looks = new LostCreateCleanup({
    clock: { now: () => now, monotonic: () => now, after },
    closing: closing.signal,
  });
  return { looks, close: () => closing.abort(), now: () => now };
}

describe('a create that was not answered', () => {
  it('is looked for more than once, and is open until the last look', async () => {
    const { looks } = fast();
    const open: (readonly string[])[] = [];
    await looks.follow('a', async () => void open.push(looks.unanswered));
    expect(open).toEqual([['a'], ['a']]);
    expect(looks.unanswered).toEqual([]);
  });

  it('is looked for until an engine that was away answers', async () => {
    const { looks } = fast();
    let asked = 0;
    await looks.follow('a', async () => {
      asked += 1;
      if (asked <= 20) throw away;
    });
    expect(asked).toBe(22);
    expect(looks.unanswered).toEqual([]);
  });

  it('stays open where the engine never answers, in bounded time', async () => {
    const { looks, now } = fast();
    await expect(looks.follow('a', () => Promise.reject(away))).rejects.toBe(away);
    expect(looks.unanswered).toEqual(['a']);
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
    expect(looks.unanswered).toEqual(['a']);
    isAway = false;
    await looks.again();
    expect(looks.unanswered).toEqual([]);
  });

  it('stays open where the session closes first, and is given up at once then', async () => {
    const { looks, close, now } = fast();
    close();
    await expect(looks.follow('a', () => Promise.reject(away))).rejects.toBe(away);
    expect(looks.unanswered).toEqual(['a']);
    expect(now()).toBeLessThan(1000);
  });
});
