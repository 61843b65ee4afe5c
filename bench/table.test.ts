// Shows what a reader sees: rows in columns, proportions beside the reference, reasons where there is no figure.

import { describe, expect, it } from 'vitest';
import { summarise } from './figures.mjs';
import type { Row } from './figures.mjs';
import { GROUPS, NAMES } from './names.mjs';
import { LIMITS } from './limits.mjs';
import { filesName } from './suites/growth.mjs';
import { columns, figureLine, renderRows, renderVerdicts, shown } from './table.mjs';

const group = 'sequential.result';
const rows: Row[] = [
  {
    group,
    place: 'docker28',
    name: NAMES.bareEngine,
    unit: 'ms',
    better: 'less',
    reference: true,
    ...summarise([100, 200]),
  },
  { group, place: 'docker28', name: NAMES.warm, unit: 'ms', better: 'less', warm: 1, errors: 2, ...summarise([2, 5]) },
  { group, place: 'docker28', name: NAMES.dockerRun, unavailable: 'there is no docker command here' },
];

describe('renderRows', () => {
  it('shows each beside the reference, and why one is not there', () => {
    expect(renderRows(rows)).toBe(
      [
        'docker28: echo, one after another: result (ms)',
        '                   n   p50   p95   p99  × bare engine p50    p95   warm  errors',
        '  bare engine      2   100   200   200                  –      –      –       –',
        '  acode warm       2  2.00  5.00  5.00              0.020  0.025  100 %       2',
        '  docker run --rm  not available: there is no docker command here',
      ].join('\n'),
    );
  });

  it('has a block for each place', () => {
    const elsewhere = rows.map(row => ({ ...row, place: 'docker20' }));
    const blocks = renderRows([...rows, ...elsewhere]).split('\n\n');
    expect(blocks.map(block => block.split(':')[0])).toEqual(['docker28', 'docker20']);
  });

  it('shows no proportion without a reference', () => {
    expect(renderRows(rows.slice(1))).toContain('2.00  5.00  5.00');
    expect(renderRows(rows.slice(1))).not.toContain('×');
  });
});

describe('shown', () => {
  it.each([
    [1234.56, '1235'],
    [123.4, '123'],
    [12.34, '12.3'],
    [1.234, '1.23'],
    [0.01234, '0.012'],
    [null, '–'],
    [Number.NaN, '–'],
  ])('%d is %s', (value, expected) => {
    expect(shown(value)).toBe(expected);
  });
});

describe('renderVerdicts', () => {
  const verdict = { id: 'cold.p50', what: 'cold result, p50', place: 'docker28', bound: '≤ 0.97 ×', unit: '×' };

  it('marks what is met, what is not, and what is not known', () => {
    const text = renderVerdicts([
      { ...verdict, measured: 0.8, verdict: 'met' },
      { ...verdict, measured: 1.2, verdict: 'not met', why: '3 errors' },
      { ...verdict, measured: null, verdict: 'not measured' },
    ]);
    expect(text.split('\n').map(line => line[0])).toEqual(['✓', '✗', '?']);
    expect(text).toContain('not met: 3 errors');
  });

  it('says so where there is nothing to hold to', () => {
    expect(renderVerdicts([])).toMatch(/no engine/);
  });

  it('has a line for whoever collects figures', () => {
    const line = figureLine({ ...verdict, measured: 0.81234, verdict: 'met' });
    expect(line).toBe('FIGURE docker28 cold.p50: 0.812 × (≤ 0.97 ×), met');
  });
});

describe('columns', () => {
  it('does not let a line of fewer cells widen them', () => {
    expect(
      columns([
        ['a', '1', '2'],
        ['bb', 'a long reason'],
        ['c', '10', '3'],
      ]),
    ).toEqual(['a    1  2', 'bb  a long reason', 'c   10  3']);
  });
});

describe('names', () => {
  it('are those that limits look for', () => {
    const groups = Object.keys(GROUPS);
    for (const limit of LIMITS) expect(groups).toContain(limit.group);
    expect(filesName(1_000_000)).toBe(NAMES.mostFiles);
  });
});
