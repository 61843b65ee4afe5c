// Protocol between a client and a persistent sandbox: calls that a key of the tenant has signed, and answers that the worker signs.

import type { RunResult } from '@acode/sandbox';
import * as z from 'zod';
import { MAX_BLOB_BYTES } from '../engine/engine.ts';
import { answerSchema, decodeFrame, encodeFrame } from '../engine/frame.ts';
import type { Frame } from '../engine/frame.ts';
import { checkedKey } from '../engine/names.ts';
import type { TaskKey } from '../engine/names.ts';
import { FLEET_ERRORS } from '../errors.ts';
import { hashOf, signed, unverified, verified } from '../tasks/signature.ts';
import type { KeyPair } from '../tasks/signature.ts';
import { commandSchema, cwdSchema, envSchema } from '../tasks/spec.ts';

/** The most bytes of input, output or a file in one message. */
export const PART_BYTES = 256 * 1024;
/** How old a signed call may be. A call that is repeated within this time has the same number, and is done once. */
export const MAX_AGE_MS = 10 * 60_000;

const number = z.uuid();
const position = z.int().nonnegative();
const signalSchema = z.string().regex(/^SIG[A-Z0-9]{1,10}$/);
const path = z.string().min(1).max(4096);

/** Starts a command. */
interface BeginCall {
  /** Which call it is. */
  readonly verb: 'begin';
  /** Its number, by which the other calls name it. */
  readonly number: string;
  /** The command. */
  readonly command: string | readonly string[];
  /** Its working directory, relative to the workspace. */
  readonly cwd?: string | undefined;
  /** Its environment, beside that of the sandbox. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** Its time limit. */
  readonly timeoutMs?: number | undefined;
  /** Whether its standard input stays open for `write`. */
  readonly input: boolean;
}

/** Asks what a command prints; waits for the next piece, or for its end. */
interface FollowCall {
  /** Which call it is. */
  readonly verb: 'follow';
  /** The command. */
  readonly number: string;
  /** The last piece that the caller has. Pieces up to that one are forgotten. */
  readonly after: number;
}

/** Writes to a command; the bytes follow. The answer says how many it has taken. */
interface WriteCall {
  /** Which call it is. */
  readonly verb: 'write';
  /** The command. */
  readonly number: string;
  /** How many bytes were written before. */
  readonly at: number;
  /** Whether these are the last ones. */
  readonly end: boolean;
}

/** Sends a signal to a command. */
interface SignalCall {
  /** Which call it is. */
  readonly verb: 'signal';
  /** The command. */
  readonly number: string;
  /** The signal; null cancels the command. */
  readonly signal: string | null;
}

/** Sends a part of a file, which is written when all of it is there. The answer says how many bytes there are. */
interface PutCall {
  /** Which call it is. */
  readonly verb: 'put';
  /** The number of the transfer. */
  readonly number: string;
  /** The file. */
  readonly path: string;
  /** Its size. */
  readonly size: number;
  /** Where the part begins. */
  readonly at: number;
}

/** Asks for a part of a file. */
interface GetCall {
  /** Which call it is. */
  readonly verb: 'get';
  /** The number of the transfer. */
  readonly number: string;
  /** The file. */
  readonly path: string;
  /** Where the part begins. */
  readonly at: number;
}

/** What a client asks of a sandbox. Whatever changes something has a number of its own: said twice, it is done once. */
export type ExecCall = BeginCall | FollowCall | WriteCall | SignalCall | PutCall | GetCall;

const callSchema: z.ZodType<ExecCall> = z.discriminatedUnion('verb', [
  z.strictObject({
    verb: z.literal('begin'),
    number,
    command: commandSchema,
    cwd: cwdSchema.optional(),
    env: envSchema.optional(),
    timeoutMs: z.int().positive().optional(),
    input: z.boolean(),
  }),
  z.strictObject({ verb: z.literal('follow'), number, after: position }),
  z.strictObject({ verb: z.literal('write'), number, at: position, end: z.boolean() }),
  z.strictObject({ verb: z.literal('signal'), number, signal: signalSchema.nullable() }),
  z.strictObject({ verb: z.literal('put'), number, path, size: position.max(MAX_BLOB_BYTES), at: position }),
  z.strictObject({ verb: z.literal('get'), number, path, at: position }),
]);

/** The call of one verb. */
export type CallOf<Verb extends ExecCall['verb']> = Extract<ExecCall, { verb: Verb }>;

// Written by a worker whose signature was verified, with the version of the library that it has.
const resultSchema = z.custom<RunResult>(value => typeof value === 'object' && value !== null && 'exitCode' in value);

