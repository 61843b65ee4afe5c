// Errors over a wire: an error is written as data (`AcodeError.toJSON`) and made again from it on the other side.

import * as z from 'zod';
import { AcodeError, isErrorCode } from './errors.ts';
import type { ErrorCode, ErrorContexts } from './error-table.ts';

const MAX_CAUSES = 10;
// The fields of a result that hold bytes, which JSON has as `{ base64 }`.
const BYTES: ReadonlySet<string> = new Set(['stdoutBytes', 'stderrBytes']);

const wireSchema = z.object({
  code: z.string(),
  context: z.record(z.string(), z.unknown()),
  correlationId: z.string().optional(),
  cause: z.unknown().optional(),
});
const causeSchema = z.object({ name: z.string(), message: z.string() });

/**
 * The error that another process wrote as JSON; null where the value is not one, or has a code that this version does not
 * know. Causes that are not errors of acode keep their name and message.
 *
 * @example
 * const received = errorFromJson(JSON.parse(JSON.stringify(new AcodeError('ACODE-SBX-009', { image: 'node:20' }))));
 * console.error(received?.code, received?.hint);
 */
export function errorFromJson(value: unknown): AcodeError | null {
  return madeAgain(value, MAX_CAUSES);
}

function madeAgain(value: unknown, depth: number): AcodeError | null {
  const found = wireSchema.safeParse(value);
  if (!found.success || !isErrorCode(found.data.code)) return null;
  const { code, context, correlationId, cause } = found.data;
  const details = withBytes(context);
  if (!isContext(details)) return null;
  try {
    const error = new AcodeError(code, details, causeOption(cause, depth - 1));
    if (correlationId !== undefined) error.correlationId = correlationId;
    return error;
  } catch {
    return null;
  }
}

function causeOption(value: unknown, depth: number): { cause?: unknown } {
  if (value === undefined || depth < 0) return {};
  const own = madeAgain(value, depth);
  if (own) return { cause: own };
  const found = causeSchema.safeParse(value);
  if (!found.success) return {};
  const { name, message } = found.data;
  return { cause: Object.assign(new Error(message), { name }) };
}

// The fields are not compared one by one: one that message or hint needs and that is missing makes the rendering throw.
function isContext(value: unknown): value is ErrorContexts[ErrorCode] {
  return typeof value === 'object' && value !== null;
}

function withBytes(value: unknown, name = ''): unknown {
  if (Array.isArray(value)) return value.map(item => withBytes(item));
  if (typeof value !== 'object' || value === null) return value;
  if (BYTES.has(name) && 'base64' in value && typeof value.base64 === 'string')
    return Uint8Array.from(atob(value.base64), character => character.charCodeAt(0));
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withBytes(item, key)]));
}
