// Limits and built-in profiles: the requested value, lowered to the strictest ceiling.

import type { Config } from './config/schema.ts';
import { formatBytes } from '../contract/units.ts';
import type { EffectivePolicy, Limits, PolicyFields, Sourced } from '../contract/policy.ts';
import type { PolicyRules } from '../contract/host.ts';
import type { ProfileName } from '../contract/profiles.ts';
import { builtInValue, pick, placeOf } from './layers.ts';
import type { Choice, Layers } from './layers.ts';
import { CEILINGS, profileLimits } from './profiles.ts';
import type { Machine } from './profiles.ts';

type Sandbox = NonNullable<Config['sandbox']>;
type Ceilings = NonNullable<Sandbox['ceilings']>;

/** A limit, and its two keys. */
interface LimitKeys {
  readonly key: string;
  readonly read: (sandbox: Sandbox) => number | undefined;
  readonly ceiling: keyof Ceilings;
}

const LIMITS: Readonly<Record<keyof Limits, LimitKeys>> = {
  memoryBytes: { key: 'sandbox.defaults.memory_mb', read: s => s.defaults?.memory_mb, ceiling: 'memory_mb' },
  swapBytes: {
    key: 'sandbox.defaults.memory_swap_mb',
    read: s => s.defaults?.memory_swap_mb,
    ceiling: 'memory_swap_mb',
  },
  cpus: { key: 'sandbox.defaults.cpu_limit', read: s => s.defaults?.cpu_limit, ceiling: 'cpu_limit' },
  pids: { key: 'sandbox.defaults.pids_limit', read: s => s.defaults?.pids_limit, ceiling: 'pids_limit' },
  openFiles: { key: 'sandbox.defaults.open_files', read: s => s.defaults?.open_files, ceiling: 'open_files' },
  tmpBytes: { key: 'sandbox.mounts.tmpfs_size', read: s => s.mounts?.tmpfs_size, ceiling: 'tmpfs_size' },
  outputBytes: { key: 'sandbox.output.max_bytes', read: s => s.output?.max_bytes, ceiling: 'output_bytes' },
};

/** What limits are resolved for. */
export interface LimitsFor {
  readonly request: PolicyFields;
  readonly profile: ProfileName;
  /** What the engine has; it refuses more CPUs. */
  readonly machine: Machine;
}

/** Every limit, clamped; lowered ones are listed in `warnings`. */
export function resolveLimits(layers: Layers, of: LimitsFor, warnings: string[]): EffectivePolicy['limits'] {
  const one = (name: keyof Limits): Sourced<number> => {
    const { key, read, ceiling } = LIMITS[name];
    const asked = pick(layers, {
      field: `limits.${name}`,
      request: of.request.limits?.[name],
      key,
      read,
      builtIn: profileLimits(of.profile, of.machine)[name],
    });
    const own = layers.user.config.sandbox;
    const most = repositoryMost(of, name, own ? read(own) : undefined);
    const allowed = clampRepository(asked, most, unitOf(name), warnings);
    const engine = name === 'cpus' ? [builtInValue(of.machine.cpus)] : [];
    return clamp(name, allowed, [...engine, ...ceilingsOf(layers, ceiling, CEILINGS[name])], warnings);
  };
  return {
    memoryBytes: one('memoryBytes'),
    swapBytes: one('swapBytes'),
    cpus: one('cpus'),
    pids: one('pids'),
    openFiles: one('openFiles'),
    tmpBytes: one('tmpBytes'),
    outputBytes: one('outputBytes'),
  };
}

/** The time limit of a command, clamped. */
export function resolveTimeout(layers: Layers, of: LimitsFor, warnings: string[]): Sourced<number> {
  const asked = pick(layers, {
    field: 'timeoutMs',
    request: of.request.timeoutMs,
    key: 'sandbox.defaults.timeout_seconds',
    read: sandbox => milliseconds(sandbox.defaults?.timeout_seconds),
    builtIn: profileLimits(of.profile, of.machine).timeoutMs,
  });
  const own = milliseconds(layers.user.config.sandbox?.defaults?.timeout_seconds);
  const allowed = clampRepository(asked, repositoryMost(of, 'timeoutMs', own), inSeconds, warnings);
  return clamp('timeoutMs', allowed, timeCeilings(layers), warnings);
}

