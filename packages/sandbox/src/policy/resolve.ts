// Step 1 of the pipe: the layers and the request become one effective policy in which every value knows who set it.

import { AcodeError } from '../contract/errors.ts';
import { policyInputSchema } from '../contract/policy.ts';
import type { EffectivePolicy, Limits, PolicyInput, Sourced, UserId } from '../contract/policy.ts';
import type { LoadedConfig } from '../config/load.ts';
import { CEILINGS, DEFAULT_IMAGE, LEAST_MEMORY, PROFILES, TIMEOUT_MS } from './profiles.ts';
import { formatBytes } from '../config/units.ts';

/** What resolving needs to know about the caller and the machine. */
export interface ResolveHost {
  /** The user the sandbox runs as unless told otherwise: the caller, so that files belong to them. */
  readonly caller: UserId;
  /** CPUs the engine has; it refuses more. */
  readonly cpus: number;
}

/** Merges built-in values, the user’s configuration and the request, and clamps them. Pure. */
export function resolvePolicy(input: PolicyInput, user: LoadedConfig, host: ResolveHost): EffectivePolicy {
  const request = checked(input);
  const available = refuseUnavailable(request);
  const pick = picker(user.source);
  const { defaults, images, mounts } = user.config.sandbox ?? {};
  const timeout = { key: 'sandbox.defaults.timeout_seconds', value: milliseconds(defaults?.timeout_seconds) };
  const asked = pick('user', request.user, { key: 'sandbox.defaults.user', value: defaults?.user }, 'caller');
  const profile = pick('profile', available.profile, undefined, 'exec' as const);
  const warnings: string[] = [];
  return {
    mode: { value: 'local-only', layer: 'built-in', where: 'default' },
    runtime: { value: null, layer: 'built-in', where: 'default' },
    imageTrust: {
      repositories: { value: ['docker.io/library/*'], layer: 'built-in', where: 'default' },
      machineRepositories: null,
      anywhere: { value: false, layer: 'built-in', where: 'default' },
      requireDigest: { value: false, layer: 'built-in', where: 'default' },
    },
    networkTimeoutMs: { value: null, layer: 'built-in', where: 'default' },
    dns: { value: [], layer: 'built-in', where: 'default' },
    ports: { value: [], layer: 'built-in', where: 'default' },
    mounts: { value: [], layer: 'built-in', where: 'default' },
    hostRoots: { value: [], layer: 'built-in', where: 'default' },
    denials: [],
    profile,
    level: pick('level', request.level, undefined, 'auto' as const),
    image: checkedImage(
      pick('image', request.image, { key: 'sandbox.images.default', value: images?.default }, DEFAULT_IMAGE),
    ),
    pull: pick('pull', available.pull, undefined, 'missing' as const),
    limits: resolveLimits(request, user, host, profile.value, warnings),
    timeoutMs: clamp(
      'timeoutMs',
      pick('timeoutMs', request.timeoutMs, timeout, TIMEOUT_MS),
      CEILINGS.timeoutMs,
      warnings,
    ),
    network: pick('network', available.network, undefined, 'none' as const),
    workspace: pick('workspace', available.workspace, workspaceMode(mounts?.workspace_mode), 'direct' as const),
    user: resolveUser(asked, host.caller),
    warnings,
  };
}

interface Configured<Value> {
  readonly key: string;
  readonly value: Value | undefined;
}

function picker(userSource: string) {
  return <Value>(
    name: string,
    request: Value | undefined,
    configured: Configured<Value> | undefined,
    builtIn: Value,
  ): Sourced<Value> => {
    if (request !== undefined) return { value: request, layer: 'request', where: `policy.${name}` };
    if (configured?.value !== undefined)
      return { value: configured.value, layer: 'user', where: `${userSource} (${configured.key})` };
    return { value: builtIn, layer: 'built-in', where: 'default' };
  };
}

function checked(input: PolicyInput): PolicyInput {
  const parsed = policyInputSchema.safeParse(input);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const field = ['policy', ...(issue?.path ?? [])].join('.');
  const reason =
    issue?.code === 'unrecognized_keys'
      ? `${issue.keys.join(', ')} is not a known field`
      : (issue?.message ?? 'is not valid');
  throw new AcodeError('ACODE-SBX-017', { field, reason });
}

/** The part of a request that has effect now. */
interface Available {
  readonly profile: 'exec' | 'task' | undefined;
  readonly pull: 'missing' | 'never' | undefined;
  readonly network: 'none' | undefined;
  readonly workspace: 'direct' | 'readonly' | undefined;
}

// Fields of the full policy that a later version gives effect to. They are refused, never ignored.
function refuseUnavailable(request: PolicyInput): Available {
  const { profile, pull, network, workspace } = request;
  if (profile === 'swarm') throw later('policy.profile: swarm', 'Use the exec or task profile.');
  if (pull === 'always') throw later('policy.pull: always', 'Pull the image yourself, then run without it.');
  if (network !== undefined && network !== 'none') throw later('policy.network other than none', NO_NETWORK);
  if (workspace === 'fork') throw later('policy.workspace: fork', 'Use readonly to keep the host tree untouched.');
  if (request.runtime !== undefined)
    throw later('policy.runtime', 'Leave it out: the engine’s default runtime is used.');
  for (const [field, instead] of LATER_LISTS) {
    const list = request[field];
    if (Array.isArray(list) && list.length > 0) throw later(`policy.${field}`, instead);
  }
  return { profile, pull, network, workspace };
}

