// One pull for everybody who wants the image, here and in other processes: written down before it begins, and what came of it.

import { realpath } from 'node:fs/promises';
import { AcodeError } from '../contract/errors.ts';
import type { PullProgress } from '../contract/images.ts';
import type { ImageFacts } from '../contract/spec.ts';
import type { Host } from '../run/host.ts';
import type { ImageStore, PullRetry } from '../isolation/backend.ts';
import { fullName, parseReference } from '../policy/images.ts';
import type { PullOutcome, PulledEntry, Pulls, Wanted } from './pulls.ts';
import { loginFor } from './registry/login.ts';
import { LockTimeoutError } from '../lifecycle/lock.ts';
import { workspaceOf } from '../run/repository.ts';
import { METRICS } from '../records/telemetry.ts';

/** As much of a host as a pull needs. */
export type PullingHost = Pick<
  Host,
  'bus' | 'closing' | 'keep' | 'telemetry' | 'uid' | 'workspace' | 'workspaceNamed'
> & {
  readonly audit: Pick<Host['audit'], 'append'>;
  readonly directories: Pick<Host['directories'], 'home'>;
  readonly pulls: Omit<Pulls, 'verifySignature'>;
  readonly session: Pick<Host['session'], 'id'>;
  readonly settings: Pick<Host['settings'], 'pullTimeoutMs'>;
};

/** A pull that was decided on. */
export interface Pull {
  readonly host: PullingHost;
  readonly store: ImageStore;
  readonly reference: string;
  /** Why it may be pulled. */
  readonly reason: string;
  readonly wanted: Pick<Wanted, 'correlationId' | 'onProgress'>;
}

interface NamedPull extends Pull {
  /** The reference in full. */
  readonly full: string;
  readonly engine: string;
  readonly tell: (progress: PullProgress) => void;
  /** What is left of the one deadline that waiting and pulling have. */
  readonly leftMs: () => number;
}

/** What the reference means on the engine once it was pulled. */
export async function presentNow({ store, reference }: Pull, signal: AbortSignal): Promise<ImageFacts> {
  // By its full name first: that is what was pulled, whatever an engine makes of a short one.
  const found = (await store.find(fullName(reference) ?? reference, signal)) ?? (await store.find(reference, signal));
  if (!found) throw notThere(reference);
  return { ...found, reference };
}

function notThere(image: string): AcodeError {
  const reason = 'the engine said that it was pulled, and does not have it';
  const cause = new AcodeError('ACODE-CTN-011', { image });
  return new AcodeError('ACODE-SBX-002', { image, reason, kind: 'other' }, { cause });
}

/** Pulls, or joins those who do already. */
export async function pullShared(pull: Pull, signal: AbortSignal): Promise<PullOutcome> {
  const { host, store, reference, wanted } = pull;
  const full = fullName(reference) ?? reference;
  const engine = await store.engineId(signal);
  const onListenerError = (error: unknown): void =>
    log(pull, 'error', 'a listener to the progress of a pull failed', { reason: String(error) });
  const me = { signal, onProgress: wanted.onProgress, onListenerError };
  return host.pulls.shared.join(`${engine} ${full}`, me, (until, tell) => {
    const { clock } = host.telemetry;
    const deadline = clock.monotonic() + host.settings.pullTimeoutMs;
    const leftMs = (): number => Math.max(0, deadline - clock.monotonic());
    const work = pullUnderLock({ ...pull, full, engine, tell, leftMs }, AbortSignal.any([until, host.closing]));
    // Closing waits for what is being written down about it.
    host.keep(work);
    return work;
  });
}

