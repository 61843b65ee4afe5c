// The images of the engine as a host program sees them: pulled, listed, and removed again when unused.

import { AcodeError } from '../contract/errors.ts';
import type {
  ImageInfo,
  ImageList,
  ImagePruneOptions,
  ImagePruneReport,
  ImagePullOptions,
  Images,
  PrunedImage,
  PulledImage,
} from '../contract/images.ts';
import { LANGUAGES } from '../contract/languages.ts';
import type { EffectivePolicy, PolicyFields } from '../contract/policy.ts';
import type { OpenFurther } from '../run/host.ts';
import type { ImageStore, StoredImage } from '../isolation/backend.ts';
import { fullName, parseReference, chooseImage } from '../policy/images.ts';
import { isLocal } from '../policy/pull.ts';
import { resolvePolicy } from '../policy/resolve.ts';
import { obtainImage } from './pulling.ts';
import type { ImageHost, PulledEntry } from './pulls.ts';
import { layersFor, workspaceOf } from '../run/repository.ts';
import type { Operation } from '../records/telemetry.ts';

/** Does one operation of a host: with its signal, and logged. */
export type Operate = <Value>(
  name: string,
  work: (signal: AbortSignal, operation: Operation) => Promise<Value>,
  signal?: AbortSignal,
) => Promise<Value>;

const DAY_MS = 24 * 3600 * 1000;
const DEFAULT_DAYS = 30;
const MAX_DAYS = 36_500;

/** The images client of a host. */
export function imagesOf(host: ImageHost, operate: Operate, openFurther: OpenFurther): Images {
  return {
    pull: (reference, options = {}) =>
      operate('pull', (signal, operation) => pull(host, reference, options, operation, signal), options.signal),
    defaults: () => operate('images', () => defaultImages(host)),
    isPresent: (reference, { signal: callers } = {}) =>
      operate('images', signal => isPresent(host, reference, signal), callers),
    list: ({ signal: callers } = {}) => operate('images', signal => list(host, signal), callers),
    buildProject: (options = {}) =>
      operate(
        'build',
        async (signal, operation) => {
          const { buildProject } = await import('./project/building.ts');
          try {
            return await buildProject({ host, openFurther, options, operation, signal });
          } catch (error) {
            recordRefusal(host, { operation: 'build', image: options.base }, operation, error);
            throw error;
          }
        },
        options.signal,
      ),
    prune: (options = {}) =>
      operate('prune', (signal, operation) => prune(host, options, operation, signal), options.signal),
  };
}

// As for a run that names this image: the same lists decide, and the same voices are heard.
async function policyFor(host: ImageHost, input: PolicyFields): Promise<EffectivePolicy> {
  const layers = await layersFor(host, await workspaceOf(host));
  return resolvePolicy(input, layers, { caller: host.caller, cpus: 1 });
}

async function pull(
  host: ImageHost,
  reference: string,
  { pull: when = 'always', onProgress }: ImagePullOptions,
  operation: Operation,
  signal: AbortSignal,
): Promise<PulledImage> {
  const { clock } = host.telemetry;
  const began = clock.monotonic();
  operation.note({ image: reference });
  const wanted = { correlationId: operation.correlationId, preview: false, onProgress };
  try {
    const policy = await policyFor(host, { image: reference, pull: when });
    const { image, notes, outcome } = await obtainImage(host, { ...wanted, policy }, signal, false);
    operation.note({ imageDigest: image.digest, imageId: image.id });
    // In the result too, for callers that show it.
    for (const note of notes) operation.step('warn', note, { inResult: true });
    const stored = (await (await host.engine()).images.list(signal)).find(({ id }) => id === image.id);
    return {
      reference,
      id: image.id,
      digest: image.digest,
      changed: outcome.changed,
      ...(outcome.previousDigest === null ? {} : { previousDigest: outcome.previousDigest }),
      sizeBytes: stored?.sizeBytes ?? 0,
      durationMs: clock.monotonic() - began,
      warnings: notes,
    };
  } catch (error) {
    recordRefusal(host, { operation: 'pull', image: reference }, operation, error);
    throw error;
  }
}

function recordRefusal(
  host: ImageHost,
  { operation, image }: { readonly operation: 'pull' | 'build'; readonly image: string | undefined },
  { correlationId }: Operation,
  error: unknown,
): void {
  if (!(error instanceof AcodeError) || error.is('ACODE-AUD-001') || error.is('ACODE-SBX-014')) return;
  const { message } = error;
  const about = { kind: 'refusal', operation, correlationId, sessionId: host.session.id } as const;
  const named = image === undefined ? {} : { image: image.slice(0, 600) };
  host.keep(host.audit.append({ ...about, ...named, errorCode: String(error.code), message }));
}

async function defaultImages(host: ImageHost): Promise<readonly string[]> {
  const layers = await layersFor(host, await workspaceOf(host));
  const found = [[], ...LANGUAGES.map(language => [{ language, file: '' }])];
  const chosen = found.map(languages => chooseImage(undefined, layers, languages).image.value);
  const combined = [layers.repository, layers.user].flatMap(layer =>
    Object.values(layer?.config.sandbox?.images?.combined ?? {}),
  );
  return [...new Set([...chosen, ...combined])];
}

async function isPresent(host: ImageHost, reference: string, signal: AbortSignal): Promise<boolean> {
  const { image } = await policyFor(host, { image: reference });
  return (await (await host.engine()).images.find(image.value, signal)) !== null;
}

