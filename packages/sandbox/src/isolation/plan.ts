// Step 3 of the pipeline: turns an effective policy into the plan of one sandbox. Pure: no I/O, and the same input
// gives the same plan.

import { createHash } from 'node:crypto';
import { posix } from 'node:path';
import type { CacheSpec } from '../contract/caches.ts';
import { AcodeError } from '../contract/errors.ts';
import type { Level } from '../contract/levels.ts';
import { networkInput } from '../contract/network.ts';
import type { EffectivePolicy, Limits } from '../contract/policy.ts';
import type {
  DependencySpec,
  DiskThroughput,
  ImageFacts,
  ImageSpec,
  MemoryLayerSpec,
  MountSpec,
  SandboxIdentity,
  SandboxSpec,
  ServiceSpec,
  StoreSpec,
  TmpfsSpec,
} from '../contract/spec.ts';
import { serviceLabels } from '../lifecycle/labels.ts';
import { isDangerous } from '../policy/environment.ts';

/** Path of the workspace inside a sandbox, unless its policy names another. */
export const WORKSPACE_TARGET = '/workspace';

/** Path of the directory into which a command writes artifacts. */
export const OUT_TARGET = '/out';

/** Home directory of the user inside the sandbox. */
export const HOME = '/home/sandbox';
/** What a sandbox is called that holds memory for another, where services are listed. */
export const HOLDER_NAME = 'disk';
const STORE_TARGET = '/store';
const RUN_BYTES = 16 * 1024 ** 2;

/** Inputs of planning besides the policy. */
export interface PlanFacts {
  readonly level: Level;
  readonly image: ImageFacts;
  /** The workspace and all other mounts from this machine, validated, in mount order. */
  readonly mounts: readonly MountSpec[];
  /** The package manager caches of the sandbox. */
  readonly caches?: readonly CacheSpec[];
  /** The dependencies of the project image that the sandbox has in its workspace. */
  readonly dependencies?: readonly DependencySpec[];
  /** The memory that takes what is written to its fork; absent where that goes to a directory. */
  readonly memoryLayer?: MemoryLayerSpec | undefined;
  /** The file system in memory that it holds for another sandbox. */
  readonly store?: Pick<StoreSpec, 'bytes'>;
  /** The limit of disk throughput, with the devices it is for; absent for none. */
  readonly throughput?: DiskThroughput | undefined;
  /** Whether artifacts will be copied out of the sandbox. */
  readonly artifacts?: boolean;
  /** The sandboxes that share its loopback, planned. */
  readonly services?: readonly ServiceSpec[];
  /** The working directory, for a sandbox that has no workspace: a service. */
  readonly alone?: { readonly workdir: string };
}

/** Plans a sandbox; `identify` names it once its hash is known. */
export function planSandbox(
  policy: EffectivePolicy,
  facts: PlanFacts,
  identify: (hash: string) => SandboxIdentity,
): SandboxSpec {
  const body = {
    level: facts.level,
    image: imageSpec(facts.image),
    user: policy.user.value,
    limits: limitValues(policy),
    runtime: policy.runtime.value,
    network: policy.network.value,
    dns: policy.dns.value,
    ports: policy.ports.value,
    workdir: workdirOf(facts),
    home: HOME,
    mounts: facts.mounts,
    caches: facts.caches ?? [],
    // Absent and not empty, so that a plan without them has the hash that it had before there were any.
    ...(facts.dependencies && facts.dependencies.length > 0 ? { dependencies: facts.dependencies } : {}),
    tmpfs: tmpfsSpecs(policy.limits.tmpBytes.value, facts),
    ...diskSpec(policy),
    ...rarely(facts),
  };
  // A network is hashed as it was requested: persistent sandboxes of earlier versions have such hashes in their labels.
  // Which hosts an allow-list holds is the proxy’s: sandboxes with any list are interchangeable.
  const network = body.network.kind === 'allow' ? 'allow' : networkInput(body.network);
  const { services = [], memoryLayer } = facts;
  const hashed = { ...body, network, ...hashedServices(services), ...hashedMemory(memoryLayer) };
  const hash = createHash('sha256').update(JSON.stringify(hashed)).digest('hex');
  const identity = identify(hash);
  const owned = services.map(service => ({ ...service, spec: ownedBy(service.spec, service.name, identity) }));
  return {
    identity,
    ...body,
    ...(services.length > 0 ? { services: owned } : {}),
    ...(memoryLayer
      ? { memoryLayer: { ...memoryLayer, holder: ownedBy(memoryLayer.holder, HOLDER_NAME, identity) } }
      : {}),
    hash,
  };
}

