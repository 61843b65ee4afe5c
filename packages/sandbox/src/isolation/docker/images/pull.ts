// Pulls one image: under one deadline, with pauses between tries, and the credentials in one header and nowhere else.

import { AcodeError } from '../../../contract/errors.ts';
import type { Clock } from '../../../contract/ports.ts';
import type { PullRequest } from '../../backend.ts';
import type { Engine } from '../engine/index.ts';
import { advance, noProgress, viewOf } from './pull-progress.ts';
import { remedyFor, shownReason, understand } from './pull-failure.ts';
import type { PullFailure } from './pull-failure.ts';

/** How pulls are done. */
export interface PullTerms {
  readonly clock: Clock;
  readonly retry: { readonly attempts: number; readonly baseMs: number; readonly factor: number };
}

/** Where pulls are done. */
export interface PullingFrom extends PullTerms {
  readonly engine: Engine;
}

/** As much of an engine as a pull needs. */
type From = PullTerms & { readonly engine: { readonly images: Pick<Engine['images'], 'pull'> } };

// A registry that is being restarted is away for seconds; the pauses of calls to an engine on this machine are shorter.
const LEAST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 15_000;
// A registry may be slow to answer; a pull that says nothing for this long has stopped.
const SILENCE_MS = 60_000;
const TELL_EVERY_MS = 100;

/** Pulls; rejects with ACODE-SBX-002 where that fails, and with the signal’s reason where it was cancelled. */
export async function pullImage(from: From, request: PullRequest, signal: AbortSignal): Promise<void> {
  const { clock } = from;
  const { deadlineMs, leftMs = deadlineMs } = request;
  const began = clock.monotonic();
  const late = new AbortController();
  const leave = (): void => late.abort(signal.reason);
  const cancel = clock.after(Math.min(leftMs, deadlineMs), () =>
    late.abort(new Error(`it took longer than ${deadlineMs / 1000} s`)),
  );
  signal.addEventListener('abort', leave, { once: true });
  try {
    signal.throwIfAborted();
    await attempts(from, request, late.signal);
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    throw failed(request, failureOf(error, late.signal, request, deadlineMs - leftMs + clock.monotonic() - began));
  } finally {
    cancel();
    signal.removeEventListener('abort', leave);
  }
}

async function attempts(from: From, request: PullRequest, signal: AbortSignal): Promise<void> {
  const { retry } = from;
  for (let attempt = 1; ; attempt += 1) {
    const pauseMs = pauseAfter(retry, attempt);
    try {
      await once(from, request, attempt, signal);
      return;
    } catch (error) {
      if (signal.aborted || attempt > retry.attempts || understand(error).kind !== 'unreachable') throw error;
      const reason = shownReason(understand(error).reason, request.login);
      request.onRetry?.({ attempt, mostAttempts: retry.attempts + 1, reason, pauseMs });
    }
    await pause(from.clock, pauseMs, signal);
  }
}

async function once(
  { engine, clock }: From,
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
function pauseAfter({ baseMs, factor }: PullTerms['retry'], attempt: number): number {
  const ms = Math.min(Math.max(baseMs, LEAST_PAUSE_MS) * factor ** (attempt - 1), MAX_PAUSE_MS);
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

function failed({ reference, shownAs: image, login, registry }: PullRequest, failure: PullFailure): AcodeError {
  const reason = shownReason(failure.reason, login);
  // The engine’s own error is not the cause: whatever it repeats of a request would be shown with it.
  const cause = new AcodeError('ACODE-CTN-006', { image, reason });
  const remedy = remedyFor(failure.kind, { registry, hadLogin: login !== null, byDigest: reference.includes('@') });
  return new AcodeError('ACODE-SBX-002', { image, reason, remedy, kind: failure.kind }, { cause });
}