// Lock across processes: a later caller finds that another process pulled the image meanwhile.
async function pullUnderLock(pull: NamedPull, signal: AbortSignal): Promise<PullOutcome> {
  const { host, full, engine, reference } = pull;
  const began = host.telemetry.clock.now();
  let waited = false;
  const onWait = (): void => {
    waited = true;
    log(pull, 'info', 'waiting for another process that is pulling the image', { image: reference });
  };
  const deadlineMs = host.settings.pullTimeoutMs;
  try {
    return await host.pulls.locks.during(`pull:${engine} ${full}`, { deadlineMs, signal, onWait }, async () => {
      const others = waited ? await pulledSince(pull, began, signal) : null;
      return others ?? (await pullRecorded(pull, signal));
    });
  } catch (error) {
    if (!(error instanceof LockTimeoutError)) throw error;
    const reason = `another process is pulling it, and did not end: ${error.message}`;
    throw new AcodeError('ACODE-SBX-002', { image: reference, reason, kind: 'unreachable' });
  }
}

async function pulledSince(
  { host, store, full, engine }: NamedPull,
  began: number,
  signal: AbortSignal,
): Promise<PullOutcome | null> {
  const entry = (await host.pulls.index.on(engine)).find(({ reference }) => reference === full);
  const now = entry && entry.pulledAt >= began ? await store.find(full, signal) : null;
  return now && now.id === entry?.id ? { changed: true, previousDigest: null } : null;
}

// Written down before a byte is asked for, like everything that lets something happen.
async function pullRecorded(pull: NamedPull, signal: AbortSignal): Promise<PullOutcome> {
  const { host, reference, full, reason, wanted } = pull;
  const { clock } = host.telemetry;
  const registry = full.slice(0, full.indexOf('/'));
  const { login, source } = await loginFor(registry, await loginSurroundings(host), signal);
  const about = { image: reference, reference: full };
  await record(pull, 'pulling an image', { ...about, decision: 'allowed', reason, login: source });
  const began = clock.monotonic();
  try {
    const before = await knownBefore(pull, signal);
    await pull.store.pull(
      {
        reference: full,
        shownAs: reference,
        registry,
        login,
        deadlineMs: host.settings.pullTimeoutMs,
        leftMs: pull.leftMs(),
        onProgress: progress => {
          pull.tell(progress);
          host.bus.emit('ImagePullProgress', wanted.correlationId, new Date(clock.now()), progress);
        },
        onRetry: retry => log(pull, retryLevel(retry), retryText(reference, retry), { image: reference, ...retry }),
      },
      signal,
    );
    return await pulled(pull, before, clock.monotonic() - began, signal);
  } catch (error) {
    const errorCode = error instanceof AcodeError ? String(error.code) : 'unexpected';
    host.keep(record(pull, 'a pull failed', { ...about, errorCode }));
    throw error;
  }
}

/** What is said of an attempt that failed. The reason is in the fields of the line, and in the error if all attempts fail. */
export function retryText(image: string, { attempt, mostAttempts, pauseMs, unreached }: PullRetry): string {
  const left = mostAttempts - attempt;
  if (unreached)
    return `${unreached.registry} cannot be reached to pull ${image} (${unreached.fault}); acode tries ${left === 1 ? 'once more' : `${left} more times`}`;
  const pause = `${(pauseMs / 1000).toFixed(1)} s`;
  return `the pull of ${image} was interrupted; acode retries in ${pause} (attempt ${attempt + 1} of ${mostAttempts})`;
}

// A registry that cannot be reached is said once: the further attempts tell a person nothing new.
function retryLevel({ attempt, unreached }: PullRetry): 'info' | 'warn' {
  return unreached && attempt > 1 ? 'info' : 'warn';
}

interface Before {
  readonly ids: ReadonlySet<string>;
  readonly image: ImageFacts | null;
  readonly entry: PulledEntry | undefined;
}

async function knownBefore({ host, store, full, engine }: NamedPull, signal: AbortSignal): Promise<Before> {
  const [list, image, entries] = await Promise.all([
    store.list(signal),
    store.find(full, signal),
    host.pulls.index.on(engine),
  ]);
  return { ids: new Set(list.map(({ id }) => id)), image, entry: entries.find(({ reference }) => reference === full) };
}

