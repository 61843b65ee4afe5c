// Text, tables and streams as a terminal or a pipe gets them.

import { PassThrough, Writable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Recorder } from '../test-process.ts';
import { age, until } from './age.ts';
import { cut, oneLine, shortId, widthOf } from './text.ts';
import { fitted, wrapped } from './wrap.ts';
import { lookOf } from './look.ts';
import type { Look } from './look.ts';
import { Output } from './output.ts';
import { Progress } from './progress.ts';
import { pump } from './pump.ts';
import { fields, table } from './table.ts';
import { LeaveKeys } from './raw-terminal.ts';
import { ask, canAsk } from './ask.ts';

const never = new AbortController().signal;

function plain(width: number | null = null): Look {
  return { ...lookOf(new Output(new Recorder()), { env: {}, now: () => 0 }, false), width };
}

describe('text', () => {
  it.each([
    ['abc', 3],
    ['日本', 4],
    ['e\u0301', 1],
    ['🙂', 2],
  ])('%s takes the columns a terminal gives it', (text, width) => {
    expect(widthOf(text)).toBe(width);
  });

  it('is cut within its width, never through a wide character', () => {
    expect(cut('日本語', 4)).toBe('日…');
    expect(cut('abcdef', 4)).toBe('abc…');
    expect(cut('abcd', 4)).toBe('abcd');
    expect(cut('abcd', 0)).toBe('');
  });

  it('is wrapped at spaces, and never inside a word', () => {
    expect(wrapped('a bc def /a/long/path x', 6)).toEqual(['a bc', 'def', '/a/long/path', 'x']);
    expect(wrapped('日本 語', 5)).toEqual(['日本', '語']);
    expect(wrapped('a b', null)).toEqual(['a b']);
    expect(wrapped('', 3)).toEqual(['']);
  });

  it('is wrapped around commands: none is split, and a long one has a line of its own to paste', () => {
    expect(wrapped('Type `a b c` or `d`.', 12)).toEqual(['Type `a b c`', 'or `d`.']);
    expect(wrapped('Type `a b c d` now', 12)).toEqual(['Type', '`a b c d`', 'now']);
    expect(wrapped('To fill: `acode run -- npm ci`; or not.', 12)).toEqual([
      'To fill:',
      'acode run -- npm ci',
      'or not.',
    ]);
    expect(wrapped('a ` b', 20)).toEqual(['a ` b']);
    expect(wrapped('\u001b[31mred\u001b[39m one', 7)).toEqual(['\u001b[31mred\u001b[39m one']);
  });

  it.each([40, 80, 200])('of messages fits %i columns of a terminal, and is whole elsewhere', width => {
    const message = [
      `acode: ${'word '.repeat(60).trim()}`,
      `├▶ note: ${'detail '.repeat(30).trim()}`,
      `╰▶ hint: ${'hint '.repeat(60).trim()}`,
      `    ${'pasted '.repeat(60).trim()}`,
      '',
    ].join('\n');
    expect(fitted(message, { terminal: false, width })).toBe(message);
    const lines = fitted(message, { terminal: true, width }).split('\n');
    const pasted = lines.filter(line => line.startsWith('    pasted'));
    expect(pasted).toEqual([message.split('\n')[3]]);
    for (const line of lines.filter(one => !pasted.includes(one))) expect(widthOf(line)).toBeLessThanOrEqual(width);
    expect(lines.join(' ').replaceAll('│', '').split(/\s+/)).toEqual(message.replaceAll('\n', ' ').split(/\s+/));
    for (const line of lines.slice(1, -1)) expect(line).toMatch(/^(?: {3}|├▶ |│ {2}|╰▶ )/);
  });

  it('from an untrusted place becomes one harmless line', () => {
    expect(oneLine('a\nb\u001b]0;pwned\u0007\u001b[31mred\tx')).toBe('a⏎b␛]0;pwned␇red x');
  });
});

