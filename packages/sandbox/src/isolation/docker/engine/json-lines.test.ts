// Shows that documents survive any splitting of their bytes, and that a hostile stream is not kept in memory.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { jsonLines } from './json-lines.ts';

async function* cut(bytes: Buffer, sizes: readonly number[]): AsyncGenerator<Buffer> {
  let start = 0;
  for (const size of sizes) {
    yield bytes.subarray(start, start + size);
    start += size;
  }
  yield bytes.subarray(start);
}

async function read(source: AsyncIterable<Buffer>, schema: z.ZodType = z.unknown()): Promise<unknown[]> {
  const values: unknown[] = [];
  for await (const { value } of jsonLines(source, schema, 'GET /x')) values.push(value);
  return values;
}

describe('jsonLines', () => {
  it('gives the same documents however the bytes are split', async () => {
    const splits = fc.array(fc.integer({ min: 0, max: 9 }), { maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(fc.array(fc.jsonValue()), splits, fc.boolean(), async (values, sizes, lastNewline) => {
        const text = values.map(value => JSON.stringify(value)).join('\r\n') + (lastNewline ? '\n' : '');
        expect(await read(cut(Buffer.from(text), sizes))).toEqual(
          values.map(value => JSON.parse(JSON.stringify(value))),
        );
      }),
    );
  });

  it('passes over empty lines', async () => {
    expect(await read(cut(Buffer.from('\n\n1\n \n2\n\n'), []))).toEqual([1, 2]);
  });

  it('refuses a line without end', async () => {
    const pulled = { chunks: 0 };
    async function* endless() {
      while (true) {
        pulled.chunks++;
        yield Buffer.alloc(64 * 1024, 'x');
      }
    }
    await expect(read(endless())).rejects.toMatchObject({ kind: 'protocol' });
    expect(pulled.chunks).toBeLessThanOrEqual(17);
  });

  it.each(['{"a":', 'null', '{"a":"1"}'])('refuses %s where a number was promised', async line => {
    const schema = z.looseObject({ a: z.number() });
    await expect(read(cut(Buffer.from(`{"a":1}\n${line}\n`), []), schema)).rejects.toMatchObject({ kind: 'protocol' });
  });
});
