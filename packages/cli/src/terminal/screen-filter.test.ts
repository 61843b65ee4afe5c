// What a program inside prints can draw, and cannot act on the terminal it is shown on.

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ScreenFilter } from './screen-filter.ts';
import type { ScreenFilterOptions } from './screen-filter.ts';

const E = '\u001b';

function shown(text: string, options?: ScreenFilterOptions): string {
  return new ScreenFilter(options).push(Buffer.from(text));
}

describe('what acts on the host', () => {
  it.each([
    ['the clipboard', `${E}]52;c;cm0gLXJmIC8=${E}\\`],
    ['the clipboard, ended by a bell', `${E}]52;c;cm0gLXJmIC8=\u0007`],
    ['the title', `${E}]0;title\u0007`],
    ['the title of screen and tmux', `${E}ktitle${E}\\`],
    ['a hyperlink', `${E}]8;;http://evil${E}\\${E}]8;;${E}\\`],
    ['a question for a colour', `${E}]11;?\u0007`],
    ['a file of iTerm2', `${E}]1337;File=name=eA==:eA==\u0007`],
    ['a notification', `${E}]9;hello\u0007${E}]777;notify;a;b\u0007`],
    ['a report of the title', `${E}[21t`],
    ['a change of the window', `${E}[8;10;10t${E}[3;0;0t${E}[2t`],
    ['a report of the cursor', `${E}[6n${E}[?6n`],
    ['device attributes', `${E}[c${E}[0c${E}[>c${E}[=c${E}Z`],
    ['the version', `${E}[>q${E}[>0q`],
    ['a report of a mode', `${E}[?2004$p${E}[4$p`],
    ['a report of a setting (DECRQSS)', `${E}P$q"p${E}\\`],
    ['a report of a capability', `${E}P+q544e${E}\\`],
    ['a passage through tmux', `${E}Ptmux;${E}${E}]52;c;eA==\u0007${E}\\`],
    ['pictures', `${E}Pq#0;2;0;0;0~-${E}\\${E}_Gf=24,t=f;L2V0Yy9wYXNzd2Q=${E}\\`],
    ['the answerback', '\u0005'],
    ['printing', `${E}[5i${E}[?5i`],
    ['the mouse', `${E}[?1000h${E}[?1002h${E}[?1003h${E}[?1006h${E}[?9h`],
    ['the focus', `${E}[?1004h`],
    ['a question for the modes of the keyboard', `${E}[?u${E}[>4n`],
    ['other changes of what keys send', `${E}[>1;2m${E}[>4;3m${E}[>4;1;1m${E}[>0q${E}[1u${E}[>1;2;3u`],
    ['the encoding', `${E}%@${E}%G${E} G`],
    ['the width', `${E}[?3h${E}[?40h`],
    ['what can be scrolled back to', `${E}[3J`],
    ['tab stops', `${E}H${E}[3g`],
    ['macros and programmed keys', `${E}P0|17/17${E}\\${E}[?1z`],
    ['a checksum of the screen', `${E}[1;1;1;1;10;10*y`],
    ['controls of eight bits', '\u009b\u009d\u0090\u009c'],
    ['text that reads backwards', '\u202e\u2066'],
    ['deletions and nulls', '\u007f\u0000'],
  ])('does not pass: %s', (_, text) => {
    const filter = new ScreenFilter();
    expect(filter.push(Buffer.from(text))).toBe('');
    // Positive control: what comes after it is shown.
    expect(filter.push(Buffer.from(`a${E}[1mb`))).toBe(`a${E}[1mb`);
  });

  it.each([
    ['a control of eight bits', '\u009b6nx', '6nx'],
    ['an operating system command of eight bits', '\u009d0;t\u0007', '0;t\u0007'],
    ['a sequence inside another', `${E}[${E}]52;c;x\u0007${E}[1m`, `${E}[1m`],
    ['a sequence in the middle of another', `${E}[3${E}[6n1mx`, '1mx'],
    ['an aborted one', `${E}[6\u0018n`, 'n'],
    ['text in the middle of one', `${E}[6é n`, 'é n'],
    ['a pair of surrogates in the middle of one', `${E}[6😀`, '😀'],
    ['a very long one', `${E}[${'1;'.repeat(4000)}mx`, 'x'],
    ['a long list of intermediates', `${E}${' '.repeat(4000)}Fx`, 'x'],
    ['modes of which one is allowed', `${E}[?1004;2004;1000h`, `${E}[?2004h`],
    ['a number with zeros before it', `${E}[0003J${E}[?01004h`, ''],
  ])('shows of %s what is text', (_, text, expected) => {
    expect(shown(text)).toBe(expected);
  });

  it('shows bytes that are no text as such', () => {
    const filter = new ScreenFilter();
    expect(filter.push(Uint8Array.of(0x9b, 0x36, 0x6e))).toBe('\ufffd6n');
  });

  it('never passes anything but text and whole sequences of the list, however it is cut', () => {
    const piece = fc.constantFrom(
      ...[
        E,
        '[',
        ']',
        'P',
        '\\',
        '?',
        '>',
        ';',
        '5',
        '2',
        '6',
        '1049',
        '$',
        '!',
        ' ',
        'n',
        'c',
        'h',
        'm',
        'p',
        'q',
        't',
        'u',
        '2026',
        '>',
        '<',
        '=',
        '1',
        '4',
        '52;c;',
        'eA==',
      ],
      ...['\u0007', '\u009b', '\u009c', '\u0018', '\r', '\n', 'text', 'é', '😀', '(', '0', 'k', '_', 'J', '3'],
    );
    // oxlint-disable-next-line no-control-regex
    const drawing =
      /\u001b(?:\[(?:[\d;:]*[@-Za-bde-hlmr-su`]|\?[\d;]+[hl]|[0-6]? q|!p|>[457]u|[>=][0145]u|<1u|>4(?:;[0-2])?m)|[78=>DEM]|[()][0B]|\]52;c;[\w+/]+={0,2}\u0007)/g;
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 60 }),
        fc.array(fc.nat(200), { maxLength: 8 }),
        fc.boolean(),
        (...given) => {
          const [pieces, cuts, clipboard] = given;
          const bytes = Buffer.from(pieces.join(''));
          const once = new ScreenFilter({ clipboard });
          const whole = once.push(bytes);
          const filter = new ScreenFilter({ clipboard });
          const ends = [...cuts.map(cut => cut % (bytes.length + 1)), bytes.length].sort((one, other) => one - other);
          const parts = ends.map((end, at) => filter.push(bytes.subarray(ends[at - 1] ?? 0, end)));
          expect(parts.join('')).toBe(whole);
          expect([filter.questions(), filter.clipboard, filter.undo()]).toEqual([
            once.questions(),
            once.clipboard,
            once.undo(),
          ]);
          if (!clipboard) expect(whole).not.toContain(`${E}]`);
          // oxlint-disable-next-line no-control-regex
          expect(whole.replaceAll(drawing, '')).not.toMatch(/[\u0000-\u0006\u0010-\u001f\u007f-\u009f]/);
          expect(whole).not.toMatch(/\u001b\[(?:[\d;]*[cnt]|3J|\?1004)/);
        },
      ),
      { numRuns: 2000 },
    );
  });

  it('passes every sequence of an agent’s screen as a whole, wherever it is cut', () => {
    const text = [
      `${E}[?2026h${E}[38;2;1;2;3m${E}[4:3m${E}[58:2::1:2:3mé😀${E}[0m${E}[?2026l`,
      `${E}[?2004h${E}[?1049h${E}[>5u${E}[>4;2m${E}[=1;2u${E}[<u${E}[?1049l`,
      `${E}]52;c;bm90ZXM=${E}\\${E}]52;c;bm90ZXM=\u0007${E}[?u${E}[c${E}[?2026$p`,
    ].join('');
    const bytes = Buffer.from(text);
    const whole = shown(text, { clipboard: true });
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      const filter = new ScreenFilter({ clipboard: true });
      const parts = [filter.push(bytes.subarray(0, cut)), filter.push(bytes.subarray(cut))];
      expect(parts.join(''), `cut at ${cut}`).toBe(whole);
      expect(filter.questions()).toHaveLength(3);
    }
  });
});

describe('the clipboard', () => {
  const base64 = (text: string | Uint8Array): string => Buffer.from(text).toString('base64');
  const asked = (content: string): string => `${E}]52;${content}\u0007`;

  it('is written where the user says so, with text as it is, and counted', () => {
    const filter = new ScreenFilter({ clipboard: true });
    const text = base64('a line\n\twith ünïcode 😀\n');
    expect(filter.push(Buffer.from(`x${asked(`p;${text}`)}y`))).toBe(`x${asked(`c;${text}`)}y`);
    expect(filter.push(Buffer.from(`${E}]52;;${text}${E}\\`))).toBe(asked(`c;${text}`));
    expect(filter.clipboard).toEqual({ written: 2, refused: 0 });
  });

  it('is not written without consent, and the attempt is counted', () => {
    const filter = new ScreenFilter();
    expect(filter.push(Buffer.from(asked(`c;${base64('rm -rf /')}`)))).toBe('');
    expect(filter.clipboard).toEqual({ written: 0, refused: 1 });
  });

  it.each([
    ['a question for what it holds', 'c;?'],
    ['nothing', 'c;'],
    ['no base64', 'c;a b'],
    ['a second sequence in it', `c;${base64('a')};52;c;?`],
    ['the end of a bracketed paste', `c;${base64(`${E}[201~rm -rf /\n`)}`],
    ['a return, which runs a line', `c;${base64('rm -rf /\r')}`],
    ['text that reads backwards', `c;${base64('\u202etxt')}`],
    ['bytes that are no text', `c;${base64(Uint8Array.of(0xff, 0xfe))}`],
    ['more than terminals take', `c;${base64('x'.repeat(80_000))}`],
    ['a selection that does not exist', `c!;${base64('a')}`],
  ])('never takes %s', (_, content) => {
    const filter = new ScreenFilter({ clipboard: true });
    expect(filter.push(Buffer.from(asked(content)))).toBe('');
    expect(filter.clipboard.written).toBe(0);
    // Positive control: the next one is taken.
    expect(filter.push(Buffer.from(asked(`c;${base64('a')}`)))).toBe(asked(`c;${base64('a')}`));
  });

  it.each([
    ['a cancelled one', `${E}]52;c;eA==\u0018\u0007`],
    ['one with another sequence in it', `${E}]52;c;eA==${E}[1m\u0007`],
    ['another string', `${E}]0;52;c;eA==\u0007${E}P52;c;eA==${E}\\${E}_52;c;eA==${E}\\`],
  ])('never takes %s', (_, text) => {
    expect(shown(text, { clipboard: true })).not.toContain(']52');
  });
});

describe('the keyboard', () => {
  const on = (...texts: readonly string[]): string[] => {
    const filter = new ScreenFilter();
    return [...texts.map(text => filter.push(Buffer.from(text))), filter.undo()];
  };

  it('has the modes that a program asks for, without releases of keys and without text as sequences', () => {
    expect(on(`${E}[>1u`, `${E}[<u`)).toEqual([`${E}[>1u`, `${E}[<1u`, '']);
    expect(on(`${E}[>31u`, `${E}[=10u`, `${E}[=4;2u`, `${E}[=4;3u`)).toEqual([
      `${E}[>5u`,
      `${E}[=0u`,
      `${E}[=4u`,
      `${E}[=0u`,
      `${E}[<1u`,
    ]);
  });

  it('takes back what the program put there, and nothing of the user’s', () => {
    expect(on(`${E}[<9u`, `${E}[<u`)).toEqual(['', '', '']);
    expect(on(`${E}[>1u${E}[>5u`, `${E}[<u`, `${E}[<5u`, `${E}[<u`)).toEqual([
      `${E}[>1u${E}[=5u`,
      `${E}[=1u`,
      `${E}[<1u`,
      '',
      '',
    ]);
  });

  it('has modes of its own on each screen, and gives both back', () => {
    expect(on(`${E}[>1u`, `${E}[?1049h${E}[>5u`, `${E}[?1049l`, `${E}[?1049h`)).toEqual([
      `${E}[>1u`,
      `${E}[?1049h${E}[>5u`,
      `${E}[<1u${E}[?1049l`,
      `${E}[?1049h${E}[>5u`,
      `${E}[<1u${E}[?1049l${E}[<1u`,
    ]);
    expect(on(`${E}[>1u`, `${E}c`)).toEqual([`${E}[>1u`, `${E}[<1u${E}[!p${E}[H${E}[2J`, '']);
  });

  it('of xterm and tmux tells Shift-Enter from Enter, and is taken back', () => {
    expect(on(`${E}[>4;2m`)).toEqual([`${E}[>4;2m`, `${E}[>4m`]);
    expect(on(`${E}[>4;2m${E}[>4m`)).toEqual([`${E}[>4;2m${E}[>4m`, '']);
  });
});

describe('a question that acode answers', () => {
  const asked = (text: string, options?: ScreenFilterOptions) => {
    const filter = new ScreenFilter(options);
    expect(filter.push(Buffer.from(text)).replaceAll(/\u001b\[\?\d+h|\u001b\[>5u/g, '')).toBe('');
    return filter.questions();
  };

  it.each([
    ['the attributes', `${E}[c${E}[0c`, [{ answer: `${E}[?62;22c` }, { answer: `${E}[?62;22c` }]],
    ['what the terminal is', `${E}[>q${E}[>0q`, [{ answer: `${E}P>|acode${E}\\` }, { answer: `${E}P>|acode${E}\\` }]],
    ['a mode that passes', `${E}[?2026$p`, [{ answer: `${E}[?2026;2$y` }]],
    [
      'a mode that is on',
      `${E}[?2026h${E}[?2026$p${E}[?7$p`,
      [{ answer: `${E}[?2026;1$y` }, { answer: `${E}[?7;1$y` }],
    ],
    [
      'a mode that does not pass',
      `${E}[?1004$p${E}[?1000$p`,
      [{ answer: `${E}[?1004;0$y` }, { answer: `${E}[?1000;0$y` }],
    ],
    ['the keyboard', `${E}[?u${E}[>31u${E}[?u`, [{ keys: 0 }, { keys: 5 }]],
    ['nothing else', `${E}[1c${E}[>c${E}[=c${E}[6n${E}[?1u${E}[4$p${E}[?1;2$p${E}[>1q`, []],
  ])('is %s', (_, text, answers) => {
    expect(asked(text)).toEqual(answers);
  });

  it('about the mouse is answered by what the user allows', () => {
    expect(asked(`${E}[?1000$p`, { mouse: true })).toEqual([{ answer: `${E}[?1000;2$y` }]);
  });

  it('is forgotten where a program asks without end', () => {
    expect(asked(`${E}[c`.repeat(500))).toHaveLength(64);
  });
});

describe('what a full-screen program needs', () => {
  it.each([
    ['the other screen', `${E}[?1049h${E}[?1049l${E}[?47h`],
    ['the cursor', `${E}[2;3H${E}[A${E}[10B${E}[5G${E}[7d${E}7${E}8${E}[s${E}[u${E}[?25l`],
    ['erasing', `${E}[J${E}[2J${E}[K${E}[1K${E}[3X`],
    ['lines and characters', `${E}[2L${E}[M${E}[4P${E}[@${E}[3b`],
    ['scrolling', `${E}[2;20r${E}[S${E}[T${E}M${E}D`],
    ['colours', `${E}[1;38;5;208m${E}[48:2::1:2:3m${E}[m`],
    ['line drawing', `${E}(0lqk${E}(B\u000e\u000f`],
    ['keys of the cursor and the keypad', `${E}[?1h${E}=${E}[?1l${E}>`],
    ['bracketed paste', `${E}[?2004h`],
    ['a picture that appears at once', `${E}[?2026h${E}[?2026l`],
    ['the shape of the cursor', `${E}[4 q${E}[ q`],
    ['a soft reset', `${E}[!p`],
    ['bell, tab, backspace', '\u0007\t\b'],
    ['text of every kind', 'naïve 漢字 😀 \u200d'],
  ])('passes: %s', (_, text) => {
    expect(shown(text)).toBe(text);
  });

  it('a newline alone stays one, and a line end is a line end', () => {
    expect(shown('a\r\nb\nc')).toBe('a\r\nb\vc');
  });

  it('the mouse passes where the user says so, and is taken back', () => {
    const filter = new ScreenFilter({ mouse: true });
    expect(filter.push(Buffer.from(`${E}[?1000;1006h`))).toBe(`${E}[?1000;1006h`);
    expect(filter.undo()).toBe(`${E}[?1000l${E}[?1006l`);
  });
});

describe('what is taken back at the end', () => {
  it.each([
    ['nothing, where nothing was changed', 'text', ''],
    ['nothing, where the program did it', `${E}[?1049h${E}[?25l${E}[1m${E}[0m${E}[?25h${E}[?1049l`, ''],
    ['a colour', `${E}[31mred`, `${E}[0m`],
    ['a hidden cursor', `${E}[?25l`, `${E}[?25h`],
    ['lines that do not go on', `${E}[?7l`, `${E}[?7h`],
    ['line drawing', `${E}(0`, `${E}(B${E})B\u000f`],
    ['margins', `${E}[2;5r`, `${E}7${E}[r${E}8`],
    ['insertion, keypad, shape', `${E}[4h${E}=${E}[3 q`, `${E}[4l${E}>${E}[0 q`],
    ['the other screen, last', `${E}[?1049h${E}[2;5r${E}[7m`, `${E}[0m${E}[?1049l${E}7${E}[r${E}8`],
    ['bracketed paste', `${E}[?2004h`, `${E}[?2004l`],
    ['a picture that is held back', `${E}[?2026h`, `${E}[?2026l`],
  ])('%s', (_, text, expected) => {
    const filter = new ScreenFilter();
    filter.push(Buffer.from(text));
    expect(filter.undo()).toBe(expected);
    expect(filter.undo()).toBe('');
  });

  it('and when the program asks for a whole reset, which it does not get', () => {
    expect(shown(`${E}[?25l${E}c`)).toBe(`${E}[?25l${E}[?25h${E}[!p${E}[H${E}[2J`);
  });
});
