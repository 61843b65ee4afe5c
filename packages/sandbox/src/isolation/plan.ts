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
  ImageFacts,
  ImageSpec,
  MountSpec,
  SandboxIdentity,
  SandboxSpec,
  TmpfsSpec,
} from '../contract/spec.ts';
import { isDangerous } from '../policy/environment.ts';

/** Path of the workspace inside a sandbox, unless its policy names another. */
export const WORKSPACE_TARGET = '/workspace';

/** Path of the directory into which a command writes artifacts. */
export const OUT_TARGET = '/out';

/** Home directory of the user inside the sandbox. */
export const HOME = '/home/sandbox';
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
  /** Whether artifacts will be copied out of the sandbox. */
  readonly artifacts?: boolean;
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
    workdir: facts.mounts.find(({ purpose }) => purpose === 'workspace')?.target ?? WORKSPACE_TARGET,
    home: HOME,
    mounts: facts.mounts,
    caches: facts.caches ?? [],
    // Absent and not empty, so that a plan without them has the hash that it had before there were any.
    ...(facts.dependencies && facts.dependencies.length > 0 ? { dependencies: facts.dependencies } : {}),
    tmpfs: tmpfsSpecs(policy.limits.tmpBytes.value, facts),
    ...diskSpec(policy),
  };
  // A network is hashed as it was requested: persistent sandboxes of earlier versions have such hashes in their labels.
  // Which hosts an allow-list holds is the proxy’s: sandboxes with any list are interchangeable.
  const network = body.network.kind === 'allow' ? 'allow' : networkInput(body.network);
  const hashed = { ...body, network };
  const hash = createHash('sha256').update(JSON.stringify(hashed)).digest('hex');
  return { identity: identify(hash), ...body, hash };
}

function diskSpec({ workspace, diskBytes }: EffectivePolicy): Pick<SandboxSpec, 'disk'> {
  return workspace.value === 'fork' && diskBytes.value !== null ? { disk: { bytes: diskBytes.value } } : {};
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
  { image: { volumes }, mounts, caches = [], artifacts = false }: PlanFacts,
): TmpfsSpec[] {
  const own: TmpfsSpec[] = [
    { target: '/tmp', bytes, mode: '1777' },
    { target: '/run', bytes: Math.min(bytes, RUN_BYTES), mode: '0755' },
    { target: HOME, bytes, mode: '0700' },
    ...(artifacts ? [{ target: OUT_TARGET, bytes, mode: '0755' }] : []),
  ];
  const mounted = [WORKSPACE_TARGET, ...[...mounts, ...caches].map(({ target }) => target)];
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
