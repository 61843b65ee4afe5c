import { describe, expect, it } from 'vitest';
import { MemoryEngine } from '../engine/memory.ts';
import { cancelled, claimStep, isFinal, parseState } from './state.ts';
import type { Claimant, TaskState } from './state.ts';
import { FleetTasks } from './tasks.ts';
import type { Claim, Claimer } from './tasks.ts';

const AT = '2026-01-01T00:00:00.000Z';
const state = (of: Partial<TaskState>): TaskState => ({
  schema: 'acode.fleet.state/1',
  state: 'claimed',
  attempt: 1,
  worker: 'w1',
  claim: 'c1',
  at: AT,
  ...of,
});
const claimant: Claimant = { worker: 'w2', claim: 'c2', at: AT, maxAttempts: 3, holderLives: false };

describe('the next step of a task', () => {
  it('lets a worker claim what nobody has, and what its holder has lost', () => {
    for (const [found, attempt] of [
      [null, 1],
      [state({ state: 'queued', attempt: 0, worker: null, claim: null }), 1],
      [state({}), 2],
      [state({ attempt: 2 }), 3],
    ] as const)
      expect(claimStep(found, claimant)).toMatchObject({
        step: 'claim',
        next: { state: 'claimed', attempt, worker: 'w2', claim: 'c2' },
      });
  });

  it('leaves what a living worker has, and ends what is over, cancelled or began too often', () => {
    expect(claimStep(state({}), { ...claimant, holderLives: true })).toEqual({ step: 'wait' });
    expect(claimStep(state({ attempt: 3 }), claimant)).toMatchObject({
      step: 'lose',
      next: { state: 'lost', attempt: 3 },
    });
    expect(claimStep(state({ cancelRequested: true }), claimant)).toMatchObject({
      step: 'lose',
      next: { state: 'cancelled' },
    });
    for (const final of ['succeeded', 'failed', 'timed_out', 'cancelled', 'lost', 'refused'] as const) {
      expect(claimStep(state({ state: final }), claimant)).toEqual({ step: 'remove' });
      expect(cancelled(state({ state: final }), AT)).toBeNull();
      expect(isFinal(state({ state: final }))).toBe(true);
    }
  });

  it('cancels at once what nobody has, and asks the worker otherwise', () => {
    expect(cancelled(null, AT)).toMatchObject({ state: 'cancelled' });
    expect(cancelled(state({ state: 'queued' }), AT)).toMatchObject({ state: 'cancelled' });
    expect(cancelled(state({}), AT)).toMatchObject({ state: 'claimed', cancelRequested: true });
    expect(cancelled(state({ cancelRequested: true }), AT)).toBeNull();
    expect(() => parseState('{"state":"claimed"}')).toThrow('exists on the server with form another');
  });
});

describe('claims', () => {
  const key = { tenant: 'acme', id: 'one' };
  const by = (worker: string, holds = false): Claimer => ({ worker, maxAttempts: 3, holds: () => holds });
  const opened = async () => {
    const engine = new MemoryEngine({ hideMs: 0 });
    const tasks = new FleetTasks(engine);
    await tasks.submit({ ...key, pool: 'default', priority: 'normal', body: '' });
    for (const worker of ['w1', 'w2']) await engine.renew({ worker, body: '' }, 60_000);
    const claim = async (claimer: Claimer) => {
      const [delivery] = await engine.take({ pool: 'default', max: 1, waitMs: 0 });
      if (!delivery) throw new Error('nothing was handed out');
      return tasks.claim(delivery, claimer);
    };
    return { engine, tasks, claim };
  };
  const held = (claiming: { readonly is: string }): Claim => {
    if (!('claim' in claiming)) throw new Error(`not claimed: ${claiming.is}`);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only a claim has one
    return claiming.claim as Claim;
  };

  it('belong to one of many workers, until its lease is over; then nothing of the first one counts', async () => {
    const { engine, tasks, claim } = await opened();
    const [one, other] = await Promise.all([claim(by('w1')), claim(by('w2'))]);
    expect([one.is, other.is].sort()).toEqual(['busy', 'claimed']);
    const [first, loser] = one.is === 'claimed' ? [held(one), 'w2'] : [held(other), 'w1'];
    const winner = loser === 'w1' ? 'w2' : 'w1';
    await engine.endLease(winner);
    const second = held(await claim(by(loser)));
    expect(second.attempt).toBe(2);
    expect(await tasks.standing(first)).toBe('lost');
    await expect(tasks.finish(first, 'succeeded', 'of the first')).rejects.toMatchObject({ code: 'ACODE-FLT-010' });
    await expect(tasks.giveBack(first)).rejects.toMatchObject({ code: 'ACODE-FLT-010' });
    await tasks.finish(second, 'succeeded', 'of the second');
    expect(await tasks.state(key)).toMatchObject({ state: 'succeeded', outcome: 'of the second', attempt: 2 });
    await expect(tasks.finish(second, 'failed', 'again')).rejects.toMatchObject({ code: 'ACODE-FLT-010' });
    // What is over leaves the queue, and is not queued again.
    expect(await claim(by(loser))).toEqual({ is: 'over' });
    expect(await engine.depth('default')).toBe(0);
    expect(await tasks.submit({ ...key, pool: 'default', priority: 'high', body: '' })).toBe('present');
  });

  it('of a worker that does not know of it are claimed again, and of one that works on it are not', async () => {
    const { claim } = await opened();
    held(await claim(by('w1')));
    expect(await claim(by('w1', true))).toEqual({ is: 'busy' });
    expect(held(await claim(by('w1'))).attempt).toBe(2);
  });

  it('that are given back do not count, and that failed do, until the task is lost', async () => {
    const { engine, tasks, claim } = await opened();
    await tasks.giveBack(held(await claim(by('w1'))));
    for (const attempt of [1, 2, 3]) {
      const own = held(await claim(by('w1')));
      expect(own.attempt).toBe(attempt);
      await tasks.retry(own);
    }
    expect(await claim(by('w1'))).toEqual({ is: 'over' });
    expect(await tasks.state(key)).toMatchObject({ state: 'lost', attempt: 3 });
    expect(await engine.depth('default')).toBe(0);
  });

  it('see a cancellation', async () => {
    const { engine, tasks, claim } = await opened();
    const own = held(await claim(by('w1')));
    const heard: string[] = [];
    await using _listening = await engine.listen({ worker: 'w1' }, text => heard.push(text));
    expect(await tasks.standing(own)).toBe('held');
    await tasks.cancel(key);
    expect(heard).toEqual(['cancel acme one']);
    expect(await tasks.standing(own)).toBe('cancel');
    await tasks.finish(own, 'cancelled', '');
    expect(await tasks.cancel(key)).toMatchObject({ state: 'cancelled' });
    expect(await tasks.state({ ...key, id: 'unknown' })).toBeNull();
  });
});
