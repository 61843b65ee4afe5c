// Inventory of this host: its status, its capabilities, and the cleanup of leftover resources.

import { realpath } from 'node:fs/promises';
import type {
  CleanupOptions,
  CleanupReport,
  EngineResource,
  LevelStatus,
  SandboxCounts,
  SandboxInfo,
  Status,
} from '../contract/host.ts';
import { AcodeError } from '../contract/errors.ts';
import { sweepForks } from './forks.ts';
import { ENGINE_LATE_REMEDY, unavailableReason } from '../contract/unavailable.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { Host } from '../run/host.ts';
import { chooseLevel } from '../run/level.ts';
import type { Chosen } from '../run/level.ts';
import { NO_LAYERS } from '../policy/layers.ts';
import { resolvePolicy } from '../policy/resolve.ts';
import { layersFor, workspaceOf } from '../run/repository.ts';
import { recogniseLanguages } from '../workspace/locate.ts';
import { removeBelonging, removeSandbox } from '../run/removing.ts';
import type { Judged, Removal } from '../run/removing.ts';
import { fewAtOnce, survey, surveySandboxes } from './sweep.ts';
import { Kept } from '../lifecycle/kept.ts';
import { CACHE, FILLING, isReachable, LAYER } from '../lifecycle/labels.ts';
import { Leases } from '../lifecycle/ownership.ts';
import { isForeign, isWantedElsewhere, mayGo, mayLive } from '../lifecycle/orphans.ts';
import type { Wanted } from '../lifecycle/orphans.ts';
import type { Operation } from '../records/telemetry.ts';
import { LEVELS, levelFacts, usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { Capability } from '../isolation/backend.ts';
import { inTime } from '../lifecycle/clock.ts';

// The user waits for the status: an engine that has not answered by then is reported as not answering.
const STATUS_MS = 1200;

/** The status of the host. A missing engine is part of the status, not an error. */
export async function statusOf(host: Host, signal: AbortSignal): Promise<Status> {
  const [levels, engine, { chosen, defaultImage, workspace }] = await Promise.all([
    capabilityMatrix(host, STATUS_MS),
    known(answeredInTime(host, engineState(host, signal), STATUS_MS)),
    commandsHere(host),
  ]);
  const state = engine instanceof AcodeError ? { sandboxes: countsOf([]), cacheVolumes: [] } : engine;
  // An engine may answer the first question in time and not the next ones: what is not known is not called available.
  const isLate = engine instanceof AcodeError && !(chosen instanceof AcodeError) && usesEngine(chosen.level);
  return { defaultImage, workspace, levels, ...state, ...availability(isLate ? engine : chosen) };
}

async function commandsHere(
  host: Host,
): Promise<{ chosen: Chosen | AcodeError; defaultImage: string; workspace: string }> {
  const workspace = await workspaceOf(host);
  const { policy, problem } = await defaultPolicy(host, workspace);
  const chosen = problem ?? (await known(chosenInTime(host, policy)));
  return { chosen, defaultImage: policy.image.value, workspace };
}

// Only the engine can be late. A refusal also names the levels that need no engine: asking those starts processes, which takes
// long on a busy machine, and the reason that the engine gave must not be lost meanwhile.
async function chosenInTime(host: Host, policy: Parameters<typeof chooseLevel>[1]): Promise<Chosen> {
  const choice = chooseLevel(host, policy);
  const decided = choice.then(settled, settled);
  const answered = host.capability().then(settled, settled);
  await Promise.race([decided, answeredInTime(host, answered, STATUS_MS)]);
  return choice;
}

const settled = (): void => undefined;

// Whether a command without options could run.
function availability(
  chosen: Pick<Chosen, 'level'> | AcodeError,
): Pick<Status, 'available' | 'level' | 'unavailableReason' | 'hint'> {
  if (!(chosen instanceof AcodeError)) return { available: true, level: chosen.level };
  return { available: false, level: null, unavailableReason: unavailableReason(chosen), hint: chosen.hint };
}

async function engineState(
  host: Host,
  signal: AbortSignal,
): Promise<Pick<Status, 'engine' | 'sandboxes' | 'cacheVolumes'>> {
  const backend = await host.engine();
  const [engine, sandboxes, belongings] = await Promise.all([
    backend.engine(signal),
    surveySandboxes(host, signal),
    backend.belongings(signal),
  ]);
  return { engine, sandboxes: countsOf(sandboxes), cacheVolumes: cacheVolumesOf(belongings, host.uid) };
}

/** The cache volumes of one user. */
export function cacheVolumesOf(belongings: readonly EngineResource[], uid: number): string[] {
  return belongings
    .filter(({ kind, labels }) => kind === 'volume' && labels[CACHE] !== undefined)
    .filter(({ labels }) => labels['acode.uid'] === String(uid))
    .map(({ name }) => name)
    .sort();
}

// Returns an error that has a code as a value; other errors are thrown.
async function known<Value>(answer: Promise<Value>): Promise<Value | AcodeError> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof AcodeError) return error;
    throw error;
  }
}

