// Wire format of the E2B server: bodies with limits, the JSON of Connect and its envelopes, forms, and refusals in E2B’s shape.

import type { IncomingMessage, ServerResponse } from 'node:http';
import { promisify } from 'node:util';
import { createGunzip, gunzip } from 'node:zlib';
import { AcodeError } from '@acode/sandbox';
import { FLEET_ERRORS } from '../errors.ts';

const MEBIBYTE = 1024 ** 2;
/** Largest body in JSON; what is written to a process comes in one. */
export const MAX_JSON_BYTES = 4 * MEBIBYTE;
/** Largest form of files, which is held in memory. */
export const MAX_FORM_BYTES = 64 * MEBIBYTE;
/** Largest file that is streamed in. */
export const MAX_UPLOAD_BYTES = 1024 * MEBIBYTE;
const MAX_HELD_BYTES = 256 * MEBIBYTE;
const STREAM = { 'content-type': 'application/connect+json' };
const HEAD_BYTES = 5;
const END_STREAM = 2;
const STALLED_MS = 60_000;

const inflate = promisify(gunzip);

/** Codes of the Connect protocol that this server uses. */
type ConnectCode =
  | 'canceled'
  | 'invalid_argument'
  | 'deadline_exceeded'
  | 'not_found'
  | 'already_exists'
  | 'permission_denied'
  | 'resource_exhausted'
  | 'unimplemented'
  | 'internal'
  | 'unavailable'
  | 'unauthenticated';

/** A refusal, for both protocols. */
export interface Refusal {
  /** Status of an HTTP response. */
  readonly status: number;
  /** Code of a Connect response. */
  readonly code: ConnectCode;
  /** What happened, and what to do next. */
  readonly message: string;
  /** The error of acode; null for errors of files and of this program. */
  readonly acode: { readonly code: string; readonly hint: string } | null;
}

type Kind = readonly [number, ConnectCode];

const INVALID: Kind = [400, 'invalid_argument'];
const FULL: Kind = [507, 'resource_exhausted'];
const LATE: Kind = [504, 'deadline_exceeded'];
const HIDDEN = 'The server could not do it. What it printed has the reason: ask its operator.';
const CANCELLED: Kind = [499, 'canceled'];
const INTERNAL: Kind = [500, 'internal'];

// Errors about what a caller asked for. What others say names this machine’s paths, and is the operator’s.
const KINDS: ReadonlyMap<string, Kind> = new Map<string, Kind>([
  ['ACODE-FLT-041', [401, 'unauthenticated']],
  ['ACODE-FLT-042', [404, 'not_found']],
  ['ACODE-FLT-043', INVALID],
  ['ACODE-FLT-044', [413, 'resource_exhausted']],
  ['ACODE-FLT-045', [429, 'resource_exhausted']],
  ['ACODE-FLT-046', [501, 'unimplemented']],
  ['ACODE-FLT-047', [421, 'permission_denied']],
  ['ACODE-SBX-007', LATE],
  ['ACODE-SBX-014', [499, 'canceled']],
  ['ACODE-SBX-016', INVALID],
  ['ACODE-SBX-017', INVALID],
  ['ACODE-SBX-025', [404, 'unavailable']],
  ['ACODE-SBX-026', [404, 'unavailable']],
  ['ACODE-CTN-009', [429, 'resource_exhausted']],
  ['ACODE-CTN-012', [404, 'unavailable']],
  ['ENOENT', [404, 'not_found']],
  ['EEXIST', [409, 'already_exists']],
  ['EACCES', [403, 'permission_denied']],
  ['EPERM', [403, 'permission_denied']],
  ['EROFS', [403, 'permission_denied']],
  ['ENOSPC', FULL],
  ['EDQUOT', FULL],
  ...[
    'EISDIR',
    'ENOTDIR',
    'EINVAL',
    'ENAMETOOLONG',
    'ELOOP',
    'ENOTEMPTY',
    'ERR_FS_EISDIR',
    'ERR_INVALID_ARG_VALUE',
  ].map(code => [code, INVALID] as const),
]);

