// What an engine’s reports come to, step by step: recorded from real pulls, with the time told.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { advance, noProgress, viewOf } from './pull-progress.ts';
import type { PullState } from './pull-progress.ts';

const report = (status: string, id?: string, current?: number, total?: number) => ({ status, id, current, total });

function after(reports: readonly (readonly [atMs: number, ...Parameters<typeof report>])[]): PullState {
  return reports.reduce((state, [atMs, ...words]) => advance(state, report(...words), atMs), noProgress('node:20', 1));
}

describe('a pull', () => {
  it('without a report has no layers, no size and no speed', () => {
    expect(viewOf(noProgress('node:20', 2), 1000)).toEqual({
      reference: 'node:20',
      attempt: 2,
      layers: [],
      bytes: 0,
      totalBytes: null,
      bytesPerSecond: null,
      secondsLeft: null,
    });
  });

  it('has a size once that of every layer is known, and a time left from then on', () => {
    const first = after([
      [0, 'Pulling from library/node', '20'],
      [0, 'Pulling fs layer', 'a'],
      [0, 'Pulling fs layer', 'b'],
      [0, 'Already exists', 'c'],
      [0, 'Downloading', 'a', 0, 1000],
      [1000, 'Downloading', 'a', 500, 1000],
    ]);
    expect(viewOf(first, 1000)).toMatchObject({ bytes: 500, totalBytes: null, bytesPerSecond: 500, secondsLeft: null });
    const then = advance(first, report('Downloading', 'b', 500, 3000), 2000);
    expect(viewOf(then, 2000)).toMatchObject({ bytes: 1000, totalBytes: 4000, bytesPerSecond: 500, secondsLeft: 6 });
  });

  it('ends with every layer complete and every byte counted', () => {
    const state = after([
      [0, 'Pulling fs layer', 'a'],
      [10, 'Downloading', 'a', 10, 1000],
      [20, 'Verifying Checksum', 'a'],
      [21, 'Download complete', 'a'],
      [30, 'Extracting', 'a', 32, 1000],
      [40, 'Pull complete', 'a'],
      [41, `Digest: sha256:${'a'.repeat(64)}`],
      [42, 'Status: Downloaded newer image for node:20'],
    ]);
    expect(viewOf(state, 50)).toMatchObject({
      layers: [{ id: 'a', state: 'complete', bytes: 1000, totalBytes: 1000 }],
      bytes: 1000,
      totalBytes: 1000,
    });
    expect(state.digest).toBe(`sha256:${'a'.repeat(64)}`);
  });

  it('takes the bytes of extracting for what they are: none that are downloaded', () => {
    const state = after([
      [0, 'Downloading', 'a', 900, 1000],
      [10, 'Download complete', 'a'],
      [20, 'Extracting', 'a', 100, 1000],
    ]);
    expect(viewOf(state, 20)).toMatchObject({ bytes: 1000, layers: [{ state: 'extracting', bytes: 1000 }] });
  });

  it('shows a layer that broke off, and its speed is of the last seconds only', () => {
    const state = after([
      [0, 'Downloading', 'a', 0, 10_000],
      [1000, 'Downloading', 'a', 5000, 10_000],
      [1100, 'Retrying in 5 seconds', 'a'],
    ]);
    expect(viewOf(state, 1100).layers[0]).toMatchObject({ state: 'retrying', bytes: 5000, totalBytes: 10_000 });
    expect(viewOf(state, 9000)).toMatchObject({ bytesPerSecond: null, secondsLeft: null });
  });

  it('that begins anew has no speed below nothing', () => {
    const state = after([
      [0, 'Downloading', 'a', 5000, 10_000],
      [1000, 'Downloading', 'a', 100, 10_000],
    ]);
    expect(viewOf(state, 1000).bytesPerSecond).toBeNull();
  });

  it('keeps its figures sound whatever is reported', () => {
    const words = fc.constantFrom(
      'Pulling fs layer',
      'Waiting',
      'Downloading',
      'Verifying Checksum',
      'Download complete',
      'Extracting',
      'Pull complete',
      'Already exists',
      'Retrying in 3 seconds',
      'something new',
    );
    const line = fc.tuple(
      words,
      fc.constantFrom('a', 'b', 'c', undefined),
      fc.option(fc.integer(), { nil: undefined }),
      fc.option(fc.integer(), { nil: undefined }),
    );
    fc.assert(
      fc.property(fc.array(line, { maxLength: 60 }), lines => {
        const state = after(lines.map((one, at) => [at * 50, ...one] as const));
        const view = viewOf(state, lines.length * 50);
        expect(view.bytes).toBeGreaterThanOrEqual(0);
        for (const figure of [view.totalBytes, view.bytesPerSecond, view.secondsLeft])
          expect(figure === null || (Number.isFinite(figure) && figure >= 0)).toBe(true);
        expect(state.samples.length).toBeLessThanOrEqual(110);
      }),
    );
  });

  it('does not grow without end where an engine names layers without end', () => {
    let state = noProgress('x', 1);
    for (let n = 0; n < 2000; n += 1) state = advance(state, report('Downloading', String(n), 1, 1), n);
    expect(state.layers.size).toBe(512);
  });
});
