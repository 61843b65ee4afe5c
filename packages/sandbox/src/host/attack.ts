// Opens hosts for the doctor’s live attack: the same pipe as for every command, on workspaces of the attack’s own.

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
import { decideImage } from '../policy/images.ts';
import { chooseImage } from '../policy/language-image.ts';
import { resolvePolicy } from '../policy/resolve.ts';
import { explain } from '../run/planning.ts';
import { start } from '../run/run.ts';

/** How the attack itself is tested: on sandboxes that lack protections, where the card must turn red. */
export interface Rehearsal {
  readonly against: readonly Weakening[];
  /** Only the trials with these rows; else all. */
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

/** The level to attack: the one that was named, or the one that an ordinary command gets. */
async function choose(
  host: Host,
  { level, runtime, image }: AttackOptions,
): Promise<{ chosen: Chosen; policy: EffectivePolicy }> {
  const { machine, config: user, environmentMode, caller } = host;
  // Whoever names a runtime or an image means an engine.
  const asked = level ?? ((runtime ?? image) === undefined ? undefined : 'auto');
  const input: PolicyFields = {
    ...(asked === undefined ? {} : { level: asked }),
    ...(runtime === undefined ? {} : { runtime }),
  };
  // A repository has no say in how the host is attacked.
  const layers = { machine, user, repository: null, environmentMode };
  const policy = resolvePolicy(input, layers, { caller, cpus: availableParallelism() });
  const aimed = level === undefined || usesEngine(level) ? host : { ...host, attacked: level };
  return { chosen: await chooseLevel(aimed, policy), policy };
}

// What a level does not have is refused and never left out in silence.
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

// How many images are looked at before the default one is asked for after all.
const MAX_LOOKED_AT = 20;

// The default image is often not on an engine whose projects all name one of their own: then one that is there will do, if
// it could be used for a run without further consent.
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

// Those that commands in projects get, and then what came from a trusted registry, the smallest first.
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

/** Where the sandboxes of an attack are made. */
interface AttackedEngine {
  readonly openFurther: OpenFurther;
  readonly socket: string | null;
  /** The level without an engine that is attacked; null on an engine. */
  readonly at: Chosen | null;
}

// Never a place in the chain.
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
  // What the level can do was asked once, and need not be proven for each sandbox again.
  const aimed: Host = at ? { ...opened, attacked: at.level, localCapability: async () => at.capability } : opened;
  // What an attack prints is nobody’s to keep, and what it runs is written down as one attack.
  const host: Host = { ...aimed, backend, savedLogs: null, audit: UNRECORDED };
  return {
    run: async (command, request) => {
      const running = start(host, command, request, false);
      opened.keep(running);
      return (await running).result;
    },
    explain: (command, request) =>
      // A plan is the same whatever is taken from it afterwards.
      explain(aimed, command, request, AbortSignal.any([host.closing, ...(request.signal ? [request.signal] : [])])),
    close: async () => {
      await weakened?.[Symbol.asyncDispose]();
      await opened.close();
    },
  };
}
