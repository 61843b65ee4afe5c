// Pulls one image: under one deadline, with pauses between tries, and the credentials in one header and nowhere else.

import { AcodeError } from '../../../contract/errors.ts';
import type { LayerProgress, PullProgress, RegistryLogin } from '../../../contract/images.ts';
import type { Clock } from '../../../contract/ports.ts';
import type { PullRequest, PullRetry } from '../../backend.ts';
import type { PullProgress as EngineReport } from '../engine/images.ts';
import type { Engine } from '../engine/index.ts';
import { EngineError } from '../engine/protocol.ts';
import { reasonOf } from '../failure.ts';

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
  const course: Course = { attempt: 0, arrived: false };
  try {
    signal.throwIfAborted();
    await attempts(from, request, course, late.signal);
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    const tookMs = deadlineMs - leftMs + clock.monotonic() - began;
    throw failed(request, failureOf(error, late.signal, request, tookMs), course);
  } finally {
    cancel();
    signal.removeEventListener('abort', leave);
  }
}

/** How far a pull came. */
interface Course {
  /** The number of the attempt, from 1. */
  attempt: number;
  /** Whether the engine reported a layer of the image. */
  arrived: boolean;
}

async function attempts(from: From, request: PullRequest, course: Course, signal: AbortSignal): Promise<void> {
  const { retry } = from;
  for (let attempt = 1; ; attempt += 1) {
    const pauseMs = pauseAfter(retry, attempt);
    course.attempt = attempt;
    try {
      await once(from, request, course, signal);
      return;
    } catch (error) {
      const failure = understand(error);
      if (signal.aborted || attempt > retry.attempts || failure.kind !== 'unreachable') throw error;
      const unreached = unreachedOf(request, failure, course);
      const reason = shownReason(failure.reason, request.login);
      request.onRetry?.({ attempt, mostAttempts: retry.attempts + 1, reason, pauseMs, ...unreached });
    }
    await pause(from.clock, pauseMs, signal);
  }
}

