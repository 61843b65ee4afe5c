// Repository configuration: it may tighten, ask within the ceilings, and loosen only what the user trusted it with.

import { resolve } from 'node:path';
import { repositoryRule } from './config/keys.ts';
import type { RepositoryConfig } from './config/load.ts';
import type { Config } from './config/schema.ts';
import { CACHE_TOOLS } from '../contract/caches.ts';
import { AcodeError } from '../contract/errors.ts';
import { isAtLeast } from '../contract/levels.ts';
import type { Layers, RepositoryLayer } from './layers.ts';
import { resolveMode } from './layers.ts';
import { runtimeStrength } from './runtime.ts';
import { isWithin } from '../workspace/file-identity.ts';

/** A key of a repository’s file that counts only once the user trusted the file. */
export interface TrustKey {
  /** The key in the file, such as `sandbox.network.mode`. */
  readonly key: string;
  /** The file, line and column. */
  readonly where: string;
  /** The value, as text. */
  readonly value: string;
}

/** Refuses a repository’s file as a whole at the first key that would loosen the policy. */
export function checkRepository(repository: RepositoryLayer, layers: Layers): void {
  const [untrusted, ...others] = repository.trusted ? [] : keysThatNeedTrust(repository);
  if (untrusted) {
    const also =
      others.length === 0 ? '' : `; so would ${others.map(({ key, where }) => `${key} (${where})`).join(', ')}`;
    throw refused(
      repository,
      untrusted.key,
      repository.changed
        ? `it would loosen the policy, and this file has changed since you trusted it${also}`
        : `it would loosen the policy, and this file is not trusted${also}`,
      repository.changed
        ? '`acode trust --show` shows what it asks for now. If you agree with all of it, run `acode trust` again; otherwise take the line out.'
        : 'Read the file; if you agree with all of it, run `acode trust`. Otherwise take the line out.',
    );
  }
  for (const { key, loosens } of TIGHTEN) {
    const reason = loosens(repository.config, layers);
    if (reason !== null) throw refused(repository, key, `it may only be tightened, and ${reason}`, TIGHTEN_REMEDY);
  }
  checkMounts(repository);
}

/** The keys of a file that loosen the policy in a way that the user’s trust can allow. */
export function keysThatNeedTrust(repository: RepositoryConfig): TrustKey[] {
  return LOOSENING.flatMap(({ key, read }) => {
    const value = read(repository.config);
    if (value === undefined || repositoryRule(key) !== 'trusted') return [];
    return [{ key, where: repository.where(key), value: JSON.stringify(value) }];
  });
}

const TIGHTEN_REMEDY =
  'Take the line out of the repository’s file; if you want it, set it in your own configuration file or for one run.';

// Values that loosen: `network: false` in a repository is nothing to be afraid of.
const LOOSENING: readonly { readonly key: string; readonly read: (config: Config) => unknown }[] = [
  { key: 'sandbox.defaults.network', read: c => c.sandbox?.defaults?.network || undefined },
  { key: 'sandbox.defaults.user', read: c => unless('host', c.sandbox?.defaults?.user) },
  { key: 'sandbox.network.mode', read: c => unless('none', c.sandbox?.network?.mode) },
  { key: 'sandbox.network.dns_servers', read: c => unlessEmpty(c.sandbox?.network?.dns_servers) },
  { key: 'sandbox.services', read: c => unlessNone(c.sandbox?.services) },
  { key: 'sandbox.network.ports', read: c => unlessEmpty(c.sandbox?.network?.ports) },
];

/** Why a value is looser than what would hold without the repository; null where it is not. */
type Loosens = (asked: Config, without: Layers) => string | null;

// From the one that asks a registry least.
const PULLS = ['never', 'missing', 'always'];

