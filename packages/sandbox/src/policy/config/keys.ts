// Configuration keys: those that exist, those still to come, and those that a repository may set.

import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';

// Keys of the planned configuration that nothing honours yet. A file that sets one is refused with a reason of its own:
// silence would let a user believe in a protection that is not there.
const PLANNED = new Set([
  'swarm',
  'sandbox.enabled',
  'sandbox.docker.api_version',
  'sandbox.docker.allow_remote',
  'sandbox.defaults.nproc_ulimit',
  'sandbox.defaults.blkio.weight',
  'sandbox.defaults.blkio.read_iops',
  'sandbox.defaults.blkio.write_iops',
  'sandbox.mounts.tmpfs',
  'sandbox.cleanup.on_task_complete',
  'sandbox.cleanup.on_agent_exit',
  'sandbox.cleanup.match_names',
  'sandbox.cleanup.background_interval_seconds',
  'sandbox.output.log_dir',
]);

/** The machine’s policy. No variable and no option changes where it is. */
export const MACHINE_POLICY = '/etc/acode/policy.yml';

/** The team’s defaults. No variable and no option changes where they are. */
export const TEAM_CONFIG = '/etc/acode/config.yml';

/** Whether a key is known but has no effect in this version. */
export function isPlanned(key: string): boolean {
  return PLANNED.has(key);
}

/**
 * What a repository may do with a key: set it freely; set it below the ceilings; only tighten it; loosen it once the user
 * trusted the file; only repeat the fixed value; never; or not yet, where a host takes it once and a repository each run.
 */
export type RepositoryRule = 'free' | 'capped' | 'tighten' | 'trusted' | 'fixed' | 'never' | 'later';

const REPOSITORY: Readonly<Record<string, RepositoryRule>> = {
  mode: 'tighten',
  'sandbox.level': 'tighten',
  'sandbox.serve': 'tighten',
  'sandbox.require_for': 'free',
  'sandbox.risk_rules': 'free',
  'sandbox.mask': 'free',
  'sandbox.runtime': 'tighten',
  'sandbox.defaults.cpu_limit': 'capped',
  'sandbox.defaults.memory_mb': 'capped',
  'sandbox.defaults.memory_swap_mb': 'capped',
  'sandbox.defaults.pids_limit': 'capped',
  'sandbox.defaults.open_files': 'capped',
  'sandbox.defaults.timeout_seconds': 'capped',
  'sandbox.defaults.on_out_of_memory': 'free',
  'sandbox.defaults.blkio.read_bps': 'capped',
  'sandbox.defaults.blkio.write_bps': 'capped',
  'sandbox.defaults.network': 'trusted',
  'sandbox.defaults.user': 'trusted',
  'sandbox.network.mode': 'trusted',
  'sandbox.network.allow': 'tighten',
  'sandbox.network.deny': 'free',
  'sandbox.network.dns_servers': 'trusted',
  'sandbox.network.ports': 'trusted',
  'sandbox.network.timeout_seconds': 'capped',
  'sandbox.network.rate': 'capped',
  'sandbox.network.max_bytes': 'capped',
  'sandbox.images.default': 'free',
  'sandbox.images.node': 'free',
  'sandbox.images.python': 'free',
  'sandbox.images.dotnet': 'free',
  'sandbox.images.go': 'free',
  'sandbox.images.rust': 'free',
  'sandbox.images.combined': 'free',
  'sandbox.images.pull_policy': 'tighten',
  'sandbox.images.offline': 'tighten',
  'sandbox.cache_volumes.enabled': 'tighten',
  'sandbox.cache_volumes.npm': 'tighten',
  'sandbox.cache_volumes.yarn': 'tighten',
  'sandbox.cache_volumes.pnpm': 'tighten',
  'sandbox.cache_volumes.pip': 'tighten',
  'sandbox.cache_volumes.nuget': 'tighten',
  'sandbox.cache_volumes.cargo': 'tighten',
  'sandbox.cache_volumes.go': 'tighten',
  'sandbox.mounts.workspace_mode': 'tighten',
  'sandbox.mounts.workspace_path': 'free',
  'sandbox.mounts.tmpfs_size': 'capped',
  'sandbox.mounts.fork_size': 'capped',
  'sandbox.mounts.additional': 'free',
  'sandbox.services': 'trusted',
  'sandbox.containers.labels': 'later',
  'sandbox.containers.create_timeout_seconds': 'later',
  'sandbox.containers.pull_timeout_seconds': 'later',
  'sandbox.containers.stop_timeout_seconds': 'later',
  'sandbox.containers.max_concurrent': 'later',
  'sandbox.containers.on_limit': 'later',
  'sandbox.containers.queue_timeout_seconds': 'later',
  'sandbox.retry.attempts': 'later',
  'sandbox.retry.base_ms': 'later',
  'sandbox.retry.factor': 'later',
  'sandbox.output.max_bytes': 'capped',
  'sandbox.security.require_digest': 'tighten',
  'sandbox.security.no_new_privileges': 'fixed',
  'sandbox.security.capabilities_drop': 'fixed',
  'sandbox.security.capabilities_add': 'fixed',
  'sandbox.security.seccomp_profile': 'fixed',
  'sandbox.security.readonly_rootfs': 'fixed',
};

const FIXED: Readonly<Record<string, unknown>> = {
  'sandbox.security.no_new_privileges': true,
  'sandbox.security.capabilities_drop': ['ALL'],
  'sandbox.security.capabilities_add': [],
  'sandbox.security.seccomp_profile': 'default',
  'sandbox.security.readonly_rootfs': true,
};

