// Nothing is missing: every row of the corpus is shown by a test, pending with its subject, or of another level with a reason.

import { readFileSync, readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { ROWS } from './rows.ts';

const counts = { A: 23, B: 14, C: 17, D: 13, E: 14, F: 20 };
// These wait for parts that do not exist yet, and nothing else may.
const PENDING: readonly string[] = [];

describe('the corpus', () => {
  it('has every row, once and in order', () => {
    const ids = Object.entries(counts).flatMap(([group, count]) =>
      Array.from({ length: count }, (_, at) => `${group}${at + 1}`),
    );
    expect(ROWS.map(({ id }) => id)).toEqual(ids);
  });

  it('leaves pending exactly what waits for a later part, each with its subject', () => {
    const pending = ROWS.filter(({ showing }) => showing.by === 'pending');
    expect(pending.map(({ id }) => id)).toEqual(PENDING);
    for (const { showing } of pending) expect(showing).toMatchObject({ subject: expect.stringMatching(/\w{4}/) });
  });

  it('names a reason for what another level faces', () => {
    const others = ROWS.filter(({ showing }) => showing.by === 'other level');
    expect(others.map(({ id }) => id)).toEqual(['E10', 'E11']);
    for (const { showing } of others) expect(showing).toMatchObject({ reason: expect.stringMatching(/level/) });
  });

  it('has a hand-written test for each of the others that no probe shows, in the file of its group', () => {
    const directory = new URL('.', import.meta.url);
    const missing: string[] = [];
    for (const { id, group, probe, showing } of ROWS) {
      if (showing.by !== 'test' || probe) continue;
      const text = readFileSync(new URL(`${group}.test.ts`, directory), 'utf8');
      if (!new RegExp(`(?:attack\\(\\s*target,\\s*|reported\\(\\s*|\\[\\s*)'${id}'`).test(text)) missing.push(id);
    }
    expect(missing).toEqual([]);
  });

  it('has no test of a row that is not to be shown', () => {
    const shown = new Set(ROWS.filter(({ showing }) => showing.by === 'test').map(({ id }) => id));
    const files = readdirSync(new URL('.', import.meta.url)).filter(name => name.endsWith('.test.ts'));
    const named = files.flatMap(name =>
      [...readFileSync(new URL(name, import.meta.url), 'utf8').matchAll(/attack\(\s*target,\s*'([A-F]\d+)'/g)].map(
        ([, id]) => id ?? '',
      ),
    );
    expect(named.filter(id => !shown.has(id))).toEqual([]);
  });

  it('says why gVisor does not face a row', () => {
    const reasons = ROWS.flatMap(({ showing }) =>
      showing.by === 'test' && showing.gvisor !== true ? [showing.gvisor] : [],
    );
    expect(reasons.length).toBeGreaterThan(10);
    expect(reasons.filter(reason => !/\w{4}/.test(reason))).toEqual([]);
  });
});