const TIGHTEN: readonly { readonly key: string; readonly loosens: Loosens }[] = [
  {
    key: 'mode',
    loosens: (asked, without) => {
      const { value } = resolveMode({ ...without, repository: null });
      if (asked.mode === 'burst') return value === 'burst' ? null : `the mode is ${value}`;
      return asked.mode === 'local-only' && value === 'airgapped' ? 'the mode is airgapped' : null;
    },
  },
  { key: 'sandbox.level', loosens: levelLoosens },
  { key: 'sandbox.runtime', loosens: runtimeLoosens },
  {
    key: 'sandbox.serve',
    loosens: (asked, { user }) => {
      const own = user.config.sandbox?.serve ?? 'auto';
      const serve = asked.sandbox?.serve ?? own;
      return serve === 'never' || serve === own ? null : `yours is ${own}`;
    },
  },
  {
    key: 'sandbox.images.pull_policy',
    loosens: (asked, { user }) => {
      const own = user.config.sandbox?.images?.pull_policy ?? 'missing';
      const policy = asked.sandbox?.images?.pull_policy ?? own;
      return PULLS.indexOf(policy) > PULLS.indexOf(own) ? `yours is ${own}` : null;
    },
  },
  {
    key: 'sandbox.images.offline',
    loosens: (asked, { user }) =>
      asked.sandbox?.images?.offline === false && user.config.sandbox?.images?.offline === true
        ? 'yours is true'
        : null,
  },
  {
    key: 'sandbox.cache_volumes.enabled',
    loosens: (asked, { user }) =>
      asked.sandbox?.cache_volumes?.enabled === true && user.config.sandbox?.cache_volumes?.enabled === false
        ? 'yours is false'
        : null,
  },
  // The name of another project’s cache would be a way to it.
  ...CACHE_TOOLS.map(tool => ({
    key: `sandbox.cache_volumes.${tool}`,
    loosens: (asked: Config) =>
      typeof asked.sandbox?.cache_volumes?.[tool] === 'string' ? 'a repository may only switch a cache off' : null,
  })),
  {
    key: 'sandbox.mounts.workspace_mode',
    loosens: (asked, { user }) =>
      asked.sandbox?.mounts?.workspace_mode === 'rw' && user.config.sandbox?.mounts?.workspace_mode === 'ro'
        ? 'yours is ro'
        : null,
  },
  {
    key: 'sandbox.security.require_digest',
    loosens: (asked, { user, machine }) =>
      asked.sandbox?.security?.require_digest === false &&
      [user, machine].some(layer => layer?.config.sandbox?.security?.require_digest === true)
        ? 'a digest is required here'
        : null,
  },
];

function levelLoosens(asked: Config, { user }: Layers): string | null {
  const level = asked.sandbox?.level;
  if (level === undefined) return null;
  const own = user.config.sandbox?.level ?? 'auto';
  if (level === 'auto') return own === 'auto' ? null : `yours is ${own}`;
  // What `auto` promises is docker at least.
  return isAtLeast(level, own === 'auto' ? 'docker' : own) ? null : `yours is ${own}`;
}

function runtimeLoosens(asked: Config, { user }: Layers): string | null {
  const runtime = asked.sandbox?.runtime;
  const own = user.config.sandbox?.runtime ?? null;
  if (runtime === undefined || runtime === own) return null;
  const strength = runtimeStrength(runtime);
  if (strength === 0) return 'only runsc and kata are stronger than an engine’s default';
  return strength >= runtimeStrength(own) ? null : `yours is ${own ?? 'the default'}`;
}

// A writable mount would be a second way to what is protected in the workspace, or read-only as a whole.
function checkMounts(repository: RepositoryConfig): void {
  const mounts = repository.config.sandbox?.mounts?.additional ?? [];
  for (const [index, { source, readonly = true }] of mounts.entries()) {
    const key = `sandbox.mounts.additional.${index}`;
    if (!isInside(source, repository.root)) {
      throw refused(repository, key, 'its source is not inside the repository', MOUNT_REMEDY);
    }
    if (!readonly) throw refused(repository, key, 'a repository may add read-only mounts only', MOUNT_REMEDY);
  }
}

const MOUNT_REMEDY =
  'Take the mount out of the repository’s file; if you want it, set it in your own configuration file.';

function isInside(source: string, root: string): boolean {
  if (source.includes('\0') || source.includes('\\')) return false;
  return isWithin(resolve(root, source), root);
}

function refused(repository: RepositoryConfig, key: string, rule: string, remedy: string): AcodeError {
  return new AcodeError('ACODE-SBX-020', { key, where: repository.where(key), rule, remedy });
}

function unless<Value>(safe: Value, value: Value | undefined): Value | undefined {
  return value === safe ? undefined : value;
}

function unlessNone<Value extends object>(named: Value | undefined): Value | undefined {
  return named && Object.keys(named).length > 0 ? named : undefined;
}

function unlessEmpty<Value>(list: readonly Value[] | undefined): readonly Value[] | undefined {
  return list && list.length > 0 ? list : undefined;
}
