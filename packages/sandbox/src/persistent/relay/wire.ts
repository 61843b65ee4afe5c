// Protocol between two processes of one user that use the same sandbox’s commands: lines of JSON.

import type { Socket } from 'node:net';
import * as z from 'zod';
import { ERRORS } from '../../contract/error-table.ts';
import { AcodeError } from '../../contract/errors.ts';
import type { ErrorCode, ErrorContexts } from '../../contract/error-table.ts';
import type { RunResult, WebRunResult } from '../../contract/result.ts';
import { decodeOutput } from '../../run/output/capture.ts';
import type { Capture } from '../../run/output/capture.ts';

/** The version of everything below: ends that do not agree on it do not talk. */
const VERSION = 1;

/** The most that one line carries of a stream. */
export const PIECE = 64 * 1024;

/** How long the other end may read nothing: it reads independently of its user, unless it is stopped. */
export const TAKEN_MS = 60_000;

const id = z.int().min(1);
const command = z.union([z.string(), z.array(z.string()).readonly()]);

/** A command as a list shows it. */
const info = z.object({ pid: z.int(), command, cwd: z.string(), startedAt: z.string() });

/** How a conversation begins. */
export const opening = z.discriminatedUnion('ask', [
  z.strictObject({ version: z.literal(VERSION), ask: z.literal('list') }),
  z.strictObject({ version: z.literal(VERSION), ask: z.literal('connect'), pid: z.int() }),
  z.strictObject({ version: z.literal(VERSION), ask: z.literal('output'), pid: z.int() }),
]);

/** Requests of a client that is connected to a command; each is answered by its number. */
export const wish = z.discriminatedUnion('do', [
  z.strictObject({ id, do: z.literal('write'), data: z.base64() }),
  z.strictObject({ id, do: z.literal('closeStdin') }),
  z.strictObject({ id, do: z.literal('kill'), signal: z.string() }),
]);

// Both ends are this library, and of one user: what these are was said by the version.
const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null;
const context = z.custom<ErrorContexts[ErrorCode]>(isObject);
const result = z.custom<RunResult>(isObject);
export const failure = z.object({ code: z.string(), message: z.string(), context });
const port = z.object({ container: z.int(), host: z.int(), protocol: z.enum(['tcp', 'udp']) });

/** What the process that has the commands says. The result of a command is what that process makes of it. */
export const answer = z.discriminatedUnion('is', [
  z.object({ is: z.literal('list'), commands: z.array(info) }),
  z.object({ is: z.literal('connected'), ports: z.array(port) }),
  z.object({ is: z.literal('none') }),
  z.object({
    is: z.literal('output'),
    stdout: z.base64(),
    stderr: z.base64(),
    dropped: z.object({ stdout: z.int(), stderr: z.int() }),
  }),
  z.object({ is: z.enum(['stdout', 'stderr']), data: z.base64() }),
  z.object({ is: z.literal('done'), id, failure: failure.optional() }),
  z.object({ is: z.literal('result'), result }),
  z.object({ is: z.literal('failed'), failure }),
]);

/** How a conversation begins. */
export type Opening = z.infer<typeof opening>;
/** What is wanted of a command. */
export type Wish = z.infer<typeof wish>;
/** What is said of a command. */
export type Answer = z.infer<typeof answer>;
type Failure = z.infer<typeof failure>;
type Outcome = RunResult | WebRunResult;

/** The first line of a conversation. */
export const asking = {
  list: { version: VERSION, ask: 'list' } satisfies Opening,
  connect: (pid: number) => ({ version: VERSION, ask: 'connect', pid }) satisfies Opening,
  output: (pid: number) => ({ version: VERSION, ask: 'output', pid }) satisfies Opening,
};

const BYTES = '$bytes';