/** What a caller is told of an error. Of what is neither acode’s nor a file’s, nothing but that it happened. */
export function refusalOf(error: unknown): Refusal {
  const known = error instanceof AcodeError ? KINDS.get(String(error.code)) : KINDS.get(errnoOf(error));
  const [status, code] = isLate(error) ? LATE : (known ?? (isCancelled(error) ? CANCELLED : INTERNAL));
  if (error instanceof AcodeError) {
    const own = String(error.code);
    const { hint, message } = error;
    const told = known
      ? { message: `${message} ${hint} (${own})`, hint }
      : { message: `${HIDDEN} (${own})`, hint: HIDDEN };
    return { status, code, message: told.message, acode: { code: own, hint: told.hint } };
  }
  return { status, code, message: messageFor(error, known !== undefined, status), acode: null };
}

function messageFor(error: unknown, isFile: boolean, status: number): string {
  if (isFile && error instanceof Error) return error.message;
  return status === 500 ? HIDDEN : 'The call was cancelled, or took longer than it may.';
}

function errnoOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';
}

// A deadline comes as itself, or as the cause of a cancellation.
function isLate(error: unknown): boolean {
  return error instanceof Error && (error.name === 'TimeoutError' || isLate(error.cause));
}

function isCancelled(error: unknown): boolean {
  return error instanceof Error && error.name === 'AbortError';
}

/** Refuses a field of a request. */
export function invalid(
  field: string,
  reason: string,
  remedy = `Correct ${field}. \`docs/e2b.md\` lists what is taken.`,
): Error {
  return FLEET_ERRORS.create('ACODE-FLT-043', { field, reason, remedy });
}

/** Sends JSON. */
export function sendJson(response: ServerResponse, status: number, value: unknown): void {
  if (response.headersSent || response.destroyed) return;
  const body = Buffer.from(JSON.stringify(value));
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': body.length }).end(body);
}

/** Sends a refusal of a REST call or of a file. */
export function sendRefusal(response: ServerResponse, { status, message, acode }: Refusal): void {
  sendJson(response, status, { code: status, message, ...(acode ? { acode } : {}) });
}

/** Sends a refusal of a Connect call that has one answer. */
export function sendConnectRefusal(response: ServerResponse, refusal: Refusal): void {
  sendJson(response, refusal.status, connectError(refusal));
}

/** Sends a refusal of a Connect call whose answer is a stream: clients read the reason from its end, whatever the status. */
export function sendStreamRefusal(response: ServerResponse, refusal: Refusal): void {
  if (response.headersSent || response.destroyed) return;
  response.writeHead(200, STREAM).end(envelope(END_STREAM, { error: connectError(refusal) }));
}

function connectError({ code, message, acode }: Refusal): object {
  return { code, message, ...(acode ? { acode } : {}) };
}

/** Memory that bodies hold together: many callers could otherwise fill it, each within its limit. */
export class HeldBytes {
  #held = 0;

