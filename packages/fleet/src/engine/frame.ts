// Frame of a message: JSON, and bytes behind it.

import * as z from 'zod';
import { MAX_GATE_MESSAGE } from './link.ts';

const HEAD = 4;

/** A message: JSON, and bytes. */
export interface Frame {
  readonly value: unknown;
  readonly bytes: Uint8Array;
}

/** The message as it is sent. */
export function encodeFrame(value: object, bytes: Uint8Array = new Uint8Array()): Uint8Array {
  const text = Buffer.from(JSON.stringify(value));
  const head = Buffer.alloc(HEAD);
  head.writeUInt32BE(text.length);
  return Buffer.concat([head, text, bytes]);
}

/** The message that was sent; null where it is none. */
export function decodeFrame(message: Uint8Array): Frame | null {
  const all = Buffer.from(message.buffer, message.byteOffset, message.byteLength);
  if (all.length < HEAD || all.length > MAX_GATE_MESSAGE) return null;
  const end = HEAD + all.readUInt32BE();
  if (end > all.length) return null;
  try {
    return { value: JSON.parse(all.toString('utf8', HEAD, end)), bytes: all.subarray(end) };
  } catch {
    return null;
  }
}

const failureSchema = z.object({
  code: z.string(),
  message: z.string(),
  hint: z.string(),
  exitStatus: z.int(),
  context: z.record(z.string(), z.unknown()).default({}),
});

/** What was refused, as it is sent. */
export type Failure = z.infer<typeof failureSchema>;

/** The form of an answer. */
export const answerSchema = z.union([
  z.object({ failure: failureSchema }),
  z.object({ value: z.record(z.string(), z.unknown()) }),
]);
