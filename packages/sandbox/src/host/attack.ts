// Opens hosts for `acode doctor --attack`: the same pipeline as for every command, on the attack’s own workspaces.

import { availableParallelism, release } from 'node:os';
import { AcodeError } from '../contract/errors.ts';
import { LANGUAGES } from '../contract/languages.ts';
import { backendOf, usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy, PolicyFields } from '../contract/policy.ts';
import type { ImageFacts } from '../contract/spec.ts';
import { attackBackend } from './doctor/attack.ts';
import type { Target } from './doctor/attack.ts';
import type { AttackedHost, TargetOptions } from './doctor/bench.ts';
import type { AttackOptions, AttackReport } from './doctor/report.ts';
import { testEnvironmentOf } from './doctor/test-environment.ts';
import type { Host, OpenFurther } from '../run/host.ts';
import type { ImageStore, WeakenedBackend, Weakening } from '../isolation/backend.ts';
import { chooseLevel } from '../run/level.ts';
import type { Chosen } from '../run/level.ts';
import { decideImage, chooseImage } from '../policy/images.ts';
import { resolvePolicy } from '../policy/resolve.ts';
import { explain } from '../run/explain.ts';
import { start } from '../run/run.ts';

/** Test options of the attack: sandboxes without some protections, for which the report card must show failures. */
export interface Rehearsal {
  readonly against: readonly Weakening[];
  /** Only the trials with these rows; all by default. */
  readonly only?: readonly string[];
}

/** Attacks sandboxes of a host. */
export async function attackHost(
  host: Host,
  openFurther: OpenFurther,
  options: AttackOptions,
  rehearsal?: Rehearsal,
): Promise<AttackReport> {
  const { chosen, policy } = await choose(host, options);
  const local = !usesEngine(chosen.level);
  if (local) refuseMixed(chosen.level, options);
  await host.audit.append({
    kind: 'event',
    operation: 'run',
    correlationId: '',
    event: 'attack on sandboxes of this host’s own',
    detail: { level: chosen.level },
  });
  const target = local ? withoutEngine(chosen.level) : await onEngine(host, chosen, policy, options);
  const engine: AttackedEngine = { openFurther, socket: target.socket, at: local ? chosen : null };
  const open = (asked: TargetOptions): Promise<AttackedHost> => openTarget(engine, asked);
  return attackBackend({ open, target, signal: host.closing, ...rehearsal }, options);
}

/** Chooses the level to attack: the requested one, or the one that an ordinary command gets. */
async function choose(
  host: Host,
  { level, runtime, image }: AttackOptions,
): Promise<{ chosen: Chosen; policy: EffectivePolicy }> {
  const { machine, config: user, environmentMode, caller } = host;
  // A caller that names a runtime or an image wants an engine.
  const asked = level ?? ((runtime ?? image) === undefined ? undefined : 'auto');
  const input: PolicyFields = {
    ...(asked === undefined ? {} : { level: asked }),
    ...(runtime === undefined ? {} : { runtime }),
  };
  // The repository’s configuration does not affect the attack.
  const layers = { machine, user, repository: null, environmentMode };
  const policy = resolvePolicy(input, layers, { caller, cpus: availableParallelism() });
  const aimed = level === undefined || usesEngine(level) ? host : { ...host, attacked: level };
  return { chosen: await chooseLevel(aimed, policy), policy };
}

// Options that a level does not support are refused, never silently ignored.
function refuseMixed(level: Level, { runtime, image }: AttackOptions): void {
  if ((runtime ?? image) === undefined) return;
  throw new AcodeError('ACODE-SBX-016', {
    what: `${runtime === undefined ? 'An image' : 'A runtime'} at level ${level}`,
    instead: 'Leave it out: this level runs the programs of this host.',
  });
}

function withoutEngine(level: Level): Target {
  return {
    environment: testEnvironmentOf(level),
    engine: backendOf(level),
    version: '',
    runtime: '',
    image: 'host',
    policy: {},
    socket: null,
    kernel: release(),
  };
}