  /** Takes room for more; refuses when there is none. */
  take(bytes: number): void {
    if (this.#held + bytes > MAX_HELD_BYTES)
      throw FLEET_ERRORS.create('ACODE-FLT-045', {
        what: 'bytes of requests under way',
        limit: MAX_HELD_BYTES,
        remedy: 'Try again in a moment, or stream large files (`useOctetStream`).',
      });
    this.#held += bytes;
  }

  /** Gives room back. */
  give(bytes: number): void {
    this.#held -= bytes;
  }
}

/** Reads a body, decompressed, up to a limit, and gives it to `use`; its memory is counted until that is done. */
export async function withBody<Value>(
  request: IncomingMessage,
  { maxBytes, held }: { readonly maxBytes: number; readonly held: HeldBytes },
  use: (body: Buffer) => Promise<Value>,
): Promise<Value> {
  let counted = 0;
  const count = (bytes: number): void => {
    held.take(bytes);
    counted += bytes;
  };
  try {
    const body = await read(request, maxBytes, count);
    const text = isCompressed(request) ? await decompressed(body, maxBytes, count) : body;
    return await use(text);
  } finally {
    held.give(counted);
  }
}

async function read(request: IncomingMessage, maxBytes: number, count: (bytes: number) => void): Promise<Buffer> {
  checkLength(request, maxBytes);
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of piecesOf(request)) {
    bytes += piece.length;
    if (bytes > maxBytes) throw tooLarge(bytes, maxBytes);
    count(piece.length);
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

async function* piecesOf(request: AsyncIterable<unknown>): AsyncGenerator<Buffer> {
  for await (const piece of request) if (Buffer.isBuffer(piece)) yield piece;
}

async function decompressed(body: Buffer, maxBytes: number, count: (bytes: number) => void): Promise<Buffer> {
  try {
    const text = await inflate(body, { maxOutputLength: maxBytes });
    count(text.length);
    return text;
  } catch (cause) {
    if (cause instanceof AcodeError) throw cause;
    if (cause instanceof Error && 'code' in cause && cause.code === 'ERR_BUFFER_TOO_LARGE')
      throw tooLarge(maxBytes + 1, maxBytes);
    throw invalid('the body', 'is not gzip');
  }
}

/** The body as a stream, decompressed; it fails beyond the limit. */
export async function* streamedBody(request: IncomingMessage, maxBytes: number): AsyncGenerator<Buffer> {
  checkLength(request, maxBytes);
  const source = isCompressed(request) ? request.pipe(createGunzip()) : request;
  let bytes = 0;
  for await (const piece of piecesOf(source)) {
    bytes += piece.length;
    if (bytes > maxBytes) throw tooLarge(bytes, maxBytes);
    yield piece;
  }
}

function checkLength({ headers }: IncomingMessage, maxBytes: number): void {
  const length = Number(headers['content-length'] ?? 0);
  if (length > maxBytes) throw tooLarge(length, maxBytes);
}

function tooLarge(bytes: number, maxBytes: number): Error {
  return FLEET_ERRORS.create('ACODE-FLT-044', { bytes, maxBytes });
}

function isCompressed({ headers }: IncomingMessage): boolean {
  const encoding = headers['content-encoding'];
  if (encoding === undefined || encoding === 'identity') return false;
  if (encoding === 'gzip') return true;
  throw invalid('Content-Encoding', 'is neither gzip nor identity');
}

// Keys of these are the caller’s own names.
const VERBATIM: ReadonlySet<string> = new Set(['envs', 'envVars', 'metadata']);

/** A JSON message, whose fields may be written in both ways that protobuf allows: `modifiedTime` and `modified_time`. */
export function messageOf(body: Buffer): unknown {
  if (body.length === 0) return {};
  try {
    return camel(JSON.parse(body.toString('utf8')));
  } catch {
    throw invalid('the body', 'is not JSON');
  }
}

function camel(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(camel);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => {
      const name = key.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
      return [name, VERBATIM.has(name) ? one : camel(one)];
    }),
  );
}

/** The one message of a call whose answer is a stream. */
export function envelopedMessage(body: Buffer): unknown {
  if (body.length < HEAD_BYTES) throw invalid('the body', 'is not a message of the Connect protocol');
  const flags = body.readUInt8(0);
  const length = body.readUInt32BE(1);
  if (flags !== 0 || body.length !== HEAD_BYTES + length)
    throw invalid('the body', 'is not one plain message of the Connect protocol');
  return messageOf(body.subarray(HEAD_BYTES));
}

function envelope(flags: number, value: unknown): Buffer {
  const text = Buffer.from(JSON.stringify(value));
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(text.length, 1);
  return Buffer.concat([head, text]);
}

