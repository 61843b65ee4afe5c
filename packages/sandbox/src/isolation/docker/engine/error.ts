// The one error that leaves the engine client, so that callers decide on a kind and never on the text of a message.

/**
 * What went wrong between us and the engine.
 *
 * - `unreachable`: nothing listens on the socket
 * - `refused`: the socket is there and we may not use it
 * - `timeout`: no answer within the deadline
 * - `aborted`: given up on our side: the signal, `close()`, or the source of an upload failed
 * - `status`: the engine answered and said no
 * - `protocol`: the answer is not what the Engine API promises
 * - `disconnected`: the connection ended before the answer did; whether the engine did the work is unknown
 */
export type EngineErrorKind =
  'unreachable' | 'refused' | 'timeout' | 'aborted' | 'status' | 'protocol' | 'disconnected';

/** What an {@link EngineError} is made of. */
export interface EngineErrorDetails {
  readonly kind: EngineErrorKind;
  readonly operation: string;
  /** One clause for people; the operation is put in front of it. */
  readonly detail: string;
  readonly status?: number;
  readonly engineMessage?: string;
  readonly cause?: unknown;
}

/** A failed conversation with the engine. */
export class EngineError extends Error {
  override readonly name = 'EngineError';
  readonly kind: EngineErrorKind;
  /** Method and path without version and query, such as `POST /containers/create`. */
  readonly operation: string;
  /** The HTTP status; absent when the failure was reported inside a stream that had begun well. */
  readonly status: number | undefined;
  /** The engine's own words, unchanged: treat them as untrusted text. */
  readonly engineMessage: string | undefined;

  constructor(details: EngineErrorDetails) {
    super(
      `${details.operation}: ${details.detail}`,
      details.cause === undefined ? undefined : { cause: details.cause },
    );
    this.kind = details.kind;
    this.operation = details.operation;
    this.status = details.status;
    this.engineMessage = details.engineMessage;
  }
}

/** Whether asking again later may help. A refusal of what was asked (4xx) never becomes an acceptance. */
export function isTransient(error: unknown): boolean {
  if (!(error instanceof EngineError)) return false;
  if (error.kind === 'status') return error.status !== undefined && error.status >= 500;
  return error.kind === 'unreachable' || error.kind === 'timeout' || error.kind === 'disconnected';
}

/** Whether the engine may have done what it was asked although it did not say so: an error of its own can come after the work. */
export function mayHaveBeenDone(error: unknown): boolean {
  if (!(error instanceof EngineError)) return false;
  if (error.kind === 'status') return error.status !== undefined && error.status >= 500;
  return error.kind !== 'unreachable' && error.kind !== 'refused';
}

/** Whether the engine said that the thing asked about does not exist. */
export function isNotFound(error: unknown): boolean {
  return error instanceof EngineError && error.status === 404;
}

const kindOfCode: Readonly<Record<string, readonly [EngineErrorKind, string]>> = {
  ENOENT: ['unreachable', 'there is no engine socket'],
  ECONNREFUSED: ['unreachable', 'nothing listens on the engine socket'],
  ENOTSOCK: ['unreachable', 'the engine socket is not a socket'],
  EACCES: ['refused', 'no permission to use the engine socket'],
  EPERM: ['refused', 'no permission to use the engine socket'],
};

/** Says what an error of the transport means; an EngineError passes unchanged, so the first reason given is the one reported. */
export function classifyTransportError(cause: unknown, operation: string): EngineError {
  if (cause instanceof EngineError) return cause;
  const code = codeOf(cause);
  const known = kindOfCode[code];
  if (known) return new EngineError({ kind: known[0], operation, detail: `${known[1]} (${code})`, cause });
  if (code.startsWith('HPE_')) {
    return new EngineError({ kind: 'protocol', operation, detail: `the answer is not HTTP (${code})`, cause });
  }
  const reason = code === '' ? '' : ` (${code})`;
  return new EngineError({ kind: 'disconnected', operation, detail: `the connection ended early${reason}`, cause });
}

function codeOf(cause: unknown): string {
  if (typeof cause !== 'object' || cause === null || !('code' in cause)) return '';
  return typeof cause.code === 'string' ? cause.code : '';
}