/** What each answer has. */
export const execAnswers = {
  begin: z.object({}),
  follow: z.object({
    /** The stream and the length of each piece, in the order in which they came. */
    pieces: z.array(z.object({ stream: z.union([z.literal(1), z.literal(2)]), length: position })),
    /** The number of the last one. */
    last: position,
    /** The result of the command, once all its pieces are here. */
    result: resultSchema.optional(),
  }),
  write: z.object({ taken: position }),
  signal: z.object({}),
  put: z.object({ have: position }),
  get: z.object({ size: position }),
} as const;

/** What a handler answers: an object, and bytes behind it. */
export interface ExecAnswer {
  /** As {@link execAnswers} has it, or a failure. */
  readonly value: object;
  /** The bytes. */
  readonly bytes?: Uint8Array | undefined;
}

const envelopeSchema = z.strictObject({ envelope: z.string() });
const callBodySchema = z.strictObject({
  tenant: z.string(),
  sandbox: z.string(),
  at: z.iso.datetime(),
  bytes: z.string().nullable(),
  call: callSchema,
});
const answerBodySchema = z.strictObject({ request: z.string(), bytes: z.string().nullable(), answer: answerSchema });

/** A signed call, as it is sent. */
export function signedCall(
  { tenant, id }: TaskKey,
  call: ExecCall,
  { keys, bytes }: { readonly keys: KeyPair; readonly bytes?: Uint8Array | undefined },
): Uint8Array {
  const body = { tenant, sandbox: id, at: new Date().toISOString(), bytes: bytes ? hashOf(bytes) : null, call };
  return encodeFrame({ envelope: signed('exec', JSON.stringify(body), keys) }, bytes);
}

/** The call in a message, if one of these keys has signed exactly this one for this sandbox. Nothing of it is read before that. */
export function admittedCall(
  sandbox: TaskKey,
  message: Uint8Array,
  { keys, now }: { readonly keys: readonly string[]; readonly now: number },
): { readonly call: ExecCall; readonly bytes: Uint8Array } {
  const { tenant, id } = checkedKey(sandbox);
  const refuse = (reason: string): never => {
    throw FLEET_ERRORS.create('ACODE-FLT-052', { sandbox: id, reason });
  };
  const frame = framed(message) ?? refuse('the message is not one of this version');
  const text = verified('exec', frame.envelope, keys) ?? refuse('no registered key of this tenant has signed it');
  const body = parsed(callBodySchema, text) ?? refuse('the call is not one of this version');
  if (body.tenant !== tenant || body.sandbox !== id) refuse('it was signed for another sandbox');
  if (Math.abs(now - Date.parse(body.at)) > MAX_AGE_MS)
    refuse('it was signed too long ago, or by a clock that is wrong');
  if (!matches(frame.bytes, body.bytes)) refuse('its bytes are others than those that were signed');
  return { call: body.call, bytes: frame.bytes };
}

/** The answer to a message, signed, as it is sent. */
export function signedAnswer(message: Uint8Array, { value, bytes }: ExecAnswer, keys: KeyPair): Uint8Array {
  const body = { request: hashOf(message), bytes: bytes ? hashOf(bytes) : null, answer: value };
  return encodeFrame({ envelope: signed('answer', JSON.stringify(body), keys) }, bytes);
}

/** The answer to a message, if one of these workers has signed it for this message; absent `workers` believe anyone. */
export function verifiedAnswer(
  sandbox: string,
  message: Uint8Array,
  { answer, workers }: { readonly answer: Uint8Array; readonly workers: readonly string[] | undefined },
): { readonly answer: z.infer<typeof answerSchema>; readonly bytes: Uint8Array } {
  const refuse = (reason: string): never => {
    throw FLEET_ERRORS.create('ACODE-FLT-053', { sandbox, reason });
  };
  const frame = framed(answer) ?? refuse('it is not one of this version');
  const text = workers === undefined ? unverified(frame.envelope) : verified('answer', frame.envelope, workers);
  const body = parsed(answerBodySchema, text ?? refuse('no known worker has signed it')) ?? refuse('it cannot be read');
  if (body.request !== hashOf(message)) refuse('it was signed for another call');
  if (!matches(frame.bytes, body.bytes)) refuse('its bytes are others than the worker signed');
  return { answer: body.answer, bytes: frame.bytes };
}

function framed(message: Uint8Array): { readonly envelope: string; readonly bytes: Uint8Array } | null {
  const frame: Frame | null = decodeFrame(message);
  const found = envelopeSchema.safeParse(frame?.value);
  return frame && found.success ? { envelope: found.data.envelope, bytes: frame.bytes } : null;
}

function parsed<Value>(schema: z.ZodType<Value>, text: string): Value | null {
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}

function matches(bytes: Uint8Array, hash: string | null): boolean {
  return hash === null ? bytes.length === 0 : hashOf(bytes) === hash;
}
