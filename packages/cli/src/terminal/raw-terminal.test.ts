// Answers to what a program asks its terminal: acode’s own, and what the terminal reports to acode is never typed into the program.

import { EventEmitter } from 'node:events';
import { PassThrough } from 'node:stream';
import * as fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Recorder } from '../test-process.ts';
import { Output } from './output.ts';
import { RawTerminal } from './raw-terminal.ts';
import { KEYBOARD_QUERY, TerminalReports } from './terminal-reports.ts';

const E = '\u001b';
const signal = new AbortController().signal;

function opened() {
  const stdout = new Recorder(true);
  const answers: string[] = [];
  const atExit = () => ({ [Symbol.dispose]: () => undefined });
  const io = { stdin: new PassThrough(), signals: new EventEmitter(), atExit };
  const terminal = new RawTerminal(io, new Output(stdout), {}, data => void answers.push(Buffer.from(data).toString()));
  const show = (text: string): Promise<boolean> => terminal.show(Buffer.from(text), signal);
  const typed = (text: string): string => Buffer.from(terminal.typed(Buffer.from(text))).toString();
  return { stdout, answers, terminal, show, typed };
}

describe('a program that asks its terminal', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it('is answered at once, and the terminal is asked nothing', async () => {
    const { stdout, answers, show, typed } = opened();
    await show(`${E}[c${E}[?2026$p`);
    expect(answers).toEqual([`${E}[?62;22c`, `${E}[?2026;2$y`]);
    expect(stdout.text).toBe('');
    // Nothing is expected of the terminal, so nothing is taken out of what is typed.
    expect(typed(`a${E}[?1u${E}[`)).toBe(`a${E}[?1u${E}[`);
  });

  it('for the keyboard has its own modes as the answer, where the terminal has some; in the order in which it asked', async () => {
    const { stdout, answers, show, typed } = opened();
    await show(`${E}[>5u${E}[?u${E}[c`);
    expect(stdout.text).toBe(`${KEYBOARD_QUERY}${E}[>5u`);
    expect(answers).toEqual([]);
    expect(typed(`x${E}[?3`)).toBe('x');
    expect(typed(`1u${E}[A${E}[?62;4cy`)).toBe(`${E}[Ay`);
    expect(answers).toEqual([`${E}[?5u`, `${E}[?62;22c`]);
    await show(`${E}[?u`);
    expect(answers.at(-1)).toBe(`${E}[?5u`);
    expect(stdout.text.split(KEYBOARD_QUERY)).toHaveLength(2);
  });

  it('for the keyboard has no answer where the terminal has none, and the next one follows', async () => {
    const { answers, terminal, show, typed } = opened();
    await show(`${E}[?u${E}[c`);
    expect(typed(`${E}[?1;2c`)).toBe('');
    expect(answers).toEqual([`${E}[?62;22c`]);
    await terminal.settled();
  });

  it('is not kept waiting by a terminal that says nothing, and what looked like a report reaches it', async () => {
    const { answers, terminal, show, typed } = opened();
    await show(`${E}[?u${E}[c`);
    expect(typed(E)).toBe('');
    const settled = terminal.settled();
    await vi.advanceTimersByTimeAsync(1000);
    await settled;
    expect(answers).toEqual([E, `${E}[?62;22c`]);
    expect(typed(E)).toBe(E);
  });

  it('is forgotten with its terminal', async () => {
    const { answers, terminal, show } = opened();
    await show(`${E}[?u`);
    terminal[Symbol.dispose]();
    await vi.advanceTimersByTimeAsync(5000);
    expect(answers).toEqual([]);
  });
});

describe('reports of a terminal', () => {
  it('are taken out of what is typed, however it is cut, and everything else is passed on', () => {
    const typed = fc.constantFrom(
      'a',
      'é',
      '\r',
      E,
      `${E}[A`,
      `${E}[13;2u`,
      `${E}[200~`,
      `${E}[?`,
      `${E}[<0;1;1M`,
      'u',
    );
    const report = fc.constantFrom(`${E}[?0u`, `${E}[?31u`, `${E}[?62;4c`);
    fc.assert(
      fc.property(fc.array(typed, { maxLength: 4 }), report, fc.array(typed, { maxLength: 4 }), (one, told, other) => {
        // An escape that nothing follows would become part of the report.
        const before = `${one.join('')}.`;
        const bytes = Buffer.from(`${before}${told}${other.join('')}.`);
        for (let cut = 0; cut <= bytes.length; cut += 1) {
          const reports = new TerminalReports();
          reports.expect();
          const parts = [reports.push(bytes.subarray(0, cut)), reports.push(bytes.subarray(cut))];
          const passed = Buffer.concat([...parts.map(part => part.typed), reports.end()]).toString();
          const heard = parts.flatMap(part => part.reports).length;
          expect(passed.length).toBeLessThanOrEqual(bytes.toString().length - told.length);
          expect(heard).toBeGreaterThanOrEqual(1);
          expect(passed.replaceAll(/\u001b\[\?[\d;]*[uc]/g, '')).toBe(passed);
        }
      }),
      { numRuns: 50 },
    );
  });

  it('do not hold back what is too long to be one', () => {
    const reports = new TerminalReports();
    reports.expect();
    const long = `${E}[?${'1;'.repeat(40)}`;
    expect(Buffer.from(reports.push(Buffer.from(long)).typed).toString()).toBe(long);
  });
});
