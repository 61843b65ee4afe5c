// Lines come out as they went in, whatever the pieces; one that is too long is skipped and said.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CappedLines } from './standard-streams.ts';

function cut(chunks: readonly Uint8Array[], most: number): string[] {
  const heard: string[] = [];
  const lines = new CappedLines(most, { line: text => heard.push(text), tooLong: () => heard.push('TOO LONG') });
  for (const chunk of chunks) lines.push(chunk);
  return heard;
}

describe('lines', () => {
  it('are the same however the bytes are cut', () => {
    const text = '{"a":"ä€😀"}\r\n\n{"b":2}\n';
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: Buffer.byteLength(text) })), places => {
        const bytes = Buffer.from(text);
        const ends = [...places.sort((one, other) => one - other), bytes.length];
        const chunks = ends.map((end, at) => bytes.subarray(ends[at - 1] ?? 0, end));
        expect(cut(chunks, 100)).toEqual(['{"a":"ä€😀"}', '{"b":2}']);
      }),
    );
  });

  it('that are too long are skipped to their end, and the next one is heard', () => {
    const chunks = ['short\n', 'x'.repeat(50), 'x'.repeat(50), '\nnext\n'].map(text => Buffer.from(text));
    expect(cut(chunks, 10)).toEqual(['short', 'TOO LONG', 'next']);
  });

  it('of exactly the most there may be are heard', () => {
    expect(cut([Buffer.from(`${'x'.repeat(10)}\n${'y'.repeat(11)}\n`)], 10)).toEqual(['x'.repeat(10), 'TOO LONG']);
  });
});
