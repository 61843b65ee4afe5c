// Reads the engine's streams of JSON documents, one per line, as they come.
import type * as z from 'zod';
import { EngineError } from './error.ts';
import { parseJson } from './reply.ts';

const lineCap = 1024 * 1024;
const newline = 0x0a;

/** One document and the text it was parsed from. */
export interface JsonLine<T> {
  readonly value: T;
  readonly text: string;
}

/** The documents of a stream. A line of more than 1 MiB or of another shape is a `protocol` error. */
export async function* jsonLines<T>(
  source: AsyncIterable<Buffer>,
  schema: z.ZodType<T>,
  operation: string,
): AsyncGenerator<JsonLine<T>, void, undefined> {
  for await (const text of lines(source, operation)) {
    if (text.trim() !== '') yield { value: parseJson(text, schema, operation), text };
  }
}

/** Split on bytes, not on text: a character may be cut by the end of a chunk. */
async function* lines(source: AsyncIterable<Buffer>, operation: string): AsyncGenerator<string, void, undefined> {
  let held: Buffer[] = [];
  let heldLength = 0;
  for await (const chunk of source) {
    let start = 0;
    for (let end = chunk.indexOf(newline); end !== -1; end = chunk.indexOf(newline, start)) {
      yield Buffer.concat([...held, chunk.subarray(start, end)]).toString('utf8');
      held = [];
      heldLength = 0;
      start = end + 1;
    }
    held.push(chunk.subarray(start));
    heldLength += chunk.length - start;
    if (heldLength > lineCap) {
      throw new EngineError({ kind: 'protocol', operation, detail: `a line is longer than ${lineCap} bytes` });
    }
  }
  if (heldLength > 0) yield Buffer.concat(held).toString('utf8');
}
