// What calls take in the words of E2B, and what becomes of it here. Nothing that was asked for is ignored silently.

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

/** The time limit of a command: a minute unless told otherwise, and 0 for none but the sandbox’s own. */
export function limitOf(timeoutMs: number | undefined, standardMs = 60_000): { timeoutMs?: number } {
  const limit = timeoutMs ?? standardMs;
  return limit === 0 ? {} : { timeoutMs: limit };
}
