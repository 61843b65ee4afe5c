// Output is kept to its limit, decoded without loss, and harmless on a terminal.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Capture, decodeOutput } from './capture.ts';
import { TerminalSanitiser } from './terminal.ts';

describe('Capture', () => {
  it('keeps the head to the byte and counts the rest, however it comes', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 300 })), fc.nat(1000), (chunks, limit) => {
        const capture = new Capture(limit);
        for (const chunk of chunks) capture.push(Buffer.from(chunk));
        const all = Buffer.concat(chunks);
        expect(capture.bytes().equals(all.subarray(0, limit))).toBe(true);
        expect(capture.dropped).toBe(Math.max(0, all.length - limit));
      }),
    );
  });

  it('spans blocks', () => {
    const capture = new Capture(1e6);
    const data = Buffer.from(Array.from({ length: 200_000 }, (_, n) => n % 251));
    for (let at = 0; at < data.length; at += 70_000) capture.push(data.subarray(at, at + 70_000));
    expect(capture.bytes().equals(data)).toBe(true);
  });

  it('lets a late and a slow reader see everything from the first byte on', async () => {
    const capture = new Capture(1e6);
    capture.push(Buffer.from('one '));
    const read = async (pauseMs: number): Promise<string> => {
      let text = '';
      for await (const chunk of capture.follow()) {
        text += Buffer.from(chunk).toString();
        await new Promise(resolve => setTimeout(resolve, pauseMs));
      }
      return text;
    };
    const readers = [read(0), read(5)];
    await new Promise(resolve => setTimeout(resolve, 10));
    capture.push(Buffer.from('two '));
    capture.push(Buffer.from('three'));
    capture.end();
    expect(await Promise.all([...readers, read(0)])).toEqual(['one two three', 'one two three', 'one two three']);
  });

  it('hands each chunk on as a copy of its own', () => {
    const seen: Uint8Array[] = [];
    const capture = new Capture(3, chunk => seen.push(chunk));
    const data = Buffer.from('abcdef');
    capture.push(data);
    data.fill(0);
    expect(Buffer.concat(seen).toString()).toBe('abc');
  });
});

describe('decodeOutput', () => {
  it.each([
    ['text', Buffer.from('ä😀\n'), false, 'ä😀\n', false],
    ['a byte order mark', Buffer.from('\ufeffx'), false, '\ufeffx', false],
    ['half a character at a cut', Buffer.from('xä').subarray(0, 2), true, 'x', false],
    ['half of a four-byte character at a cut', Buffer.from('x😀').subarray(0, 4), true, 'x', false],
    ['a whole character at a cut', Buffer.from('xä'), true, 'xä', false],
    ['half a character at the real end', Buffer.from('xä').subarray(0, 2), false, 'x\ufffd', true],
    ['invalid bytes', Buffer.from([0xff, 0x41]), false, '\ufffdA', true],
    ['stray continuation bytes at a cut', Buffer.from([0x80, 0x80, 0x80, 0x80]), true, '\ufffd'.repeat(4), true],
    ['a NUL', Buffer.from('a\0b'), false, 'a\0b', true],
    ['nothing', Buffer.alloc(0), true, '', false],
  ])('of %s', (_, data, cut, text, binary) => {
    const decoded = decodeOutput(data, cut);
    expect(decoded.text).toBe(text);
    expect(decoded.bytes !== undefined).toBe(binary);
    if (decoded.bytes) expect(Buffer.from(decoded.bytes).equals(data)).toBe(true);
  });
});

describe('TerminalSanitiser', () => {
  const clean = (...parts: string[]): string => {
    const sanitiser = new TerminalSanitiser();
    return parts.map(part => sanitiser.push(Buffer.from(part))).join('') + sanitiser.end();
  };

  it.each([
    ['colours stay', '\u001b[31mred\u001b[0m', '\u001b[31mred\u001b[0m'],
    ['a title is shown, not set', '\u001b]0;pwned\u0007', '␛]0;pwned␇'],
    ['the clipboard is not written', '\u001b]52;c;cHduZWQ=\u0007', '␛]52;c;cHduZWQ=␇'],
    ['the cursor does not move', 'safe\u001b[2K\u001b[1A', 'safe␛[2K␛[1A'],
    ['a lone return begins a line', 'rm -rf /\rls', 'rm -rf /\nls'],
    ['line ends stay line ends', 'a\r\nb\n\tc', 'a\nb\n\tc'],
    ['text direction is not changed', 'a\u202eb', 'a�b'],
    ['eight-bit controls do not act', 'a\u009b31mb', 'a�31mb'],
    ['delete and backspace are shown', 'a\u0008\u007f', 'a␈␡'],
    ['an escape at the end is shown', 'x\u001b', 'x␛'],
    ['an endless escape sequence is shown', `\u001b[${'1'.repeat(70)}`, `␛[${'1'.repeat(70)}`],
  ])('%s', (_, text, expected) => {
    expect(clean(text)).toBe(expected);
  });

  it('withholds no more than a few bytes', () => {
    const sanitiser = new TerminalSanitiser();
    expect(sanitiser.push(Buffer.from(`\u001b[${'1'.repeat(62)}`)) + sanitiser.push(Buffer.from('visible'))).toContain(
      'visible',
    );
  });

  it('gives the same however the text is cut', () => {
    const text = 'ä\u001b[1;31mx\u001b[0m\u001b]0;t\u0007\r\n\ry\u001b[2K😀';
    const bytes = Buffer.from(text);
    for (let at = 0; at <= bytes.length; at += 1) {
      const sanitiser = new TerminalSanitiser();
      expect(sanitiser.push(bytes.subarray(0, at)) + sanitiser.push(bytes.subarray(at)) + sanitiser.end()).toBe(
        clean(text),
      );
    }
  });

  it('leaves no control character but newline, tab and colours, for any text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), text => {
        // eslint-disable-next-line no-control-regex
        expect(clean(text).replaceAll(/\u001b\[[0-9;]*m/g, '')).not.toMatch(
          /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/,
        );
      }),
    );
  });
});