/** The answer of a Connect call, message by message. A reader who takes nothing for a minute is cut off. */
export class MessageStream {
  /** Aborted when the reader is gone. */
  readonly gone: AbortSignal;
  readonly #response: ServerResponse;
  readonly #ping: NodeJS.Timeout;

  /** Begins the answer; `ping` is sent whenever so many milliseconds have passed. */
  constructor(response: ServerResponse, ping: { readonly everyMs: number; readonly message: object }) {
    this.#response = response;
    const gone = new AbortController();
    this.gone = gone.signal;
    this.#ping = setInterval(() => void this.send(ping.message), ping.everyMs);
    response.once('close', () => {
      clearInterval(this.#ping);
      gone.abort();
    });
    if (response.destroyed) gone.abort();
    response.writeHead(200, STREAM);
    response.flushHeaders();
  }

  /** Sends a message; resolves when there is room for another, or the reader is gone. */
  send(message: object): Promise<void> {
    return written(this.#response, envelope(0, message));
  }

  /** Ends the answer. */
  end(refusal?: Refusal): void {
    clearInterval(this.#ping);
    if (this.#response.destroyed || this.#response.writableEnded) return;
    this.#response.end(envelope(END_STREAM, refusal ? { error: connectError(refusal) } : {}));
  }
}

/** Writes, and waits for room. Never fails: a reader who is gone, or takes nothing, ends the response. */
export function written(response: ServerResponse, bytes: Uint8Array): Promise<void> {
  if (response.destroyed || response.writableEnded || response.write(bytes)) return Promise.resolve();
  return new Promise(resolve => {
    const stalled = setTimeout(() => response.destroy(), STALLED_MS);
    const settle = (): void => {
      clearTimeout(stalled);
      response.off('drain', settle).off('close', settle);
      resolve();
    };
    response.once('drain', settle).once('close', settle);
  });
}

/** A file of a form. */
export interface FormFile {
  /** Its path, as the form has it. */
  readonly path: string;
  readonly content: Buffer;
}

const MAX_FILES = 1000;
const CRLF = '\r\n';

/** The files of a form (`multipart/form-data`), by their names as they are: a path is not shortened to its last part. */
export function filesOfForm(body: Buffer, contentType: string): FormFile[] {
  const [, quoted, bare] = /;\s*boundary=(?:"([^"]{1,70})"|([^;\s"]{1,70}))/i.exec(contentType) ?? [];
  const boundary = quoted ?? bare;
  if (boundary === undefined) throw invalid('Content-Type', 'names no boundary of the form');
  const between = Buffer.from(`${CRLF}--${boundary}`);
  const files: FormFile[] = [];
  // The first boundary has no line before it.
  const first = Buffer.from(`--${boundary}`);
  if (!body.subarray(0, first.length).equals(first)) throw invalid('the form', 'does not begin with its boundary');
  for (let at = first.length; ;) {
    if (body.subarray(at, at + 2).toString('latin1') === '--') return files;
    const heads = body.indexOf(CRLF + CRLF, at);
    const end = heads === -1 ? -1 : body.indexOf(between, heads + 4 - CRLF.length);
    if (end === -1) throw invalid('the form', 'is cut off');
    const content = body.subarray(Math.min(heads + 4, end), end);
    files.push({ path: nameIn(body.subarray(at, heads).toString('utf8')), content });
    if (files.length > MAX_FILES) throw invalid('the form', `has more than ${MAX_FILES} files`);
    at = end + between.length;
  }
}

function nameIn(heads: string): string {
  const disposition = heads.split(CRLF).find(line => /^content-disposition:/i.test(line)) ?? '';
  const [, name] = /;\s*filename="([^"]*)"/i.exec(disposition) ?? [];
  return (name ?? '').replaceAll('%22', '"').replaceAll('%0D', '\r').replaceAll('%0A', '\n');
}