/**
 * Removes orphans, expired resources, and this user’s sandboxes that have ended. With `force`, also running ones;
 * sandboxes of another live session only with `allSessions`.
 */
export async function cleanup(
  host: Host,
  options: CleanupOptions & Pick<Wanted, 'everyHost'>,
  operation: Operation,
  signal: AbortSignal,
): Promise<CleanupReport> {
  const found = await survey(host, signal);
  const mayResource = (one: Judged<EngineResource>): boolean => resourceMayBeRemoved(one, options);
  const maySandbox = ({ thing, verdict }: Judged): boolean => mayGo(verdict, thing.state, options);
  const remove = options.dryRun ? async (): Promise<Removal> => 'removed' : null;
  // Containers first: the engine does not remove what a container still uses.
  const { removed, failed, kept } = await cleaned(
    found.sandboxes,
    maySandbox,
    remove ?? (one => removeSandbox(host, one, { may: maySandbox, operation, signal })),
  );
  const others = await cleaned(
    found.belongings.filter(one => !isCache(one)),
    mayResource,
    remove ?? (one => removeBelonging(host, one, { may: mayResource, operation, signal })),
  );
  // Last: the resources removed before no longer use a cache.
  const inUse = cachesInUse(found.belongings.filter(one => !mayResource(one)).map(({ thing }) => thing));
  const mayCache = async (one: Judged<EngineResource>): Promise<boolean> =>
    mayResource(one) && !(await usedNow(host, signal)).has(one.thing.name);
  const caches = await cleaned(
    found.belongings.filter(isCache),
    one => mayResource(one) && !inUse.has(one.thing.name),
    remove ?? (one => removeBelonging(host, one, { may: mayCache, operation, signal })),
  );
  return {
    removed,
    failed: failed.map(({ thing, reason }) => ({ sandbox: thing, reason })),
    kept,
    belongings: belongingsReport(others, caches),
    forks: await sweepForks(host, signal, options),
    dryRun: options.dryRun === true,
  };
}

function belongingsReport(...parts: readonly Cleaned<EngineResource>[]): CleanupReport['belongings'] {
  return {
    removed: parts.flatMap(({ removed }) => removed),
    failed: parts.flatMap(({ failed }) => failed.map(({ thing, reason }) => ({ belonging: thing, reason }))),
    kept: parts.flatMap(({ kept }) => kept),
  };
}

interface Cleaned<Thing> {
  readonly removed: Thing[];
  readonly failed: { readonly thing: Thing; readonly reason: string }[];
  readonly kept: Thing[];
}

async function cleaned<Thing>(
  judged: readonly Judged<Thing>[],
  may: (one: Judged<Thing>) => boolean,
  remove: (thing: Thing) => Promise<Removal>,
): Promise<Cleaned<Thing>> {
  const report: Cleaned<Thing> = { removed: [], failed: [], kept: [] };
  const own = judged.filter(one => !isForeign(one.verdict) || may(one));
  const outcomes = await fewAtOnce(own, async one => (may(one) ? remove(one.thing) : 'spared'));
  for (const [at, { thing }] of own.entries()) {
    const outcome = outcomes[at] ?? 'gone';
    if (outcome === 'removed') report.removed.push(thing);
    else if (outcome === 'spared') report.kept.push(thing);
    else if (outcome !== 'gone') report.failed.push({ thing, reason: outcome.failed });
  }
  return report;
}