async function list(host: ImageHost, signal: AbortSignal): Promise<ImageList> {
  const store = (await host.engine()).images;
  const [stored, diskBytes, entries] = await Promise.all([
    store.list(signal),
    store.diskBytes(signal),
    store.engineId(signal).then(engine => host.pulls.index.on(engine)),
  ]);
  const items = stored
    .map(image => infoOf(image, entries))
    .sort((one, other) => order(one).localeCompare(order(other)));
  return { items, totalBytes: items.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0), diskBytes };
}

function order({ tags, digests, id }: ImageInfo): string {
  return tags[0] ?? digests[0] ?? id;
}

function infoOf(image: StoredImage, entries: readonly PulledEntry[]): ImageInfo {
  const own = entries.filter(entry => entry.id === image.id && entry.brought && !isMadeHere(entry));
  const latest = (times: readonly number[]): string | null =>
    times.length === 0 ? null : new Date(Math.max(...times)).toISOString();
  return {
    id: image.id,
    tags: image.tags,
    digests: image.digests,
    sizeBytes: image.sizeBytes,
    createdAt: image.createdAt,
    pulledByAcode: own.length > 0,
    pulledAt: latest(own.map(({ pulledAt }) => pulledAt)),
    lastUsedAt: latest(entries.filter(({ id }) => id === image.id).map(({ lastUsedAt }) => lastUsedAt)),
    containers: image.containers,
  };
}

/** What is to become of one image that was pulled. */
type Verdict = { readonly remove: true } | { readonly remove: false; readonly reason: string };

/** Removes images that acode pulled or built and that nothing uses. */
export async function prune(
  host: ImageHost,
  { dryRun = false, olderThanDays = DEFAULT_DAYS }: ImagePruneOptions,
  operation: Operation,
  signal: AbortSignal,
): Promise<ImagePruneReport> {
  assertDays(olderThanDays);
  const store = (await host.engine()).images;
  const engine = await store.engineId(signal);
  const before = host.telemetry.clock.now() - olderThanDays * DAY_MS;
  const report = { removed: new Array<PrunedImage>(), kept: new Array<Kept>(), failed: new Array<Kept>() };
  for (const entry of await host.pulls.index.on(engine)) {
    // Asked anew for each: a container may have come meanwhile.
    const image = (await store.list(signal)).find(({ id }) => id === entry.id);
    if (!image || !(entry.brought || entry.named === true)) continue;
    const about = aboutOf(entry, image);
    const verdict = judge(entry, image, before);
    if (!verdict.remove) report.kept.push({ ...about, reason: verdict.reason });
    else if (dryRun) report.removed.push(about);
    else await removeOne({ host, store, operation, signal }, entry, about, report);
  }
  const removedBytes = report.removed.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  return { ...report, removedBytes, dryRun };
}

function assertDays(days: number): void {
  if (Number.isFinite(days) && days >= 0 && days <= MAX_DAYS) return;
  const reason = `must be a number from 0 to ${MAX_DAYS}`;
  throw new AcodeError('ACODE-SBX-017', { field: 'olderThanDays', reason });
}

// A project image, which no registry has.
function isMadeHere({ reference }: PulledEntry): boolean {
  const parsed = parseReference(reference);
  return parsed !== null && isLocal(parsed);
}

type Kept = PrunedImage & { readonly reason: string };

// A further name takes nothing on the disk, and a project image is identified by the name that it was built with.
function aboutOf(entry: PulledEntry, image: StoredImage): PrunedImage {
  const reference = isMadeHere(entry) ? entry.reference.replace(/^docker\.io\/library\//, '') : entry.reference;
  const sizeBytes = entry.brought ? image.sizeBytes : 0;
  return { reference, id: entry.id, sizeBytes, lastUsedAt: new Date(entry.lastUsedAt).toISOString() };
}

/** Whether an image that acode pulled, built or tagged may be removed: not used since a time, and not needed. */
export function judge({ reference, brought, lastUsedAt }: PulledEntry, image: StoredImage, before: number): Verdict {
  // A project image that another took the place of has its id alone.
  const names = [...(image.tags.length === 0 ? [image.id] : []), ...[...image.tags, ...image.digests].map(fullName)];
  if (!names.includes(reference)) return { remove: false, reason: 'its name means another image now' };
  // Removing the last name would remove the image itself, and another user or tool brought that.
  if (!brought && image.tags.length < 2)
    return { remove: false, reason: 'it is the only name of an image that acode did not pull' };
  if (image.containers > 0) return { remove: false, reason: 'a container uses it' };
  return lastUsedAt > before ? { remove: false, reason: 'it was used not long ago' } : { remove: true };
}

interface Pruning {
  readonly host: ImageHost;
  readonly store: ImageStore;
  readonly operation: Operation;
  readonly signal: AbortSignal;
}

async function removeOne(
  { host, store, operation, signal }: Pruning,
  { engine, reference }: PulledEntry,
  about: PrunedImage,
  report: { readonly removed: PrunedImage[]; readonly failed: Kept[] },
): Promise<void> {
  try {
    await store.remove(reference, signal);
  } catch (error) {
    signal.throwIfAborted();
    report.failed.push({ ...about, reason: error instanceof Error ? error.message : String(error) });
    return;
  }
  report.removed.push(about);
  operation.step('info', 'image removed', { image: reference, imageId: about.id });
  await host.pulls.index.forget(engine, reference, signal);
  const { correlationId } = operation;
  const removal = { kind: 'removal', operation: 'prune', what: 'image', reason: 'asked', correlationId } as const;
  await host.audit.append({ ...removal, id: about.id, name: about.reference });
}