describe('a table', () => {
  const rows = [['acode-1234-build-001', 'docker.io/library/node:20-alpine', 'running']];

  it('has aligned columns and no trailing spaces', () => {
    expect(table(['NAME', 'IMAGE', 'STATE'], rows, plain())).toBe(
      'NAME                  IMAGE                             STATE\nacode-1234-build-001  docker.io/library/node:20-alpine  running\n',
    );
  });

  it.each([60, 40, 24, 12, 3])('stays within %i columns', width => {
    const lines = table(['NAME', 'IMAGE', 'STATE'], rows, plain(width)).trimEnd().split('\n');
    expect(lines).toHaveLength(2);
    for (const line of lines) expect(widthOf(line)).toBeLessThanOrEqual(width);
    expect(lines[1]).toContain('…');
  });

  it('is not cut where no width is known, as in a pipe', () => {
    expect(table(['NAME'], [['x'.repeat(500)]], plain())).toContain('x'.repeat(500));
  });

  it('keeps a hostile cell on its line', () => {
    expect(table(['NAME'], [['a\n\u001b[2Jb']], plain()).split('\n')).toHaveLength(3);
  });
});

describe('a look', () => {
  const colours = (terminal: boolean, env: Record<string, string>, flag = true) =>
    lookOf(new Output(new Recorder(terminal)), { env, now: () => 0 }, flag).colours.isColorSupported;

  it.each([
    [true, {}, true, true],
    [false, {}, true, false],
    [true, { NO_COLOR: '1' }, true, false],
    [true, { NO_COLOR: '1', FORCE_COLOR: '1' }, true, false],
    [true, {}, false, false],
    [false, { FORCE_COLOR: '1' }, true, true],
    [true, { FORCE_COLOR: '0' }, true, false],
    [true, { TERM: 'dumb' }, true, false],
    [false, { FORCE_COLOR: '1' }, false, false],
  ] as const)('on a terminal %j with %j and colour %j has colours: %j', (terminal, env, flag, expected) => {
    expect(colours(terminal, env, flag)).toBe(expected);
  });

  it('takes its width from the terminal, else from COLUMNS, else has none', () => {
    const width = (terminal: boolean, env: Record<string, string>) =>
      lookOf(new Output(new Recorder(terminal, 33)), { env, now: () => 0 }, true).width;
    expect([width(true, { COLUMNS: '50' }), width(false, { COLUMNS: '50' }), width(false, {})]).toEqual([33, 50, null]);
    expect(width(false, { COLUMNS: 'wide' })).toBeNull();
  });
});

describe('fields', () => {
  it('are wrapped in their column at a terminal; a value with a long word stands below its label', () => {
    const at = { ...plain(30), terminal: true };
    const text = fields([['A', 'one two three four five six'] as const, ['Path', `/${'x'.repeat(40)} y`] as const], at);
    expect(text).toBe(`  A     one two three four\n        five six\n  Path\n      /${'x'.repeat(40)}\n      y\n`);
  });

  it('are aligned and never cut', () => {
    expect(fields([['A', 'x'.repeat(100)] as const, ['Long', 'y'] as const], plain(20))).toBe(
      `  A     ${'x'.repeat(100)}\n  Long  y\n`,
    );
  });
});

describe('an age', () => {
  it.each([
    ['2026-01-02T03:04:05Z', 'just now'],
    ['2026-01-02T03:04:04Z', '1 second ago'],
    ['2026-01-02T03:01:05Z', '3 minutes ago'],
    ['2026-01-02T02:04:05Z', '1 hour ago'],
    ['2025-12-30T03:04:05Z', '3 days ago'],
    ['2027-01-01T00:00:00Z', 'just now'],
    ['?', '?'],
  ])('of %s is %s', (moment, text) => {
    expect(age(moment, Date.parse('2026-01-02T03:04:05Z'))).toBe(text);
  });
});

describe('the time until', () => {
  const now = Date.parse('2026-01-02T03:04:05Z');

  it.each([
    [7_200_000 - 1500, 'in 2 hours', 'in 2h'],
    [5_400_000 - 1500, 'in 1 hour 30 minutes', 'in 1h 30m'],
    [120_000 - 1500, 'in 2 minutes', 'in 2m'],
    [86_400_000 - 1500, 'in 1 day', 'in 1d'],
    [80_000, 'in 1 minute 20 seconds', 'in 1m 20s'],
    [4000 - 300, 'in 4 seconds', 'in 4s'],
    [86_400_000 + 180_000, 'in 1 day', 'in 1d'],
    [100, 'now', 'now'],
    [-5000, 'now', 'now'],
  ])('what is %i ms away is %s', (milliseconds, words, letters) => {
    const moment = new Date(now + milliseconds).toISOString();
    expect([until(moment, now), until(moment, now, 'letters')]).toEqual([words, letters]);
  });

  it('what is no date is given back', () => {
    expect(until('?', now)).toBe('?');
  });
});

