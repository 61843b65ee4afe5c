// Protocol of the Engine API: versions, replies, and the one error that leaves the client, so that callers decide on a kind and never on
// the text of a message.

import * as z from 'zod';

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
  /** What went wrong, without the operation. */
  readonly detail: string;
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
    this.detail = details.detail;
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

// Chooses the API version that both sides speak.

/** A version of the Engine API, such as `1.41`. */
export type ApiVersion = `${number}.${number}`;

const oldest: ApiVersion = '1.41';
const newest: ApiVersion = '1.51';

/** Whether `version` is at least `minimum`. Compared as numbers: as text, 1.9 would be newer than 1.41. */
export function atLeast(version: ApiVersion, minimum: ApiVersion): boolean {
  const [major, minor] = numbersOf(version);
  const [minimumMajor, minimumMinor] = numbersOf(minimum);
  return major === minimumMajor ? minor >= minimumMinor : major > minimumMajor;
}

/** The version to use with an engine that offers `offered`: its own newest or ours, whichever is older. */
export function negotiate(offered: unknown, operation: string): ApiVersion {
  if (!isApiVersion(offered)) {
    throw new EngineError({
      kind: 'protocol',
      operation,
      detail: 'the answer names no API version; this is no Docker Engine API',
    });
  }
  if (!atLeast(offered, oldest)) {
    const detail = `the engine speaks API ${offered}, and at least ${oldest} (Docker 20.10) is needed`;
    throw new EngineError({ kind: 'protocol', operation, detail });
  }
  return atLeast(offered, newest) ? newest : offered;
}

function isApiVersion(value: unknown): value is ApiVersion {
  return typeof value === 'string' && /^\d{1,4}\.\d{1,4}$/.test(value);
}

function numbersOf(version: ApiVersion): readonly [number, number] {
  const [major = '', minor = ''] = version.split('.');
  return [Number(major), Number(minor)];
}

// Reads what the engine answered: errors become EngineErrors, documents are capped and checked against a schema.

const errorReplyCap = 64 * 1024;
const engineMessageCap = 4096;

/** The status of an answer, and the call it answers. */
export interface Verdict {
  readonly operation: string;
  readonly status: number;
  readonly expect: readonly number[] | undefined;
}

/** Whether the status is one the caller takes for success; without a list, any 2xx. */
export function isExpected({ status, expect }: Verdict): boolean {
  return expect ? expect.includes(status) : status >= 200 && status < 300;
}

/** The error for an unexpected answer, with the engine's own message where it can be read. */
export async function refusalOf(verdict: Verdict, body: AsyncIterable<Buffer> | undefined): Promise<EngineError> {
  const { operation, status } = verdict;
  const text = body ? await readAll(body, errorReplyCap, operation).catch(ignoreUnreadable) : '';
  const engineMessage = messageOf(text).slice(0, engineMessageCap);
  const detail = engineMessage === '' ? `status ${status}` : `status ${status}: ${engineMessage}`;
  return new EngineError({ kind: 'status', operation, detail, status, engineMessage });
}

/** The status has already said that the call failed; a text that cannot be read must not hide it. A timeout or an abort is still one. */
function ignoreUnreadable(error: unknown): string {
  if (error instanceof EngineError && (error.kind === 'aborted' || error.kind === 'timeout')) throw error;
  return '';
}

const errorReply = z.lazy(() => z.looseObject({ message: z.string() }));

function messageOf(text: string): string {
  try {
    const parsed = errorReply.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data.message : text;
  } catch {
    return text;
  }
}

/** The whole answer as text; more than `cap` bytes are a `protocol` error. */
export async function readAll(body: AsyncIterable<Buffer>, cap: number, operation: string): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > cap) {
      throw new EngineError({ kind: 'protocol', operation, detail: `the answer is longer than ${cap} bytes` });
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** Parses a JSON document of the engine; anything but what the schema allows is a `protocol` error. */
export function parseJson<T>(text: string, schema: z.ZodType<T>, operation: string): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new EngineError({ kind: 'protocol', operation, detail: 'the answer is not JSON', cause });
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const detail = `the answer has another shape than expected: ${z.prettifyError(parsed.error)}`;
  throw new EngineError({ kind: 'protocol', operation, detail, cause: parsed.error });
}

// Reads the engine's streams of JSON documents, one per line, as they come.

const lineCap = 1024 * 1024;
const newline = 0x0a;

/** One document and the text it was parsed from. */
interface JsonLine<T> {
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