async function pulled(pull: NamedPull, before: Before, durationMs: number, signal: AbortSignal): Promise<PullOutcome> {
  const { host, full, engine, reference } = pull;
  const { id, digest } = await presentNow(pull, signal);
  const now = host.telemetry.clock.now();
  const brought = !before.ids.has(id) || (before.entry?.id === id && before.entry.brought);
  const named = !brought && isOwnName(before, full, id);
  const entry = { engine, reference: full, id, digest, brought, named, pulledAt: now, lastUsedAt: now };
  await remember(pull, entry, before, signal);
  host.telemetry.observe(METRICS.pull, durationMs);
  const outcome = { changed: before.image?.id !== id, previousDigest: digestBefore(before, digest) };
  await tellPulled(pull, { image: reference, digest, imageId: id }, outcome, durationMs);
  return outcome;
}

// A tag that this pull, or one before it, gave to an image that acode did not pull: acode may remove the tag again.
function isOwnName({ image, entry }: Before, full: string, id: string): boolean {
  if (full.includes('@')) return false;
  return image === null || (entry?.id === id && entry.named === true);
}

function digestBefore({ image, entry }: Before, digest: string): string | null {
  const known = image?.digest ?? entry?.digest ?? digest;
  return known === digest ? null : known;
}

async function tellPulled(
  pull: NamedPull,
  about: { readonly image: string; readonly digest: string; readonly imageId: string },
  { previousDigest }: PullOutcome,
  durationMs: number,
): Promise<void> {
  const { host, wanted } = pull;
  const moved = previousDigest === null ? {} : { previousDigest };
  log(pull, 'info', 'image pulled', { ...about, ...moved, durationMs });
  if (previousDigest !== null)
    log(pull, 'warn', 'the tag has moved: it means another image than before', { ...about, ...moved });
  const fields = { reference: about.image, id: about.imageId, digest: about.digest, ...moved };
  host.bus.emit('ImagePulled', wanted.correlationId, new Date(host.telemetry.clock.now()), fields);
  const event = previousDigest === null ? 'image pulled' : 'image pulled, and the tag has moved';
  await record(pull, event, { ...about, ...moved, durationMs: Math.round(durationMs) });
}

// The image is there whether that is remembered or not; what is not remembered is not pruned.
async function remember(
  pull: NamedPull,
  entry: PulledEntry,
  { entry: old }: Before,
  signal: AbortSignal,
): Promise<void> {
  const { index } = pull.host.pulls;
  try {
    await index.add(entry, signal);
    // The image that lost its name to the new one is still what acode pulled.
    if (old?.brought && old.id !== entry.id)
      await index.add({ ...old, reference: byDigest(pull.full, old.digest) }, signal);
  } catch (error) {
    signal.throwIfAborted();
    log(pull, 'warn', 'what was pulled could not be noted down', { reason: String(error) });
  }
}

function byDigest(full: string, digest: string): string {
  const repository = parseReference(full)?.repository ?? full;
  return `${repository}@${digest}`;
}

async function loginSurroundings(host: PullingHost): Promise<Parameters<typeof loginFor>[1]> {
  const found = await workspaceOf(host);
  const workspace = await realpath(found).catch(() => found);
  const { clock } = host.telemetry;
  return { env: process.env, home: host.directories.home, uid: host.uid, workspace, clock };
}

async function record(
  { host, wanted }: NamedPull,
  event: string,
  detail: Readonly<Record<string, string | number>>,
): Promise<void> {
  const { correlationId } = wanted;
  const sessionId = host.session.id;
  await host.audit.append({ kind: 'event', operation: 'pull', correlationId, sessionId, event, detail });
}

function log(
  { host, wanted }: Pull,
  level: 'info' | 'warn' | 'error',
  message: string,
  fields: Readonly<Record<string, unknown>>,
): void {
  host.telemetry.log(level, message, { correlationId: wanted.correlationId, operation: 'pull', ...fields });
}