/** How long the network remains connected, clamped like the time limit; null for as long as the command runs. */
export function resolveNetworkTimeout(layers: Layers, warnings: string[]): Sourced<number | null> {
  const asked = pick<number | null>(layers, {
    field: 'network',
    request: undefined,
    key: 'sandbox.network.timeout_seconds',
    read: sandbox => milliseconds(sandbox.network?.timeout_seconds),
    builtIn: null,
  });
  const { value } = asked;
  return value === null ? asked : clamp('networkTimeoutMs', { ...asked, value }, timeCeilings(layers), warnings);
}

/** What a fork may take on disk; null for no limit. A repository may only ask for less than the user’s own file says. */
export function resolveDisk(request: PolicyFields, layers: Layers): Sourced<number | null> {
  return unlimitedUnlessSet(layers, {
    field: 'disk',
    request: request.disk?.bytes,
    key: 'sandbox.mounts.fork_size',
    read: sandbox => sandbox.mounts?.fork_size,
  });
}

/** Bytes a second that a sandbox may read from the disk of the workspace, and write to it; null for no limit. */
export function resolveDiskRates(layers: Layers): Pick<EffectivePolicy, 'diskReadRate' | 'diskWriteRate'> {
  const of = (key: 'read_bps' | 'write_bps'): Sourced<number | null> =>
    unlimitedUnlessSet(layers, {
      field: 'blkio',
      request: undefined,
      key: `sandbox.defaults.blkio.${key}`,
      read: sandbox => sandbox.defaults?.blkio?.[key],
    });
  return { diskReadRate: of('read_bps'), diskWriteRate: of('write_bps') };
}

/** What the connections of an allow-list may take; null for no limit. What the machine’s file says is the most. */
export function resolveNetworkLimits(
  { networkLimits }: PolicyFields,
  layers: Layers,
  warnings: string[],
): Pick<EffectivePolicy, 'networkRate' | 'networkBytes'> {
  const of = (
    name: 'networkRate' | 'networkBytes',
    request: number | undefined,
    key: 'rate' | 'max_bytes',
  ): Sourced<number | null> => {
    const path = `sandbox.network.${key}`;
    const asked = unlimitedUnlessSet(layers, {
      field: 'networkLimits',
      request,
      key: path,
      read: sandbox => sandbox.network?.[key],
    });
    const most = layers.machine?.config.sandbox?.network?.[key];
    if (!layers.machine || most === undefined) return asked;
    const ceiling = { value: most, layer: 'machine', where: placeOf(layers.machine, path) } as const;
    return asked.value === null ? ceiling : clamp(name, { ...asked, value: asked.value }, [ceiling], warnings);
  };
  return {
    networkRate: of('networkRate', networkLimits?.bytesPerSecond, 'rate'),
    networkBytes: of('networkBytes', networkLimits?.bytes, 'max_bytes'),
  };
}

// A limit that there is only if somebody sets it. A repository may only ask for less than the user’s own file says.
function unlimitedUnlessSet(layers: Layers, setting: Omit<Choice<number | null>, 'builtIn'>): Sourced<number | null> {
  const asked = pick<number | null>(layers, { ...setting, builtIn: null });
  if (asked.layer !== 'repository') return asked;
  const own = pick<number | null>({ ...layers, repository: null }, { ...setting, request: undefined, builtIn: null });
  return own.value !== null && own.value < Number(asked.value) ? own : asked;
}

/** The strictest ceiling of each limit. */
export function strictestCeilings(layers: Layers, machine: Machine): PolicyRules['ceilings'] {
  const of = (name: keyof Limits): Sourced<number> => {
    const engine = name === 'cpus' ? [builtInValue(machine.cpus)] : [];
    return strictest([...engine, ...ceilingsOf(layers, LIMITS[name].ceiling, CEILINGS[name])]);
  };
  return {
    memoryBytes: of('memoryBytes'),
    swapBytes: of('swapBytes'),
    cpus: of('cpus'),
    pids: of('pids'),
    openFiles: of('openFiles'),
    tmpBytes: of('tmpBytes'),
    outputBytes: of('outputBytes'),
    timeoutMs: strictest(timeCeilings(layers)),
  };
}

