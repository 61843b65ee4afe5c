// Board of a swarm: its rows at every size, whatever tasks print, and its keys.

import fc from 'fast-check';
import { createColors } from 'picocolors';
import { describe, expect, it } from 'vitest';
import { planSwarm, readTask } from '@acode/swarm';
import type { SwarmRecord, TaskRecord } from '@acode/swarm';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { KeyReader } from '../terminal/row-screen.ts';
import { STYLE_SEQUENCES, widthOf } from '../terminal/text.ts';
import { boardRows, ordered, topFor } from './board-view.ts';
import type { Board } from './board-view.ts';
import { jsonLine } from './follow.ts';

const NOW = Date.parse('2026-11-19T10:00:00.000Z');
const look = { colours: createColors(false), width: 80, terminal: true, now: NOW };

function recordOf(tasks: readonly Partial<TaskRecord>[]): SwarmRecord {
  const top = mkdtempSync(join(tmpdir(), 'acode-board-'));
  try {
    mkdirSync(join(top, '.agent/tasks'), { recursive: true });
    writeFileSync(
      join(top, '.agent/tasks/x.json'),
      JSON.stringify({ title: 'A title', command: 'true', stories: [{ title: 'one' }, { title: 'two' }] }),
    );
    const machine = { cpus: 8, memoryBytes: 2 ** 35 };
    const { record } = planSwarm(
      top,
      [readTask(top, '.agent/tasks/x.json')],
      { image: 'x' },
      { machine, agents: new Map() },
    );
    const [first] = record.tasks;
    const one = (task: Partial<TaskRecord>, at: number): TaskRecord => ({ ...first!, id: `task-${at}`, ...task });
    return { ...record, id: '1f0c2d3e-0000-4000-8000-000000000000', state: 'running', tasks: tasks.map(one) };
  } finally {
    rmSync(top, { recursive: true });
  }
}

const boardOf = (record: SwarmRecord, given: Partial<Board> = {}): Board => ({
  record,
  loads: new Map(),
  selected: null,
  top: 0,
  notice: '',
  log: null,
  ...given,
});

const running: Partial<TaskRecord> = {
  status: 'running',
  elapsedMs: 60_000,
  updatedAt: new Date(NOW - 5000).toISOString(),
};