const NO_NETWORK = 'Leave it out: the sandbox has no network.';

const LATER_LISTS = [
  ['ports', NO_NETWORK],
  ['dns', NO_NETWORK],
  ['mounts', 'Put what the command needs into the workspace.'],
  ['caches', 'Leave it out: nothing is cached between runs.'],
] as const;

function later(what: string, instead: string): AcodeError {
  return new AcodeError('ACODE-SBX-016', { what, instead });
}

const CONFIG_KEYS: Readonly<Record<keyof Limits, string>> = {
  memoryBytes: 'sandbox.defaults.memory_mb',
  swapBytes: 'sandbox.defaults.memory_swap_mb',
  cpus: 'sandbox.defaults.cpu_limit',
  pids: 'sandbox.defaults.pids_limit',
  openFiles: 'sandbox.defaults.open_files',
  tmpBytes: 'sandbox.mounts.tmpfs_size',
  outputBytes: 'sandbox.output.max_bytes',
};

function resolveLimits(
  request: PolicyInput,
  user: LoadedConfig,
  host: ResolveHost,
  profile: 'exec' | 'task',
  warnings: string[],
): EffectivePolicy['limits'] {
  const configured = configuredLimits(user);
  const pick = picker(user.source);
  const one = (name: keyof Limits): Sourced<number> => {
    const asked = pick(
      `limits.${name}`,
      request.limits?.[name],
      { key: CONFIG_KEYS[name], value: configured[name] },
      PROFILES[profile][name],
    );
    const ceiling = name === 'cpus' ? Math.min(CEILINGS.cpus, host.cpus) : CEILINGS[name];
    return clamp(`limits.${name}`, asked, ceiling, warnings);
  };
  const memoryBytes = one('memoryBytes');
  if (memoryBytes.value < LEAST_MEMORY) {
    throw new AcodeError('ACODE-SBX-017', {
      field: 'policy.limits.memoryBytes',
      reason: `must be at least ${formatBytes(LEAST_MEMORY)}`,
    });
  }
  return {
    memoryBytes,
    swapBytes: one('swapBytes'),
    cpus: one('cpus'),
    pids: one('pids'),
    openFiles: one('openFiles'),
    tmpBytes: one('tmpBytes'),
    outputBytes: one('outputBytes'),
  };
}

function configuredLimits(user: LoadedConfig): Partial<Record<keyof Limits, number | undefined>> {
  const { defaults, mounts, output } = user.config.sandbox ?? {};
  const swap = defaults?.memory_swap_mb;
  return {
    memoryBytes: defaults?.memory_mb,
    swapBytes: swap === undefined ? undefined : swap * 1024 ** 2,
    cpus: defaults?.cpu_limit,
    pids: defaults?.pids_limit,
    openFiles: defaults?.open_files,
    tmpBytes: mounts?.tmpfs_size,
    outputBytes: output?.max_bytes,
  };
}

function clamp(name: string, asked: Sourced<number>, ceiling: number, warnings: string[]): Sourced<number> {
  if (asked.value <= ceiling) return asked;
  // A built-in default above what a small machine has is nobody’s mistake and needs no warning.
  if (asked.layer !== 'built-in') {
    const shown = name.endsWith('Bytes') ? formatBytes : String;
    const what = asked.layer === 'request' ? name : asked.where;
    const change = `${shown(asked.value)} to ${shown(ceiling)}`;
    warnings.push(`${what} was lowered from ${change}, the most that is allowed here.`);
  }
  return { ...asked, value: ceiling };
}

function resolveUser(asked: Sourced<string>, caller: UserId): Sourced<UserId> {
  const { layer, where } = asked;
  const value = asked.value === 'caller' || asked.value === 'host' ? caller : parseUser(asked.value);
  if (value.uid === 0 || value.gid === 0) {
    throw new AcodeError('ACODE-SBX-010', {
      violation: 'PrivilegedUser',
      detail: `a sandbox never runs as root (${layer}: ${where})`,
    });
  }
  return { value, layer, where };
}

function parseUser(text: string): UserId {
  const [uid = NaN, gid = NaN] = text.split(':').map(Number);
  if (![uid, gid].every(id => Number.isInteger(id) && id >= 0 && id < 2 ** 31)) {
    throw new AcodeError('ACODE-SBX-017', { field: 'policy.user', reason: `${text} is not uid:gid` });
  }
  return { uid, gid };
}

// [host[:port]/]path[:tag][@digest], or an image id. What is none of these never reaches an engine.
const PART = '[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*';
const REFERENCE = new RegExp(
  `^(?:sha256:[0-9a-f]{64}|(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?/)?${PART}(?:/${PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?)$`,
);

function checkedImage(image: Sourced<string>): Sourced<string> {
  if (image.value.length <= 512 && REFERENCE.test(image.value)) return image;
  throw new AcodeError('ACODE-SBX-017', {
    field: image.where,
    reason: `${JSON.stringify(image.value.slice(0, 80))} is not an image reference`,
  });
}

function workspaceMode(mode: 'rw' | 'ro' | undefined): Configured<'direct' | 'readonly'> {
  const value = mode === undefined ? undefined : mode === 'ro' ? 'readonly' : 'direct';
  return { key: 'sandbox.mounts.workspace_mode', value };
}

function milliseconds(seconds: number | undefined): number | undefined {
  return seconds === undefined ? undefined : Math.round(seconds * 1000);
}