function strictest(ceilings: readonly Sourced<number>[]): Sourced<number> {
  return ceilings.reduce((least, one) => (one.value < least.value ? one : least));
}

function timeCeilings(layers: Layers): Sourced<number>[] {
  return ceilingsOf(layers, 'timeout_seconds', CEILINGS.timeoutMs).map(ceiling =>
    ceiling.layer === 'built-in' ? ceiling : { ...ceiling, value: Math.round(ceiling.value * 1000) },
  );
}

function ceilingsOf({ machine, user }: Layers, name: keyof Ceilings, builtIn: number): Sourced<number>[] {
  const key = `sandbox.ceilings.${name}`;
  const machines = machine?.config.sandbox?.ceilings?.[name];
  const users = user.config.sandbox?.ceilings?.[name];
  return [
    builtInValue(builtIn),
    ...(machine && machines !== undefined
      ? [{ value: machines, layer: 'machine' as const, where: placeOf(machine, key) }]
      : []),
    ...(users === undefined ? [] : [{ value: users, layer: 'user' as const, where: placeOf(user, key) }]),
  ];
}

// Profile `dev`, or what the user’s own file or the request’s profile gives anyway: to ask for less than that is to tighten.
function repositoryMost({ profile, machine }: LimitsFor, name: keyof Limits | 'timeoutMs', own = 0): number {
  return Math.max(profileLimits('dev', machine)[name], profileLimits(profile, machine)[name], own);
}

function clampRepository(
  asked: Sourced<number>,
  most: number,
  shown: (value: number) => string,
  warnings: string[],
): Sourced<number> {
  if (asked.layer !== 'repository' || asked.value <= most) return asked;
  warnings.push(
    `${asked.where} was lowered from ${shown(asked.value)} to ${shown(most)}, the most that a repository may ask for; your own configuration file may set more.`,
  );
  return { ...asked, value: most };
}

function unitOf(name: string): (value: number) => string {
  return name.endsWith('Bytes') || name === 'networkRate' ? formatBytes : name.endsWith('Ms') ? inSeconds : String;
}

// In words that the library, the command line and a model share: a warning goes to all of them.
const NAMES = {
  memoryBytes: 'the memory limit',
  swapBytes: 'the swap limit',
  cpus: 'the CPU limit',
  pids: 'the process limit',
  openFiles: 'the open file limit',
  tmpBytes: 'the temporary storage limit',
  outputBytes: 'the output limit',
  timeoutMs: 'the time limit',
  networkTimeoutMs: 'the network time limit',
  networkRate: 'the network rate',
  networkBytes: 'the network bytes',
} as const satisfies Readonly<Record<string, string>>;

// A value lowered by a ceiling has the ceiling’s source: to get more, the user has to change the ceiling.
function clamp(
  name: keyof typeof NAMES,
  asked: Sourced<number>,
  ceilings: readonly Sourced<number>[],
  warnings: string[],
): Sourced<number> {
  const ceiling = strictest(ceilings);
  if (asked.value <= ceiling.value) return asked;
  // A built-in default above what a small machine has is not a mistake and needs no warning.
  if (asked.layer !== 'built-in') {
    const shown = unitOf(name);
    const what = asked.layer === 'request' ? NAMES[name] : asked.where;
    const limit =
      ceiling.layer === 'built-in' ? 'the most that is allowed here' : `the ceiling set by ${ceiling.where}`;
    warnings.push(`${what} was lowered from ${shown(asked.value)} to ${shown(ceiling.value)}, ${limit}.`);
  }
  return ceiling.layer === 'built-in' ? { ...asked, value: ceiling.value } : ceiling;
}

function inSeconds(value: number): string {
  return `${value / 1000} s`;
}

function milliseconds(seconds: number | undefined): number | undefined {
  return seconds === undefined ? undefined : Math.round(seconds * 1000);
}