/** One line; bytes anywhere in it stay bytes. */
export function line(said: Opening | Wish | Answer): string {
  const whole = JSON.stringify(said, function replace(this: Record<string, unknown>, key: string, value: unknown) {
    const own = this[key];
    return own instanceof Uint8Array ? { [BYTES]: Buffer.from(own).toString('base64') } : value;
  });
  return `${whole}\n`;
}

function parsed(text: string): unknown {
  return JSON.parse(text, (_, value: unknown) => {
    const bytes = typeof value === 'object' && value !== null && BYTES in value ? value[BYTES] : null;
    return typeof bytes === 'string' ? Uint8Array.from(Buffer.from(bytes, 'base64')) : value;
  });
}

/** Every line of a connection, until it ends; throws where one is longer than `most`, or no JSON. */
export async function* lines(socket: Socket, most: number): AsyncGenerator<unknown, void, undefined> {
  let pieces: Buffer[] = [];
  let length = 0;
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    let from = 0;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
      yield parsed(Buffer.concat([...pieces, chunk.subarray(from, at)]).toString('utf8'));
      pieces = [];
      length = 0;
      from = at + 1;
    }
    length += chunk.length - from;
    if (length > most) throw new Error(`a line of more than ${most} bytes`);
    if (from < chunk.length) pieces.push(chunk.subarray(from));
  }
}

/** Says something, and waits while the other end does not take it; hangs up where that is too long. */
export async function say(socket: Socket, said: Opening | Wish | Answer): Promise<void> {
  if (!socket.writable) throw new Error('the connection has ended');
  if (socket.write(line(said))) return;
  await new Promise<void>((resolve, reject) => {
    const late = setTimeout(() => void socket.destroy(), TAKEN_MS).unref();
    const settle = (): void => {
      clearTimeout(late);
      socket.off('drain', settle).off('close', settle);
      if (socket.writable) resolve();
      else reject(new Error('the connection has ended'));
    };
    socket.once('drain', settle).once('close', settle);
  });
}

/** An error as the other end can make it again. */
export function packed(error: unknown): Failure {
  if (isOurs(error)) {
    const { code, message, context: full } = error;
    const short = 'result' in full && full.result ? { ...full, result: withoutOutput(full.result) } : full;
    return { code, message, context: short };
  }
  return { code: '', message: error instanceof Error ? error.message : String(error), context: {} };
}

function isOurs(error: unknown): error is AcodeError<ErrorCode> {
  return error instanceof AcodeError;
}

/** The error that the other end had; `printed` is what the command had printed. */
export function unpacked({ code, message, context: circumstances }: Failure, printed?: Printed): Error {
  const known = Object.keys(ERRORS).find((one): one is ErrorCode => one === code);
  if (!known) return new Error(message);
  if (!printed || !('result' in circumstances) || !circumstances.result) return new AcodeError(known, circumstances);
  return new AcodeError(known, { ...circumstances, result: withOutput(circumstances.result, printed) });
}

/** What a command had printed, up to its limit. */
export interface Printed {
  readonly stdout: Pick<Capture, 'bytes'>;
  readonly stderr: Pick<Capture, 'bytes'>;
}

/**
 * A result without what was printed, which the other end has read by then. As text in one line it would be up to six times as
 * long, as the command likes.
 */
export function withoutOutput<Result extends Outcome>(whole: Result): Result {
  const bare = { ...whole, stdout: '', stderr: '' };
  delete bare.stdoutBytes;
  delete bare.stderrBytes;
  return bare;
}

/** The result with what was printed. */
export function withOutput<Result extends Outcome>(bare: Result, printed: Printed): Result {
  const stdout = decodeOutput(printed.stdout.bytes(), bare.dropped.stdout > 0);
  const stderr = decodeOutput(printed.stderr.bytes(), bare.dropped.stderr > 0);
  return {
    ...bare,
    stdout: stdout.text,
    stderr: stderr.text,
    ...(stdout.bytes ? { stdoutBytes: stdout.bytes } : {}),
    ...(stderr.bytes ? { stderrBytes: stderr.bytes } : {}),
  };
}
