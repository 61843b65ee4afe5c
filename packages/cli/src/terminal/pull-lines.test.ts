// How a pull looks: in bars, in figures where there is no room for bars, and in one plain line.

import type { LayerProgress, PullProgress } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { plainPullLine, pullLines, sizeText, timeText } from './pull-lines.ts';

const layer = (more: Partial<LayerProgress> = {}): LayerProgress => ({
  id: 'a1b2c3d4e5f6',
  state: 'downloading',
  bytes: 500_000,
  totalBytes: 2_000_000,
  ...more,
});
const progress = (more: Partial<PullProgress> = {}): PullProgress => ({
  reference: 'node:20-alpine',
  layers: [
    layer(),
    layer({ id: 'b', state: 'present', bytes: 0, totalBytes: null }),
    layer({ id: 'c', state: 'complete' }),
  ],
  bytes: 1_000_000,
  totalBytes: 4_000_000,
  bytesPerSecond: 500_000,
  secondsLeft: 6,
  attempt: 1,
  ...more,
});

describe('a pull at a terminal', () => {
  it('has a bar for the whole and one for each layer that is under way', () => {
    expect(pullLines(progress(), 110)).toEqual([
      'Pulling node:20-alpine  ███████░░░░░░░░░░░░░░░░░░░░░  2 of 3 layers, 1.0 MB of 4.0 MB, 500 kB/s, 6 s left',
      'a1b2c3d4e5f6  downloading  ████████░░░░░░░░░░░░░░░░░░░░░░  500 kB of 2.0 MB',
    ]);
  });

  it('has figures alone where there is no room, and is never wider than the terminal', () => {
    for (const width of [20, 30, 40, 60, 80, 200])
      for (const line of pullLines(progress({ reference: `registry.example:5000/${'long/'.repeat(20)}x:1` }), width))
        expect(line.length <= Math.max(width, 72)).toBe(true);
    expect(pullLines(progress(), 40).join('\n')).not.toContain('█');
  });

  it('shows the first few of many layers, and how many more there are', () => {
    const layers = Array.from({ length: 20 }, (_, n) =>
      layer({ id: String(n), state: 'waiting', totalBytes: null, bytes: 0 }),
    );
    const lines = pullLines(progress({ layers, totalBytes: null, secondsLeft: null }), 80);
    expect(lines).toHaveLength(8);
    expect(lines.at(-1)).toBe('… and 14 more');
    expect(lines[1]).toBe('0             waiting');
  });

  it('says that a layer broke off, and which try it is', () => {
    const [head = '', first = ''] = pullLines(progress({ layers: [layer({ state: 'retrying' })], attempt: 2 }), 110);
    expect(head).toContain('try 2');
    expect(first).toContain('broke off');
  });

  it('waits in words while nothing is known', () => {
    const nothing = { layers: [], bytes: 0, totalBytes: null, bytesPerSecond: null, secondsLeft: null };
    expect(pullLines(progress(nothing), 80)).toEqual(['Pulling node:20-alpine…']);
    expect(plainPullLine(progress(nothing))).toBe('Pulling node:20-alpine: waiting for the registry');
  });
});

it('a pull in a pipe is one line of text', () => {
  expect(plainPullLine(progress())).toBe('Pulling node:20-alpine: 2 of 3 layers, 1.0 MB of 4.0 MB, 500 kB/s, 6 s left');
});

it.each([
  [0, '0 B'],
  [999, '999 B'],
  [1000, '1.0 kB'],
  [99_949, '99.9 kB'],
  [123_456, '123 kB'],
  [999_999, '1.0 MB'],
  [5_000_000_000, '5.0 GB'],
])('%d bytes are %s', (bytes, text) => {
  expect(sizeText(bytes)).toBe(text);
});

it.each([
  [5, '5 s'],
  [65, '1 min 5 s'],
  [3_700, '1 h 1 min'],
])('%d seconds are %s', (seconds, text) => {
  expect(timeText(seconds)).toBe(text);
});
