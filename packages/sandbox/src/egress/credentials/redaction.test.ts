// Redaction of answers: whatever form a server repeats a credential in, and wherever the pieces of the answer end, stars come out.

import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Redaction } from './redaction.ts';

const secret = fc.string({ unit: 'grapheme-ascii', minLength: 12, maxLength: 60 });
const around = fc.uint8Array({ maxLength: 40 }).map(bytes => Buffer.from(bytes));

const FORMS: Readonly<Record<string, (value: string) => string>> = {
  'as it is': value => value,
  'for a URL': encodeURIComponent,
  'for a form': value => encodeURIComponent(value).replaceAll('%20', '+'),
  'each byte for a URL': value =>
    value.replaceAll(/[^]/g, sign => `%${sign.charCodeAt(0).toString(16).padStart(2, '0')}`),
  'in JSON': value => JSON.stringify(value).slice(1, -1),
  'in hexadecimal digits': value => Buffer.from(value).toString('hex'),
  'in base64': value => Buffer.from(value).toString('base64'),
  'in base64 for a URL': value => Buffer.from(value).toString('base64url'),
};

async function streamed(redaction: Redaction, pieces: readonly Buffer[]): Promise<Buffer> {
  return buffer(Readable.from(pieces).pipe(redaction.stream()));
}

function cutAt(bytes: Buffer, cuts: readonly number[]): Buffer[] {
  const at = [0, ...cuts.map(cut => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
  return at.slice(1).map((end, index) => bytes.subarray(at[index], end));
}

describe('an answer that repeats a credential', () => {
  it.each(Object.entries(FORMS))('has stars %s, at the same length, wherever its pieces end', async (_, form) => {
    await fc.assert(
      fc.asyncProperty(
        secret,
        around,
        around,
        fc.array(fc.nat(), { maxLength: 8 }),
        async (value, before, after, cuts) => {
          const written = form(value);
          const answer = Buffer.concat([before, Buffer.from(written), after]);
          const shown = await streamed(new Redaction([value]), cutAt(answer, cuts));
          expect(shown).toHaveLength(answer.length);
          // A value ends a base64 text with up to three signs that other bytes decide too.
          expect(shown.includes(written.replace(/=+$/, '').slice(0, -1))).toBe(false);
          expect(shown.equals(await streamed(new Redaction([value]), [answer]))).toBe(true);
        },
      ),
    );
  });

  it('has stars inside a longer base64 text, at each of the three places of a group', () => {
    fc.assert(
      fc.property(secret, fc.nat(5), fc.nat(5), (value, before, after) => {
        const text = Buffer.from(`${'a'.repeat(before)}${value}${'z'.repeat(after)}`).toString('base64');
        const told = Buffer.from(new Redaction([value]).text(text).replaceAll('*', 'A'), 'base64').toString('latin1');
        // At most one sign of the value at either border is decided by its neighbour alone.
        expect(told).not.toContain(value.slice(2, -2));
      }),
    );
  });

  it('has stars where two values overlap, and where one begins inside another', async () => {
    const answer = Buffer.from('--abcabcabcabcd--');
    const shown = await streamed(new Redaction(['abcabcabc', 'abcabcd']), cutAt(answer, [3, 5, 8, 9, 14]));
    expect(shown.toString()).toBe(`--${'*'.repeat(13)}--`);
  });

  it('holds nothing back that cannot be the beginning of a value', () => {
    const stream = new Redaction(['corp_secret_value']).stream();
    stream.write('data: one\n\ncor');
    expect(String(stream.read())).toBe('data: one\n\n');
    stream.write('n flakes\n');
    expect(String(stream.read())).toBe('corn flakes\n');
  });

  it('is passed on as it came without one', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(around, { maxLength: 6 }), async pieces => {
        const shown = await streamed(new Redaction(['corp_0123456789abcdef']), pieces);
        expect(shown.equals(Buffer.concat(pieces))).toBe(true);
      }),
    );
  });
});
