// Options of E2B calls, converted to those of acode. None is ignored silently.

import { InvalidArgumentError } from './errors.ts';

/** What every call takes. */
export interface RequestOptions {
  /** How long the call itself may take. */
  requestTimeoutMs?: number;
  /** Cancels the call. */
  signal?: AbortSignal;
}

/** The name of a user inside: there is one alone. */
export interface UserOption {
  /** `user`, or nothing: commands run as the caller, and never as root. */
  user?: string;
}

const USER = 'user';

/** The names of the options that every call takes. */
export const REQUEST: readonly string[] = ['requestTimeoutMs', 'signal'];

/** Those of the calls that say who they are of. */
export const AS_USER: readonly string[] = [...REQUEST, 'user'];

/** Refuses every option that a call does not know. One that is undefined asks for nothing. */
export function checkKnown(options: unknown, known: readonly string[], prefix = ''): void {
  if (options === undefined || options === null) return;
  if (typeof options !== 'object') throw new InvalidArgumentError('options: must be an object.');
  for (const name in options)
    if (!known.includes(name) && Reflect.get(options, name) !== undefined) throw unavailable(`${prefix}${name}`);
}

/** Refuses what has a value that asks for something. */
export function refuse(asked: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(asked)) {
    if (value === undefined || isEmpty(value)) continue;
    throw unavailable(name);
  }
}

function unavailable(name: string): InvalidArgumentError {
  return new InvalidArgumentError(
    `${name} is not available, and acode never ignores what it was asked for: leave it out (docs/e2b.md).`,
  );
}

function isEmpty(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.keys(value).length === 0;
}

/** Refuses every user but the one that there is. */
export function checkUser({ user }: UserOption = {}): void {
  if (user === undefined || user === USER) return;
  throw new InvalidArgumentError(
    `user: ${user} is refused: commands run as the caller’s own user, whom E2B’s name for is “user”. What needs root belongs in the image.`,
  );
}

/** The signal of a call: the caller’s, and its own deadline. */
export function signalOf({ requestTimeoutMs, signal }: RequestOptions = {}): { signal?: AbortSignal } {
  const deadline =
    requestTimeoutMs === undefined || requestTimeoutMs === 0 ? [] : [AbortSignal.timeout(requestTimeoutMs)];
  const signals = [...deadline, ...(signal ? [signal] : [])];
  return signals.length === 0 ? {} : { signal: AbortSignal.any(signals) };
}

/** The time limit of a command: a minute by default, and 0 for none but the sandbox’s own. */
export function limitOf(timeoutMs: number | undefined, standardMs = 60_000): { timeoutMs?: number } {
  const limit = timeoutMs ?? standardMs;
  return limit === 0 ? {} : { timeoutMs: limit };
}

const MAX_MS = 86_400_000;

/** Refuses a lifetime above the maximum: silently shortened, the sandbox would end earlier than the caller expects. */
export function checkLife(timeoutMs: number): number {
  if (timeoutMs <= MAX_MS) return timeoutMs;
  throw new InvalidArgumentError(
    `timeoutMs: ${timeoutMs} is more than a day (${MAX_MS}), and no sandbox exists for longer (docs/e2b.md).`,
  );
}