describe('the board of a swarm', () => {
  it('has a row for each task: those that need a person first, then those that run', () => {
    const [story] = recordOf([{}]).tasks[0]!.stories;
    const record = recordOf([
      { id: 'done', status: 'completed', branch: 'acode/1f0c2d3e/done', branchCommit: 'a'.repeat(40) },
      { id: 'waits' },
      { ...running, id: 'runs', lastLine: '3 tests passed', stories: [{ ...story!, status: 'in_progress' }, story!] },
      { id: 'asks', status: 'stopped', reason: 'input', attention: 'needs-input', detail: 'Which database?' },
      { id: 'broken', status: 'failed', reason: 'agent', detail: 'npm test failed' },
    ]);
    const loads = new Map([['runs', { cpus: 0.5, memoryBytes: 200 * 2 ** 20 }]]);
    expect(boardRows(boardOf(record, { loads }), look, { columns: 80, rows: 11 })).toMatchInlineSnapshot(`
      [
        "Swarm 1f0c2d3e, running: 1/5 completed, 1 need you, 1 running, 1 failed, 1 pend…",
        " TASK    STATE         STORY  TIME    CPU    MEMORY     LAST LINE",
        "›asks    needs-input   0/2                              Which database?         ",
        " runs    running       1/2    1m05s   50%    200 MiB    3 tests passed",
        " broken  failed        0/2                              agent: npm test failed",
        " waits   pending       0/2",
        " done    completed     0/2                              acode/1f0c2d3e/done",
        "",
        "",
        "asks: A title",
        "↑↓ select  l log  a attach  s stop  r retry  g grant  q leave",
      ]
    `);
  });

  it('fits any screen, and shows no sequence of a task', () => {
    const text = fc.string({
      unit: fc.constantFrom(
        'a',
        'é',
        '漢',
        '\u001b[2J',
        '\u001b]0;x\u0007',
        '\u009b',
        '\r',
        '\n',
        '\t',
        '\u202e',
        '\u001b[31m',
      ),
    });
    const record = recordOf(Array.from({ length: 30 }, () => ({})));
    fc.assert(
      fc.property(
        fc.array(fc.record({ title: text, detail: text, lastLine: text, notice: text }), {
          minLength: 1,
          maxLength: 30,
        }),
        fc.integer({ min: 1, max: 200 }),
        fc.integer({ min: 1, max: 60 }),
        fc.boolean(),
        (texts, columns, rows, isLog) => {
          const tasks = texts.map(({ title, detail, lastLine }, at) => ({
            ...record.tasks[at]!,
            title,
            detail,
            lastLine,
            status: (['running', 'failed', 'pending'] as const)[at % 3]!,
          }));
          const log = isLog ? { task: 'x', lines: ['plain'], above: 0 } : null;
          const shown = boardRows(boardOf({ ...record, tasks }, { notice: texts[0]!.notice, log }), look, {
            columns,
            rows,
          });
          expect(shown.length).toBeLessThanOrEqual(rows);
          for (const row of shown) {
            expect(widthOf(row)).toBeLessThanOrEqual(columns);
            // eslint-disable-next-line no-control-regex
            expect(row.replaceAll(STYLE_SEQUENCES, '')).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e]/);
          }
        },
      ),
    );
  });

  it('keeps the selected task on the screen, wherever its row goes', () => {
    fc.assert(
      fc.property(fc.nat(200), fc.nat(200), fc.integer({ min: 1, max: 50 }), fc.nat(99), (top, count, room, part) => {
        const at = Math.floor((count * part) / 100);
        const first = topFor(at, count, { top, room });
        expect(first).toBeGreaterThanOrEqual(0);
        if (count === 0) return;
        expect(at).toBeGreaterThanOrEqual(first);
        expect(at).toBeLessThan(first + room);
      }),
    );
    const record = recordOf(Array.from({ length: 100 }, (_, at) => (at === 70 ? running : {})));
    expect(ordered(record)[0]?.id).toBe('task-70');
    const rows = boardRows(boardOf(record, { selected: 'task-99', top: 80 }), look, { columns: 80, rows: 24 });
    expect(rows).toHaveLength(24);
    expect(rows.filter(row => row.startsWith('›'))).toEqual([expect.stringContaining('task-99')]);
  });

  it('has fewer columns on a narrow terminal', () => {
    const record = recordOf([{ ...running, lastLine: 'words' }]);
    const [, at40] = boardRows(boardOf(record), look, { columns: 40, rows: 10 });
    expect(at40?.trim().split(/\s{2,}/)).toEqual(['TASK', 'STATE', 'STORY', 'LAST LINE']);
  });

  it('shows a log from its end, and further up', () => {
    const log = { task: 'x', lines: Array.from({ length: 50 }, (_, at) => `line ${at}`), above: 10 };
    const rows = boardRows(boardOf(recordOf([{}]), { log }), look, { columns: 80, rows: 5 });
    expect(rows.slice(1, 4)).toEqual(['line 37', 'line 38', 'line 39']);
  });
});

describe('a key', () => {
  it.each([
    ['\u001b[A\u001bOBj', ['up', 'down', 'j']],
    ['\u001b[5~\u001b[6~\u001b[H\u001b[4~', ['pageup', 'pagedown', 'home', 'end']],
    ['\u0003', ['interrupt']],
    ['\u001b', ['escape']],
    ['\r s', ['enter', 'pagedown', 's']],
    ['\u001b[1;5A', []],
    ['\u001b[200~sy\u001b[201~q', ['q']],
  ])('of %j is %j', (text, keys) => {
    expect(new KeyReader().push(text)).toEqual(keys);
  });

  it('is none where it is pasted in parts', () => {
    const reader = new KeyReader();
    expect(['\u001b[200~s', 'y', '\u001b[201~', 'q'].flatMap(part => reader.push(part))).toEqual(['q']);
  });
});

describe('an event for a program', () => {
  it('is JSON that drives no terminal', () => {
    const event = { at: 'x', event: 'task', detail: 'a\u009b2J\u202e\u001b]0;x\u0007é' };
    const line = jsonLine(event);
    expect(JSON.parse(line)).toEqual(event);
    // eslint-disable-next-line no-control-regex
    expect(line.trimEnd()).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e]/);
  });
});
