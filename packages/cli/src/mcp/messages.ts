// JSON-RPC error answers to input that is not a message, or not allowed there.

import type { AcodeError } from '@acode/sandbox';
import { oneLine } from '../terminal/text.ts';
import { failureOf } from './failure.ts';
import type { ToolFailure } from './failure.ts';

/** The most that one message may have, in bytes. */
export const MAX_MESSAGE = 4 * 1024 ** 2;

/** The code of JSON-RPC for text that is not JSON. */
export const NOT_JSON = -32_700;
/** The code of JSON-RPC for JSON that is no request. */
export const NOT_A_REQUEST = -32_600;
/** The code that servers of the protocol use for refusals of their own. */
export const REFUSED = -32_000;

/** An error reply. */
export interface Refusal {
  readonly jsonrpc: '2.0';
  readonly id: string | number | null;
  readonly error: { readonly code: number; readonly message: string; readonly data: ToolFailure };
}

/** The reply that refuses something. It carries the id of what it refuses, where that has one. */
export function refusalOf(code: number, error: AcodeError, about?: unknown): Refusal {
  return {
    jsonrpc: '2.0',
    id: idOf(about),
    error: { code, message: oneLine(`${error.message} ${error.hint}`), data: failureOf(error) },
  };
}

function idOf(about: unknown): string | number | null {
  if (typeof about !== 'object' || about === null || !('id' in about)) return null;
  const { id } = about;
  if (typeof id === 'string') return id.slice(0, 256);
  return typeof id === 'number' && Number.isFinite(id) ? id : null;
}