// Resources that a session shares are removed with the session; volumes persist for the next one and are removed only
// on request.
function resourceMayBeRemoved(
  { thing, verdict }: Judged<EngineResource>,
  options: CleanupOptions & Pick<Wanted, 'everyHost'>,
): boolean {
  if (verdict.remove || isWantedElsewhere(verdict, options)) return true;
  if (isForeign(verdict) || verdict.because === 'mine') return false;
  if (mayLive(verdict)) return options.allSessions === true && options.force === true;
  return thing.kind === 'volume' ? options.volumes === true : options.force === true;
}

function isCache({ thing: { kind, labels } }: Judged<EngineResource>): boolean {
  return kind === 'volume' && labels[CACHE] !== undefined;
}

/**
 * The caches that sandboxes use as a base layer, or that are being filled. An engine does not know that a layer needs
 * its base volume, and would remove that while a sandbox uses it.
 */
export function cachesInUse(belongings: readonly Pick<EngineResource, 'labels'>[]): ReadonlySet<string> {
  return new Set(belongings.flatMap(({ labels }) => [labels[LAYER] ?? [], labels[FILLING] ?? []].flat()));
}

// Queried again before each removal: sandboxes start while others are removed. Resources of dead sessions count too,
// since a sandbox that could not be removed may still mount a cache.
async function usedNow(host: Host, signal: AbortSignal): Promise<ReadonlySet<string>> {
  return cachesInUse(await (await host.engine()).belongings(signal));
}

/** Adds the expiry time to each sandbox that has a lease on this machine. */
export async function withLeases<Info extends SandboxInfo>(host: Host, found: readonly Info[]): Promise<Info[]> {
  const leases = new Leases(host.directories.state);
  return Promise.all(
    found.map(async one => {
      const { labels, sandboxId } = one;
      const own = labels['acode.uid'] === String(host.uid) && labels['acode.host'] === host.identity;
      const until = own && isReachable(labels) ? leases.read(sandboxId) : null;
      if (until === null) return one;
      // The label is the latest time to which the lease can be extended; beside the actual expiry time it would
      // confuse.
      const { 'acode.expires': _, ...others } = labels;
      return { ...one, labels: others, expiresAt: new Date(until).toISOString() };
    }),
  );
}

/** Adds image names to sandboxes. acode creates sandboxes by image id, so that a moved tag changes nothing. */
export async function withImageNames(host: Host, found: readonly SandboxInfo[]): Promise<SandboxInfo[]> {
  if (found.length === 0) return [];
  // Names are only for display: the list is useful without them.
  const images = await known((await host.engine()).images.list(host.closing));
  if (images instanceof AcodeError) return [...found];
  const names = new Map(images.map(({ id, tags }) => [id, tags[0]]));
  const kept = new Kept(host);
  return Promise.all(
    found.map(async one => {
      // The record of a persistent sandbox contains the requested image name; an image may have several names.
      const asked = one.expiresAt === undefined ? undefined : (await kept.read(one.sandboxId))?.policy?.image;
      return { ...one, image: asked ?? names.get(one.image) ?? one.image };
    }),
  );
}

/** A report of a cleanup with the names of images, as a list has them. */
export async function withImagesNamed(host: Host, report: CleanupReport): Promise<CleanupReport> {
  const { removed, failed, kept } = report;
  const found = await withImageNames(host, [...removed, ...failed.map(({ sandbox }) => sandbox), ...kept]);
  const images = new Map(found.map(({ containerId, image }) => [containerId, image]));
  const named = (one: SandboxInfo): SandboxInfo => ({ ...one, image: images.get(one.containerId) ?? one.image });
  return {
    ...report,
    removed: removed.map(named),
    failed: failed.map(one => ({ ...one, sandbox: named(one.sandbox) })),
    kept: kept.map(named),
  };
}

function countsOf(judged: readonly Judged[]): SandboxCounts {
  const verdicts = judged.map(({ verdict }) => verdict);
  const because = (...reasons: readonly (typeof verdicts)[number]['because'][]): number =>
    verdicts.filter(verdict => reasons.includes(verdict.because)).length;
  return {
    running: judged.filter(({ thing }) => thing.state === 'running').length,
    total: judged.length,
    owned: because('mine', 'owner lives', 'owner unknown'),
    orphaned: because('orphaned'),
    expired: because('expired'),
    kept: because('kept'),
    foreign: verdicts.filter(isForeign).length,
  };
}