async function onEngine(
  host: Host,
  { level, runtime }: Chosen,
  policy: EffectivePolicy,
  options: AttackOptions,
): Promise<Target> {
  const backend = await host.engine();
  const { image, reason } = await attackedFrom(host, backend.images, policy, options);
  const { engine, kernel } = await backend.diagnose(image, host.closing);
  return {
    environment: testEnvironmentOf(level),
    engine: backendOf(level),
    version: engine.version,
    runtime: runtime ?? engine.defaultRuntime,
    image,
    ...(reason === undefined ? {} : { imageReason: reason }),
    policy: { image, level: policy.level.value, ...(runtime === null ? {} : { runtime }) },
    socket: engine.socket,
    kernel,
  };
}

// How many images to consider before falling back to the default one.
const MAX_LOOKED_AT = 20;

// If every project names its own image, the default image is often not on the engine. Another image on the engine then
// serves, if a run could use it without further consent.
async function attackedFrom(
  host: Host,
  store: ImageStore,
  policy: EffectivePolicy,
  options: AttackOptions,
): Promise<{ readonly image: string; readonly reason?: string }> {
  if (options.image !== undefined) return { image: options.image };
  const wanted = policy.image.value;
  if (await store.find(wanted, host.closing)) return { image: wanted };
  for (const reference of (await otherImages(host, store)).slice(0, MAX_LOOKED_AT)) {
    const facts = await store.find(reference, host.closing);
    if (facts && isAllowed(reference, facts, policy))
      return { image: reference, reason: `${wanted} is not on this engine` };
  }
  return { image: wanted };
}

// First the images that commands in projects get, then those from a trusted registry, smallest first.
async function otherImages(host: Host, store: ImageStore): Promise<string[]> {
  const { machine, config: user, environmentMode } = host;
  const layers = { machine, user, repository: null, environmentMode };
  const named = LANGUAGES.map(language => chooseImage(undefined, layers, [{ language, file: '' }]).image.value);
  const stored = (await store.list(host.closing))
    .filter(({ digests }) => digests.length > 0)
    .sort((one, other) => one.sizeBytes - other.sizeBytes)
    .flatMap(({ tags }) => tags);
  return [...new Set([...named, ...stored])];
}

function isAllowed(reference: string, facts: ImageFacts, { imageTrust }: EffectivePolicy): boolean {
  try {
    decideImage(reference, facts, imageTrust);
    return true;
  } catch (error) {
    if (error instanceof AcodeError) return false;
    throw error;
  }
}

/** The engine or level on which the attack creates its sandboxes. */
interface AttackedEngine {
  readonly openFurther: OpenFurther;
  readonly socket: string | null;
  /** The attacked level without an engine; null for an engine. */
  readonly at: Chosen | null;
}

// An audit log that records nothing: the attack as a whole has one record.
const UNRECORDED: Host['audit'] = {
  append: async () => ({ seq: 0, hash: '' }),
  fingerprint: async () => '',
};

async function openTarget({ openFurther, socket, at }: AttackedEngine, options: TargetOptions): Promise<AttackedHost> {
  const opened = await openFurther({ workspace: options.workspace, socket: options.socket ?? socket });
  const { weakenings, beforeCreate } = options;
  let weakened: WeakenedBackend | null = null;
  const backend: Host['backend'] = async level => {
    const whole = await opened.backend(level);
    if (!whole || (weakenings.length === 0 && !beforeCreate)) return whole;
    weakened ??= whole.weakened(weakenings, beforeCreate);
    return weakened;
  };
  // The level’s capability is already known, so it is not probed again for each sandbox.
  const aimed: Host = at ? { ...opened, attacked: at.level, localCapability: async () => at.capability } : opened;
  // The output of an attack is not saved, and its commands are not recorded one by one.
  const host: Host = { ...aimed, backend, savedLogs: null, audit: UNRECORDED };
  return {
    run: async (command, request) => {
      const running = start(host, command, request, false);
      opened.keep(running);
      return (await running).result;
    },
    explain: (command, request) =>
      // A plan does not depend on the protections that are removed later.
      explain(aimed, command, request, AbortSignal.any([host.closing, ...(request.signal ? [request.signal] : [])])),
    close: async () => {
      await weakened?.[Symbol.asyncDispose]();
      await opened.close();
    },
  };
}
