// What a program inside prints can draw, and cannot act on the terminal it is shown on.

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ScreenFilter } from './screen-filter.ts';

const E = '\u001b';

function shown(text: string, options?: { mouse: boolean }): string {
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
    ['other keys', `${E}[>4;2m${E}[>1u${E}[=1u${E}[?u`],
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
      ],
      ...['\u0007', '\u009b', '\u009c', '\u0018', '\r', '\n', 'text', 'é', '😀', '(', '0', 'k', '_', 'J', '3'],
    );
    // oxlint-disable-next-line no-control-regex
    const drawing = /\u001b(?:\[(?:[\d;:]*[@-Za-bde-hlmr-su`]|\?[\d;]+[hl]|[0-6]? q|!p)|[78=>DEM]|[()][0B])/g;
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 60 }), fc.array(fc.nat(200), { maxLength: 8 }), (pieces, cuts) => {
        const bytes = Buffer.from(pieces.join(''));
        const whole = new ScreenFilter().push(bytes);
        const filter = new ScreenFilter();
        const ends = [...cuts.map(cut => cut % (bytes.length + 1)), bytes.length].sort((one, other) => one - other);
        const parts = ends.map((end, at) => filter.push(bytes.subarray(ends[at - 1] ?? 0, end)));
        expect(parts.join('')).toBe(whole);
        // oxlint-disable-next-line no-control-regex
        expect(whole.replaceAll(drawing, '')).not.toMatch(/[\u0000-\u0006\u0010-\u001f\u007f-\u009f]/);
        expect(whole).not.toMatch(/\u001b\[(?:[\d;]*[cnt]|3J|\?1004)/);
      }),
      { numRuns: 2000 },
    );
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