describe('an id', () => {
  it.each([
    [`sha256:${'a'.repeat(64)}`, 'sha256:aaaaaaaaaaaa'],
    ['b'.repeat(64), 'bbbbbbbbbbbb'],
    ['node:20-alpine', 'node:20-alpine'],
    ['cafe', 'cafe'],
  ])('%s is shown as %s', (id, short) => {
    expect(shortId(id)).toBe(short);
  });
});

describe('an output', () => {
  it('waits for a slow reader', async () => {
    const stream = new PassThrough({ highWaterMark: 4 });
    const output = new Output(stream);
    let done = false;
    const writing = output.write('more than four').then(() => (done = true));
    await new Promise(resolve => setTimeout(resolve, 10));
    expect(done).toBe(false);
    stream.resume();
    await writing;
    expect(done).toBe(true);
  });

  it('stops waiting when cancelled', async () => {
    const output = new Output(new PassThrough({ highWaterMark: 4 }));
    const stop = new AbortController();
    const writing = output.write('more than four', stop.signal);
    stop.abort();
    await expect(writing).resolves.toBe(false);
    await expect(output.write('x', stop.signal)).resolves.toBe(false);
    await output.flush(stop.signal);
  });

  it('notices a reader that went away, and throws nothing', async () => {
    const stream = new Writable({
      write: (_chunk, _encoding, done) => done(Object.assign(new Error('EPIPE'), { code: 'EPIPE' })),
    });
    const output = new Output(stream);
    await output.write('x');
    await new Promise(resolve => setImmediate(resolve));
    expect(output.broken).toBe(true);
    await expect(output.write('y')).resolves.toBe(false);
    await output.flush();
  });

  it('knows whether its last line is open, whatever colours follow', async () => {
    const output = new Output(new Recorder());
    await output.write('a\n');
    output.control('\u001b[0m');
    expect(output.midLine).toBe(false);
    await output.write(Buffer.from('b'));
    expect(output.midLine).toBe(true);
    await output.write('');
    expect(output.midLine).toBe(true);
  });
});

describe('what a command prints', () => {
  async function* chunks(...texts: string[]): AsyncGenerator<Uint8Array> {
    for (const text of texts) yield Buffer.from(text);
  }

  it('goes into a pipe byte for byte', async () => {
    const stream = new Recorder();
    await pump(chunks('\u001b]0;x\u0007', '\u001b[31mred'), new Output(stream), never);
    expect(stream.text).toBe('\u001b]0;x\u0007\u001b[31mred');
  });

  it('is harmless on a terminal, also when a sequence arrives in parts, and colours end with it', async () => {
    const stream = new Recorder(true);
    await pump(chunks('\u001b', ']0;pwned\u0007\u001b[3', '1mred'), new Output(stream), never);
    expect(stream.text).toBe('␛]0;pwned␇\u001b[31mred\u001b[0m');
  });
});