async function once({ engine, clock }: From, request: PullRequest, course: Course, signal: AbortSignal): Promise<void> {
  const { reference, login, deadlineMs, silenceMs = SILENCE_MS } = request;
  let state = noProgress(request.shownAs, course.attempt);
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
      course.arrived ||= state.layers.size > 0;
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

function failed(request: PullRequest, failure: PullFailure, course: Course): AcodeError {
  const { reference, shownAs: image, login, registry } = request;
  const quoted = shownReason(failure.reason, login);
  // The engine’s own error is not the cause: whatever it repeats of a request would be shown with it.
  const cause = new AcodeError('ACODE-CTN-006', { image, reason: quoted });
  const remedy = remedyFor(failure.kind, { registry, hadLogin: login !== null, byDigest: reference.includes('@') });
  const { unreached } = unreachedOf(request, failure, course);
  if (!unreached)
    return new AcodeError('ACODE-SBX-002', { image, reason: quoted, remedy, kind: failure.kind }, { cause });
  const tried = course.attempt === 1 ? 'tried once' : `tried ${course.attempt} times`;
  const reason = `this machine cannot reach ${registry} (${unreached.fault}; ${tried})`;
  const context = { image, reason, remedy, kind: failure.kind, unreached: { ...unreached, attempts: course.attempt } };
  return new AcodeError('ACODE-SBX-002', context, { cause });
}

// A registry that was never reached: nothing of the image arrived, and the words are those of a connection that failed.
function unreachedOf(
  { registry }: PullRequest,
  { fault }: PullFailure,
  { arrived }: Course,
): Pick<PullRetry, 'unreached'> {
  return arrived || fault === undefined ? {} : { unreached: { registry, fault } };
}

// What a failed pull means: whether trying again can help, and what a person should do. Engines say most of it in words.

/**
 * Why a pull failed.
 *
 * - `unreachable`: the registry or the engine could not be reached, or the connection broke off; trying again may help
 * - `unauthorised`: the registry wants other credentials, or any
 * - `absent`: the registry has no such image
 * - `damaged`: what came is not what its digest says
 * - `other`: everything that trying again does not change
 */
type PullFailureKind = 'unreachable' | 'unauthorised' | 'absent' | 'damaged' | 'other';

/** A failed pull, understood. */
interface PullFailure {
  readonly kind: PullFailureKind;
  /** A clause for people, in the words of whoever refused. */
  readonly reason: string;
  /** In few words, why the registry could not be connected to; absent for every other failure. */
  readonly fault?: string;
}

// How the engine’s HTTP client says that it has no connection: “dial tcp …: connect: network is unreachable”.
const DIALLING = /\b(?:dial|lookup|proxyconnect|waiting for connection|TLS handshake timeout)\b/;
const FAULTS: readonly (readonly [RegExp, string])[] = [
  [/network is unreachable/i, 'network is unreachable'],
  [/no such host|temporary failure in name resolution|server misbehaving/i, 'its name could not be resolved'],
  [/connection refused/i, 'connection refused'],
  [/no route to host/i, 'no route to host'],
  [/timeout|timed out|waiting for connection/i, 'no answer in time'],
];

function faultIn(engineWords: string): string | undefined {
  if (!DIALLING.test(engineWords)) return undefined;
  const fault = FAULTS.find(([words]) => words.test(engineWords))?.[1];
  return fault !== undefined && /\bproxyconnect\b/.test(engineWords) ? `through its proxy: ${fault}` : fault;
}

// In this order: a message that names an authorisation service may also say that it timed out. The words may be those of a
// registry nobody trusts yet: no expression may look further than a little way for its end.
const WORDS: readonly (readonly [PullFailureKind, RegExp])[] = [
  [
    'damaged',
    /verification failed|invalid checksum|digest (?:invalid|mismatch)|unexpected (?:commit )?digest|digest.{0,100} (?:did|does) not match|does not match (?:the )?(?:provided manifest )?digest/i,
  ],
  [
    'unreachable',
    /timeout|timed out|connection (?:refused|reset)|broken pipe|\bEOF\b|no such host|temporary failure|network is unreachable|no route to host|handshake|unexpected HTTP status:? 5\d\d|status(?: code)?:? 5\d\d|server misbehaving|closed network connection/i,
  ],
  [
    'unauthorised',
    /unauthorized|authentication required|no basic auth credentials|incorrect username or password|\bdenied\b|status:? 40[13]|forbidden/i,
  ],
  [
    'absent',
    /manifest unknown|not found|name unknown|no such (?:image|manifest)|repository does not exist|does not exist/i,
  ],
];

// A megabyte of words says nothing that is not in their beginning; and what is shown is for people.
const MAX_READ = 4096;
const MAX_SHOWN = 600;

/** What the error of one try means. Its reason is as it came, of any length: {@link shownReason} is for people. */
export function understand(error: unknown): PullFailure {
  const reason = reasonOf(error);
  const read = reason.slice(0, MAX_READ);
  const known = WORDS.find(([, words]) => words.test(read));
  const kind = known?.[0] ?? kindOf(error);
  const fault = kind === 'unreachable' ? faultIn(read) : undefined;
  return { kind, reason, ...(fault === undefined ? {} : { fault }) };
}

function kindOf(error: unknown): PullFailureKind {
  if (!(error instanceof EngineError)) return 'other';
  if (error.kind === 'status') return error.status === 404 ? 'absent' : 'other';
  return ['unreachable', 'timeout', 'disconnected'].includes(error.kind) ? 'unreachable' : 'other';
}

/** What to do about it. */
export function remedyFor(
  kind: PullFailureKind,
  {
    registry,
    hadLogin,
    byDigest,
  }: { readonly registry: string; readonly hadLogin: boolean; readonly byDigest: boolean },
): string {
  if (kind === 'unauthorised')
    return hadLogin
      ? `The registry did not take the credentials of your docker configuration: \`docker login ${registry}\` renews them.`
      : `Log in once with \`docker login ${registry}\`: acode uses the credentials of your own docker configuration. A name that does not exist can look the same.`;
  if (kind === 'absent')
    return byDigest
      ? 'Check the name and the digest: the registry has nothing with this digest under this name. A digest that `docker images` or a publisher shows for another repository, or an image’s id, is not one of it.'
      : 'Check the name and the tag: the registry has no such image.';
  if (kind === 'damaged')
    return 'Nothing of it is used. Try again; where it stays so, whoever looks after the registry should know.';
  if (kind === 'unreachable')
    return `Check the network, DNS and proxy of this machine’s engine, then try again; or choose an image that it already has with --image: \`acode sandbox images\` lists them.`;
  return 'The engine’s own log says more.';
}

/** A reason as it may be shown and logged. Cut last: half a secret would not be known for one. */
export function shownReason(reason: string, login: RegistryLogin | null): string {
  return withoutSecrets(reason, secretsOf(login)).slice(0, MAX_SHOWN);
}

// What a registry or an engine gets, and so could repeat: the secrets, the pair that basic authentication sends, and the
// whole of what the engine is handed.
function secretsOf(login: RegistryLogin | null): string[] {
  if (!login) return [];
  const { username = '', password, identitytoken } = login;
  const secrets = [password, identitytoken].filter(secret => secret !== undefined).filter(secret => secret !== '');
  return [...secrets.flatMap(secret => [secret, `${username}:${secret}`]), JSON.stringify(login)];
}

/** The text without what must not be shown, should anybody have repeated it. */
export function withoutSecrets(text: string, secrets: readonly string[]): string {
  const written = [...new Set(secrets.flatMap(waysToWrite))].filter(secret => secret.length > 0);
  // The longest first: what contains another secret must not be broken up by it.
  return written
    .sort((one, other) => other.length - one.length)
    .reduce((shown, secret) => shown.replaceAll(secret, '[redacted]'), text);
}

function waysToWrite(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const base64 = bytes.toString('base64');
  return [
    secret,
    JSON.stringify(secret).slice(1, -1),
    // By way of the bytes: half a character cannot be written in an address.
    encodeURIComponent(bytes.toString()),
    base64,
    base64.replace(/=+$/, ''),
    bytes.toString('base64url'),
  ];
}

// What the engine’s reports about a pull come to: layers, bytes, speed, time left. Pure; time is told to it.

// How much of the past the speed is of: long enough to be calm, short enough to notice a line that has become slow.
const WINDOW_MS = 5000;
// Speed told from less than this would be noise.
const LEAST_MS = 300;
// An image has at most 127 layers; an engine that says otherwise is not believed for ever.
const MAX_LAYERS = 512;

/** Where a pull stands. */
export interface PullState {
  readonly reference: string;
  readonly attempt: number;
  readonly layers: ReadonlyMap<string, LayerProgress>;
  /** What was downloaded when, over the last seconds. */
  readonly samples: readonly { readonly atMs: number; readonly bytes: number }[];
  /** The digest that the registry gave, where it was reported. */
  readonly digest: string | null;
}

/** A pull that has not said anything yet. */
export function noProgress(reference: string, attempt: number): PullState {
  return { reference, attempt, layers: new Map(), samples: [], digest: null };
}

const STATES: Readonly<Record<string, LayerProgress['state']>> = {
  'Pulling fs layer': 'waiting',
  Waiting: 'waiting',
  Downloading: 'downloading',
  'Verifying Checksum': 'downloaded',
  'Download complete': 'downloaded',
  Extracting: 'extracting',
  'Pull complete': 'complete',
  'Already exists': 'present',
};

/** The state after one more report. Reports about no layer, or in words that are not known, change nothing. */
export function advance(state: PullState, report: EngineReport, atMs: number): PullState {
  const digest = /^Digest: (sha256:[0-9a-f]{64})$/.exec(report.status)?.[1];
  if (digest !== undefined) return { ...state, digest };
  const step = report.status.startsWith('Retrying in') ? 'retrying' : STATES[report.status];
  if (report.id === undefined || step === undefined) return state;
  const before = state.layers.get(report.id);
  if (!before && state.layers.size >= MAX_LAYERS) return state;
  const layers = new Map(state.layers).set(report.id, layerAfter(report.id, before, step, report));
  return { ...state, layers, samples: sampled(state.samples, { atMs, bytes: bytesOf(layers) }) };
}

function layerAfter(
  id: string,
  before: LayerProgress = { id, state: 'waiting', bytes: 0, totalBytes: null },
  state: LayerProgress['state'],
  { current = 0, total = 0 }: EngineReport,
): LayerProgress {
  if (state === 'downloading')
    return { id, state, bytes: Math.max(0, current), totalBytes: total > 0 ? total : before.totalBytes };
  if (!WHOLE.has(state)) return { ...before, state };
  // A small layer is there before its size was ever said.
  const bytes = before.totalBytes ?? before.bytes;
  return { id, state, bytes, totalBytes: bytes };
}

const WHOLE: ReadonlySet<LayerProgress['state']> = new Set(['downloaded', 'extracting', 'complete']);

function bytesOf(layers: PullState['layers']): number {
  let bytes = 0;
  for (const layer of layers.values()) bytes += layer.bytes;
  return bytes;
}

function sampled(samples: PullState['samples'], next: PullState['samples'][number]): PullState['samples'] {
  const last = samples.at(-1);
  // Some engines report hundreds of times a second.
  const dense = samples.length > 1 && last !== undefined && next.atMs - (samples.at(-2)?.atMs ?? 0) < 100;
  const kept = (dense ? samples.slice(0, -1) : samples).filter(({ atMs }) => next.atMs - atMs <= WINDOW_MS);
  return [...kept, next];
}

/** What a pull looks like now. */
export function viewOf(state: PullState, atMs: number): PullProgress {
  const layers = [...state.layers.values()];
  const wanted = layers.filter(({ state: of }) => of !== 'present');
  const bytes = bytesOf(state.layers);
  const totalBytes =
    wanted.length === 0 || wanted.some(layer => layer.totalBytes === null)
      ? null
      : wanted.reduce((sum, layer) => sum + (layer.totalBytes ?? 0), 0);
  const bytesPerSecond = speedOf(state.samples, atMs);
  return {
    reference: state.reference,
    attempt: state.attempt,
    layers,
    bytes,
    totalBytes,
    bytesPerSecond,
    secondsLeft: secondsLeft(totalBytes, bytes, bytesPerSecond),
  };
}

function speedOf(samples: PullState['samples'], atMs: number): number | null {
  const first = samples.find(sample => atMs - sample.atMs <= WINDOW_MS);
  const last = samples.at(-1);
  if (!first || !last) return null;
  const ms = atMs - first.atMs;
  // Bytes that are taken back, because a download begins anew, are no speed.
  return ms < LEAST_MS || last.bytes <= first.bytes ? null : Math.round(((last.bytes - first.bytes) * 1000) / ms);
}

function secondsLeft(totalBytes: number | null, bytes: number, speed: number | null): number | null {
  if (totalBytes === null || speed === null) return null;
  return Math.ceil(Math.max(0, totalBytes - bytes) / speed);
}