// Absent where there is none, so that every other plan has the hash that it had before there were any.
function rarely({ store, throughput }: PlanFacts): Pick<SandboxSpec, 'store' | 'throughput'> {
  return {
    ...(store ? { store: { target: STORE_TARGET, volume: '', mountpoint: '', ...store } } : {}),
    ...(throughput ? { throughput } : {}),
  };
}

function workdirOf({ alone, mounts }: PlanFacts): string {
  return alone?.workdir ?? mounts.find(({ purpose }) => purpose === 'workspace')?.target ?? WORKSPACE_TARGET;
}

function hashedMemory(layer: MemoryLayerSpec | undefined): object {
  return layer ? { memoryLayer: { bytes: layer.bytes, hash: layer.holder.hash } } : {};
}

// Without their identities: those say nothing about what they can do. Absent where there are none, as before there were any.
function hashedServices(services: readonly ServiceSpec[]): object {
  if (services.length === 0) return {};
  return { services: services.map(({ spec, ...service }) => ({ ...service, hash: spec.hash })) };
}

function ownedBy(spec: SandboxSpec, name: string, { sandboxId }: SandboxIdentity): SandboxSpec {
  const labels = { ...spec.identity.labels, ...serviceLabels(name, sandboxId) };
  return { ...spec, identity: { ...spec.identity, labels } };
}

// Memory has its own end: nobody has to watch it.
function diskSpec({ workspace, diskBytes, diskHard }: EffectivePolicy): Pick<SandboxSpec, 'disk'> {
  const isWatched = workspace.value === 'fork' && diskBytes.value !== null && !diskHard.value;
  return isWatched ? { disk: { bytes: diskBytes.value } } : {};
}

function limitValues(policy: EffectivePolicy): Limits {
  const { memoryBytes, swapBytes, cpus, pids, openFiles, tmpBytes, outputBytes } = policy.limits;
  return {
    memoryBytes: memoryBytes.value,
    swapBytes: swapBytes.value,
    cpus: cpus.value,
    pids: pids.value,
    openFiles: openFiles.value,
    tmpBytes: tmpBytes.value,
    outputBytes: outputBytes.value,
  };
}

function imageSpec(image: ImageFacts): ImageSpec {
  const name = (variable: string): string => variable.replace(/=.*$/s, '');
  // PATH is dangerous from a caller but required from the image: it lists the directories of the image’s own programs.
  const kept = (variable: string): boolean => name(variable) === 'PATH' || !isDangerous(name(variable));
  return {
    reference: image.reference,
    id: image.id,
    digest: image.digest,
    environment: image.environment.filter(kept),
    removed: image.environment.filter(variable => !kept(variable)).map(name),
  };
}

// A volume of the image would be writable as root and would remain on the engine; a tmpfs of limited size covers it.
function tmpfsSpecs(
  bytes: number,
  { image: { volumes }, mounts, caches = [], artifacts = false, alone }: PlanFacts,
): TmpfsSpec[] {
  const own: TmpfsSpec[] = [
    { target: '/tmp', bytes, mode: '1777' },
    { target: '/run', bytes: Math.min(bytes, RUN_BYTES), mode: '0755' },
    { target: HOME, bytes, mode: '0700' },
    ...(artifacts ? [{ target: OUT_TARGET, bytes, mode: '0755' }] : []),
  ];
  const mounted = [...(alone ? [] : [WORKSPACE_TARGET]), ...[...mounts, ...caches].map(({ target }) => target)];
  const taken = new Set([...own.map(({ target }) => target), ...mounted]);
  const wanted = new Set(volumes.map(volume => volumeTarget(volume, mounted)));
  const masks = [...wanted].filter(target => !taken.has(target)).map(target => ({ target, bytes, mode: '0755' }));
  return [...own, ...masks];
}

// Mounts over the kernel’s own file systems have been used to escape from runtimes. A mount inside the workspace or
// another mount would create directories on the host, as root. An image has no reason to request either.
function volumeTarget(volume: string, mounted: readonly string[]): string {
  const target = posix.resolve('/', volume);
  if (mounted.includes(target)) return target;
  if (
    target !== '/' &&
    !['/proc', '/sys', '/dev', ...mounted].some(tree => target === tree || target.startsWith(`${tree}/`))
  )
    return target;
  throw new AcodeError('ACODE-SBX-010', {
    violation: 'DangerousImage',
    detail: `the image declares a volume at ${volume}`,
  });
}
