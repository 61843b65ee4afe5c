// Background scans: each command’s own time, few walks however many commands, and nothing reported twice or lost.

import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ScanJob, ScanReport } from '../contract/scan.ts';
import { groupsOf, restsOf, scanJobs } from './continued-scan.ts';

let root: string;

beforeEach(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'acode-continued-')));
});

afterEach(() => rmSync(root, { recursive: true }));

function put(path: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), '');
}

function job(sinceMs: number, untilMs: number | null, path = '/w'): ScanJob {
  const id = `${sinceMs}`;
  const directories = [{ path, skipped: [] }];
  return { workspace: path, directories, sinceMs, untilMs, sandboxId: id, correlationId: id, known: [] };
}

async function reports(...args: Parameters<typeof scanJobs>): Promise<ScanReport[]> {
  const all: ScanReport[] = [];
  for await (const report of scanJobs(...args)) all.push(report);
  return all;
}

describe('the walks for several jobs', () => {
  const windows = (...jobs: ScanJob[]) => groupsOf(jobs).map(({ sinceMs, untilMs }) => [sinceMs, untilMs]);

  it.each<[string, ScanJob[], (number | string)[][]]>([
    [
      'one after the other have their own',
      [job(30, 40), job(0, 10)],
      [
        [0, 10],
        [30, 40],
      ],
    ],
    ['at the same time share one', [job(0, 10), job(5, 40), job(40, 41)], [[0, 41]]],
    ['whose end is not known share one with all that follow', [job(0, null), job(50, 60)], [[0, Infinity]]],
    [
      'in different places never share one',
      [job(0, 10), job(0, 10, '/x')],
      [
        [0, 10],
        [0, 10],
      ],
    ],
    [
      'beyond four share those with the least time in between',
      [job(0, 10), job(100, 110), job(112, 120), job(200, 210), job(300, 310), job(311, 320)],
      [
        [0, 10],
        [100, 120],
        [200, 210],
        [300, 320],
      ],
    ],
  ])('%s', (_, jobs, expected) => {
    expect(windows(...jobs)).toEqual(expected);
    expect(groupsOf(jobs).flatMap(group => group.jobs)).toHaveLength(jobs.length);
  });
});

describe('a scan that continues', () => {
  it.each<[string, ScanJob[], number[][]]>([
    ['one that ran all the time', [job(10, 50)], []],
    ['a pre-started sandbox', [{ ...job(10, 50), rest: { fromMs: 20, toMs: 40 } }], [[20, 40]]],
    ['one after the other', [job(30, 40), job(10, 20)], [[20, 30]]],
    [
      'a pre-started sandbox while another ran',
      [{ ...job(10, 50), rest: { fromMs: 20, toMs: 40 } }, job(15, 30)],
      [[30, 40]],
    ],
    ['one whose end is unknown', [job(10, null), { ...job(20, 60), rest: { fromMs: 30, toMs: 40 } }], []],
  ])('knows when nothing ran: %s', (_, jobs, rests) => {
    expect(restsOf(jobs).map(({ fromMs, toMs }) => [fromMs, toMs])).toEqual(rests);
  });

  it('finds what its command left, and not what was changed before or since', async () => {
    put('before/Makefile');
    await delay(80);
    const sinceMs = Date.now();
    put('during/.envrc');
    put('during/Makefile');
    await delay(40);
    const untilMs = Date.now();
    await delay(40);
    put('since/Makefile');
    const known = [{ kind: 'build-file', path: 'during/Makefile' } as const];
    const [report] = await reports([{ ...job(sinceMs, untilMs, root), known }]);
    expect(report).toMatchObject({ complete: true, jobs: [{ sinceMs }] });
    expect(report?.riskyChanges.map(({ path }) => path)).toEqual(['during/.envrc']);
  });

  it('says when its time was over, and when it was stopped', async () => {
    put('Makefile');
    put('sub/sub/notes');
    const now = job(Date.now() - 1000, null, root);
    for (const [options, reason] of [
      [{ maxMs: 0 }, /only what 0 ms allowed/],
      [{ signal: AbortSignal.abort() }, /stopped/],
    ] as const) {
      const [report] = await reports([now], options);
      expect(report?.complete).toBe(false);
      expect(report?.riskyChanges.at(-1)).toMatchObject({
        kind: 'scan-incomplete',
        reason: expect.stringMatching(reason),
      });
    }
    expect((await reports([now]))[0]).toMatchObject({ complete: true, riskyChanges: [{ path: 'Makefile' }] });
  });
});