describe('progress', () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'setInterval', 'clearInterval', 'Date'] }));
  afterEach(() => void vi.useRealTimers());

  // What is shown while some work takes so long.
  const during = async (ms: number, show: (work: Promise<unknown>) => Promise<unknown>): Promise<void> => {
    const shown = show(new Promise(resolve => setTimeout(resolve, ms)));
    await vi.advanceTimersByTimeAsync(ms);
    await shown;
  };

  it('shows nothing for a short wait or without a terminal', async () => {
    const stream = new Recorder(true);
    await expect(new Progress(new Output(stream), plain(), true).during('x', Promise.resolve(1))).resolves.toBe(1);
    expect(stream.text).toBe('');
  });

  it('shows a line after a second and takes it away again', async () => {
    const stream = new Recorder(true);
    const progress = new Progress(new Output(stream), plain(), true);
    await during(1300, work => progress.during('Waiting…', work));
    expect(stream.text).toContain('Waiting… 1 s');
    expect(stream.text.endsWith('\r\u001b[2K')).toBe(true);
  });

  it('makes way for what is written meanwhile, and comes back below it', async () => {
    const stream = new Recorder(true);
    const output = new Output(stream);
    const progress = new Progress(output, plain(), true);
    setTimeout(() => void output.write('acode: warning: x\n'), 200);
    await during(400, work => progress.during(() => ['Waiting…', 'below'], work, 0));
    // eslint-disable-next-line no-control-regex
    expect(stream.text).toMatch(
      /below\r\u001b\[2K\u001b\[1A\r\u001b\[2Kacode: warning: x\n\r\u001b\[2K. Waiting…\n {2}below/,
    );
    expect(stream.text.match(/acode: warning/g)).toHaveLength(1);
  });

  it('stays on one line, and keeps the seconds', async () => {
    const stream = new Recorder(true);
    const progress = new Progress(new Output(stream), plain(30), true);
    await during(1300, work => progress.during('Attacking: 1 of 60, now what is long…\n', work));
    // eslint-disable-next-line no-control-regex
    const frames = stream.text.split('\r\u001b[2K').filter(frame => frame !== '');
    expect(frames.length).toBeGreaterThan(0);
    for (const frame of frames) {
      expect(frame).toMatch(/… 1 s$/);
      expect(widthOf(frame)).toBeLessThan(30);
    }
  });
});

function passedOn(...parts: string[]): [text: string, leave: boolean] {
  const keys = new LeaveKeys();
  let text = '';
  for (const part of parts) {
    const { data, leave } = keys.push(Buffer.from(part));
    text += Buffer.from(data).toString();
    if (leave) return [text, true];
  }
  return [text, false];
}

describe('the keys that leave', () => {
  it.each<[string[], string, boolean]>([
    [['~.'], '', true],
    [['ls\r', '~', '.'], 'ls\r', true],
    [['ls\r~.rest'], 'ls\r', true],
    [['a~.'], 'a~.', false],
    [['~~.'], '~.', false],
    [['~/bin\r'], '~/bin\r', false],
    [['~', '/'], '~/', false],
    [['\r\r~x~.'], '\r\r~x~.', false],
    [['\u0003\u001b[A'], '\u0003\u001b[A', false],
    [['~\r~.'], '~\r', true],
    // Text that is pasted, in any pieces, is text.
    [['\r\u001b[200~\r~.\u001b[201~'], '\r\u001b[200~\r~.\u001b[201~', false],
    [['\r\u001b[2', '00', '~~.\r', '~.\u001b[20', '1~~.'], '\r\u001b[200~~.\r~.\u001b[201~~.', false],
    [['\u001b[200~a\u001b[201~\r~.'], '\u001b[200~a\u001b[201~\r', true],
    [['\u001b[20\u001b[200~\r~.'], '\u001b[20\u001b[200~\r~.', false],
    [['\u001b[209~\r~.'], '\u001b[209~\r', true],
  ])('of %j give %j, and leave: %j', (parts, text, leave) => {
    expect(passedOn(...parts)).toEqual([text, leave]);
  });
});

function questionTerminal(isTTY = true) {
  const stdin = Object.assign(new PassThrough(), { isTTY });
  const stderr = Object.assign(new PassThrough(), { isTTY });
  return { stdin, stderr };
}

describe('ask', () => {
  it.each([
    ['y\n', true],
    ['  Yes\n', true],
    ['\n', false],
    ['n\n', false],
    ['no, y\n', false],
  ])('takes %j for %j', async (typed, answer) => {
    const io = questionTerminal();
    const asked = ask(io, 'Remove it?', new AbortController().signal);
    io.stdin.write(typed);
    expect(await asked).toBe(answer);
    expect(String(io.stderr.read())).toBe('Remove it? [y/N] ');
  });

  it('takes the end of the input for no', async () => {
    const io = questionTerminal();
    const asked = ask(io, 'Remove it?', new AbortController().signal);
    io.stdin.end();
    expect(await asked).toBe(false);
  });

  it('stops when it is interrupted', async () => {
    const stop = new AbortController();
    const asked = ask(questionTerminal(), 'Remove it?', stop.signal);
    stop.abort(new Error('stopped'));
    await expect(asked).rejects.toThrow('stopped');
  });

  it('can ask at a terminal only', () => {
    expect([canAsk(questionTerminal()), canAsk(questionTerminal(false))]).toEqual([true, false]);
  });
});