/** The policy of a command without options. If the repository’s configuration is refused, no command can run: `problem` says why. */
export async function defaultPolicy(
  host: Host,
  workspace: string,
): Promise<{ policy: EffectivePolicy; problem?: AcodeError }> {
  const languages = recogniseLanguages(await real(workspace));
  const about = { caller: { uid: 1, gid: 1 }, cpus: 1, profile: host.profile, languages };
  const policy = await known(layersFor(host, workspace).then(layers => resolvePolicy({}, layers, about)));
  return policy instanceof AcodeError ? { policy: resolvePolicy({}, NO_LAYERS, about), problem: policy } : { policy };
}

function real(path: string): Promise<string> {
  return realpath(path).catch(() => path);
}

const NO_RUNTIME: Readonly<Partial<Record<Level, string>>> = {
  gvisor: 'the engine has no runtime runsc; install gVisor and register it with the engine',
  microvm: 'the engine has no runtime kata; install Kata Containers and register it with the engine',
};

/** The availability of every level, strongest first. Queries the engine and all local levels in parallel. */
async function capabilityMatrix(host: Host, withinMs: number): Promise<LevelStatus[]> {
  // Local levels first: they start processes, which run while the engine answers.
  const [local, engine] = await Promise.all([
    host.localCapabilities().then(all => all.map(ofLocal)),
    engineLevels(host, withinMs),
  ]);
  const found = new Map([...engine, ...local].map(one => [one.level, one]));
  return LEVELS.toReversed().flatMap(level => found.get(level) ?? []);
}

async function engineLevels(host: Host, withinMs: number): Promise<LevelStatus[]> {
  const levels = LEVELS.filter(usesEngine);
  try {
    return levelsOfEngine(levels, await answeredInTime(host, host.capability(), withinMs));
  } catch (error) {
    if (!(error instanceof AcodeError)) throw error;
    const reason = unavailableReason(error);
    const absent = error.is('ACODE-SBX-008') && error.context.absent === true;
    return levels.map(level => ({ level, state: absent ? 'unavailable' : 'unknown', by: 'engine', reason }));
  }
}

/**
 * The engine’s answer, or an error if it is late. The engine may still answer later, so this does not mean that there
 * is none.
 */
function answeredInTime<Value>(host: Host, answer: Promise<Value>, ms: number): Promise<Value> {
  return inTime(host.telemetry.clock, ms, answer, () => {
    const reason = `it did not answer within ${ms / 1000} s`;
    const socket = host.engineNamed ?? 'its socket';
    return new AcodeError('ACODE-SBX-008', { socket, reason, lateMs: ms, remedy: ENGINE_LATE_REMEDY });
  });
}

/**
 * The levels that an engine offers through its runtimes. A listed runtime counts as available; its first start proves
 * whether it is what its name says.
 */
function levelsOfEngine(levels: readonly Level[], capability: Capability): LevelStatus[] {
  return levels.map(level => {
    const runtimes = Object.entries(capability.runtimes).flatMap(([name, its]) => (its === level ? [name] : []));
    const by = runtimes.length > 0 ? runtimes.join(', ') : 'engine';
    if (!capability.available) return { level, state: 'unavailable', by, ...reasonOf(capability) };
    if (runtimes.length > 0) return { level, state: 'available', by, ...refusalOf(runtimes, capability) };
    return { level, state: 'unavailable', by, reason: NO_RUNTIME[level] ?? 'the engine has no runtime for it' };
  });
}

// Almost every project has read-only mounts, so the status of an available level must mention this restriction.
function refusalOf(runtimes: readonly string[], { unprotecting = {} }: Capability): { reason?: string } {
  const refused = runtimes.flatMap(name => {
    const lacked = unprotecting[name];
    if (lacked === undefined) return [];
    return [
      `with ${name} a workspace with .git or other protected paths is refused; add \`${lacked}\` to the runtimeArgs of ${name} in the engine’s daemon.json and reload the engine`,
    ];
  });
  return refused.length === 0 ? {} : { reason: refused.join('; ') };
}

function ofLocal(capability: Capability): LevelStatus {
  const { level, available, unknown } = capability;
  return {
    level,
    state: available ? 'available' : unknown === true ? 'unknown' : 'unavailable',
    by: levelFacts(level).madeBy,
    ...reasonOf(capability),
  };
}

function reasonOf({ reason, remedy }: Capability): { reason?: string; remedy?: string } {
  return { ...(reason === undefined ? {} : { reason }), ...(remedy === undefined ? {} : { remedy }) };
}
