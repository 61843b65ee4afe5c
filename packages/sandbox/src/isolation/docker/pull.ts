// Pulls one image: under one deadline, with pauses between tries, and the credentials in one header and nowhere else.

import { AcodeError } from '../../contract/errors.ts';
import type { RegistryLogin } from '../../contract/images.ts';
import type { Clock } from '../../contract/ports.ts';
import type { PullRequest } from '../backend.ts';
import type { Engine } from './engine/index.ts';
import { advance, noProgress, viewOf } from './pull-progress.ts';
import { remedyFor, understand, withoutSecrets } from './pull-failure.ts';
import type { PullFailure } from './pull-failure.ts';

/** Where pulls are done. */
export interface PullingFrom {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly retry: { readonly attempts: number; readonly baseMs: number; readonly factor: number };
}

// A registry that is being restarted is away for seconds; the pauses of calls to an engine on this machine are shorter.
const LEAST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
// A registry may be slow to answer; a pull that says nothing for this long has stopped.
const SILENCE_MS = 60_000;
const TELL_EVERY_MS = 100;

/** Pulls; rejects with ACODE-SBX-002 where that fails, and with the signal’s reason where it was cancelled. */
export async function pullImage(from: PullingFrom, request: PullRequest, signal: AbortSignal): Promise<void> {
  const { clock } = from;
  const began = clock.monotonic();
  const late = new AbortController();
  const leave = (): void => late.abort(signal.reason);
  const cancel = clock.after(request.deadlineMs, () =>
    late.abort(new Error(`it took longer than ${request.deadlineMs / 1000} s`)),
  );
  signal.addEventListener('abort', leave, { once: true });
  try {
    signal.throwIfAborted();
    await attempts(from, request, late.signal);
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    throw failed(request, failureOf(error, late.signal, request, clock.monotonic() - began));
  } finally {
    cancel();
    signal.removeEventListener('abort', leave);
  }
}

async function attempts(from: PullingFrom, request: PullRequest, signal: AbortSignal): Promise<void> {
  const { retry } = from;
  for (let attempt = 1; ; attempt += 1) {
    try {
      await once(from, request, attempt, signal);
      return;
    } catch (error) {
      if (signal.aborted || attempt > retry.attempts || understand(error).kind !== 'unreachable') throw error;
      request.onRetry?.(attempt, withoutSecrets(understand(error).reason, secretsOf(request.login)));
    }
    await pause(from.clock, pauseMs(retry, attempt), signal);
  }
}

async function once(
  { engine, clock }: PullingFrom,
  request: PullRequest,
  attempt: number,
  signal: AbortSignal,
): Promise<void> {
  const { reference, login, deadlineMs, silenceMs = SILENCE_MS } = request;
  let state = noProgress(request.shownAs, attempt);
  let toldAt = -Infinity;
  const tell = (always: boolean): void => {
    const now = clock.monotonic();
    if (!always && now - toldAt < TELL_EVERY_MS) return;
    toldAt = now;
    request.onProgress?.(viewOf(state, now));
  };
  tell(true);
  await engine.images.pull(reference, {
    signal,
    deadlineMs: Math.min(deadlineMs, silenceMs),
    silenceMs,
    ...(login ? { auth: login } : {}),
    onProgress: report => {
      state = advance(state, report, clock.monotonic());
      tell(false);
    },
  });
  tell(true);
}

// Jittered, so that many who wait for the same registry do not all come back in the same moment.
function pauseMs({ baseMs, factor }: PullingFrom['retry'], attempt: number): number {
  const ms = Math.min(Math.max(baseMs, LEAST_PAUSE_MS) * factor ** (attempt - 1), LONGEST_PAUSE_MS);
  return ms * (0.5 + Math.random() / 2);
}

function pause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const cancel = clock.after(ms, done);
    function done(): void {
      signal.removeEventListener('abort', abort);
      resolve();
    }
    function abort(): void {
      cancel();
      reject(signal.reason instanceof Error ? signal.reason : new Error('aborted'));
    }
    signal.addEventListener('abort', abort, { once: true });
    if (signal.aborted) abort();
  });
}

function failureOf(error: unknown, late: AbortSignal, { deadlineMs }: PullRequest, tookMs: number): PullFailure {
  if (!late.aborted) return understand(error);
  return {
    kind: 'unreachable',
    reason: `it was not done in ${deadlineMs / 1000} s (given up after ${Math.round(tookMs / 1000)} s)`,
  };
}

function failed({ shownAs: image, login, registry }: PullRequest, failure: PullFailure): AcodeError {
  const reason = withoutSecrets(failure.reason, secretsOf(login)).slice(0, 600);
  // The engine’s own error is not the cause: whatever it repeats of a request would be shown with it.
  const cause = new AcodeError('ACODE-CTN-006', { image, reason });
  const remedy = remedyFor(failure.kind, registry, login !== null);
  return new AcodeError('ACODE-SBX-002', { image, reason, remedy, kind: failure.kind }, { cause });
}

function secretsOf(login: RegistryLogin | null): string[] {
  return [login?.password, login?.identitytoken].filter(secret => secret !== undefined);
}