/** Whether a value is the one that a fixed key has anyway. */
export function isFixedValue(key: string, value: unknown): boolean {
  return isDeepStrictEqual(FIXED[key], value);
}

/** What a repository may do with a key. What is not listed, it may not touch. */
export function repositoryRule(key: string): RepositoryRule {
  return Object.hasOwn(REPOSITORY, key) ? (REPOSITORY[key] ?? 'never') : 'never';
}

/** Every key of a schema that holds a value, with dots. */
export function keysOf(schema: z.ZodType, prefix = ''): string[] {
  const bare: unknown = schema instanceof z.ZodOptional ? schema.unwrap() : schema;
  if (!(bare instanceof z.ZodObject)) return [prefix];
  const shape: Readonly<Record<string, unknown>> = bare.shape;
  return Object.entries(shape).flatMap(([name, child]) => {
    const key = prefix === '' ? name : `${prefix}.${name}`;
    return child instanceof z.ZodType ? keysOf(child, key) : [key];
  });
}

/** Whether a key with dots stands above known keys. */
export function isSection(key: string, known: readonly string[]): boolean {
  return known.some(one => one.startsWith(`${key}.`));
}

/** The known key that the user probably meant; null if none is near. */
export function nearestKey(key: string, known: readonly string[]): string | null {
  if (key.length > 120) return null;
  const last = key.slice(key.lastIndexOf('.') + 1);
  // The right word in the wrong place is nearer than another word in the right one.
  const moved = known.filter(one => one === last || one.endsWith(`.${last}`));
  const [only] = moved.length > 1 ? moved.filter(one => one.startsWith(DEFAULTS)) : moved;
  if (only !== undefined) return only;
  return withUnit(key, last, known) ?? alike(key, last, known);
}

function alike(key: string, last: string, known: readonly string[]): string | null {
  const sections = known.flatMap(one => one.split('.').map((_, index, words) => words.slice(0, index + 1).join('.')));
  const furthest = Math.max(2, Math.floor(last.length / 3));
  let best: { key: string; distance: number } | null = null;
  for (const candidate of new Set([...known, ...sections])) {
    if (Math.abs(candidate.length - key.length) > furthest) continue;
    const distance = editDistance(key, candidate);
    if (best === null || distance < best.distance) best = { key: candidate, distance };
  }
  return best !== null && best.distance <= furthest ? best.key : null;
}

// `memory` for `memory_mb`, `cpus` for `cpu_limit`: the word without what stands behind it here. Best where it was looked
// for, then among the defaults, and never one that says more than a unit (`memory_swap_mb`) before one that does not.
function withUnit(key: string, last: string, known: readonly string[]): string | null {
  const stem = last.replace(/s$/, '');
  if (stem.length < 3) return null;
  const section = key.slice(0, key.length - last.length);
  const candidates = known.filter(one => {
    const word = one.slice(one.lastIndexOf('.') + 1);
    return word.startsWith(`${last}_`) || word.startsWith(`${stem}_`) || word.startsWith(`${stem}s_`);
  });
  const rank = (one: string): number =>
    (one.startsWith(section) && !one.slice(section.length).includes('.') ? 0 : one.startsWith(DEFAULTS) ? 100 : 200) +
    one.slice(one.lastIndexOf('.') + 1).length;
  return candidates.sort((a, b) => rank(a) - rank(b))[0] ?? null;
}

const DEFAULTS = 'sandbox.defaults.';

/** The word that the user probably meant; null if none is near. Short words are near only by one letter. */
export function nearestWord(word: string, known: readonly string[]): string | null {
  if (word.length > 120) return null;
  const near = known
    .map(one => ({ one, distance: editDistance(word.toLowerCase(), one) }))
    .filter(({ one, distance }) => distance <= Math.max(1, Math.floor(one.length / 3)))
    .sort((a, b) => a.distance - b.distance);
  return near[0]?.one ?? null;
}

const UNIT = /(?:bytes|kb|mb|gb|mib|gib|ms|millis|milliseconds|seconds|secs|s)$/;

/**
 * The field of a request, with dots, that the caller probably meant; null if none is near. Units and the style of writing
 * do not matter: `memory`, `memory_mb` and `Memory` are near to `limits.memoryBytes`.
 */
export function nearestField(key: string, known: readonly string[]): string | null {
  if (key.length > 120) return null;
  const section = key.slice(0, key.lastIndexOf('.') + 1);
  const asked = plainWord(key);
  const stem = asked.replace(UNIT, '');
  const sections = known.flatMap(one => (one.includes('.') ? [one.slice(0, one.lastIndexOf('.'))] : []));
  const near = [...new Set([...known, ...sections])].flatMap(one => {
    const word = plainWord(one);
    const isSame = word === asked || (stem.length >= 3 && word.replace(UNIT, '') === stem);
    const distance = isSame ? 0 : editDistance(asked, word);
    const isHere = one.slice(0, one.lastIndexOf('.') + 1) === section;
    return distance <= Math.floor(word.length / 2.5) ? [{ one, rank: distance + (isHere ? 0 : 0.5) }] : [];
  });
  return near.sort((a, b) => a.rank - b.rank)[0]?.one ?? null;
}

// The last word of a key, in small letters and without what joins its parts.
function plainWord(key: string): string {
  return key
    .slice(key.lastIndexOf('.') + 1)
    .replaceAll(/[_-]/g, '')
    .toLowerCase();
}

function editDistance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let i = 1; i <= one.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= other.length; j += 1) {
      const same = one[i - 1] === other[j - 1] ? 0 : 1;
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, (row[j - 1] ?? 0) + same));
    }
    row = next;
  }
  return row[other.length] ?? 0;
}
