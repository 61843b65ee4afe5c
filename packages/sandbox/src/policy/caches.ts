// Caches of package managers for a sandbox, and the names of their volumes. Pure.

import { CACHE_TOOLS } from '../contract/caches.ts';
import type { CachePolicy, CacheSpec, CacheTool, CacheVolume } from '../contract/caches.ts';
import type { Language, LanguageFound } from '../contract/languages.ts';
import type { PolicyFields, Sourced, UserId } from '../contract/policy.ts';
import { pick, placeOf } from './layers.ts';
import type { Layers } from './layers.ts';

/** Who the caches are for. */
export interface CachesFor {
  /** Whose caches they are. */
  readonly caller: UserId;
  /** Who uses them inside: what lies in a cache belongs to that number. */
  readonly user: UserId;
  readonly languages: readonly LanguageFound[] | undefined;
}

const NONE: CachePolicy = { volumes: [], fill: false };

/** Where caches are mounted: neither in the home, which is in memory, nor in the workspace, which is the user’s. */
const PLACE = '/cache';
// The directory in a volume that belongs to the user inside. The top of a volume is root’s, and so is that of every layer.
const OWN = 'data';

const TOOLS_OF: Readonly<Record<Language, readonly CacheTool[]>> = {
  dotnet: ['nuget'],
  go: ['go'],
  node: ['npm', 'yarn', 'pnpm'],
  python: ['pip'],
  rust: ['cargo'],
};

// Each tool’s own words for the place. Where a tool changed its words, the old and the new ones.
const VARIABLES: Readonly<Record<CacheTool, (own: string) => Readonly<Record<string, string>>>> = {
  npm: own => ({ npm_config_cache: own }),
  // The first for Yarn 1, the second for later ones, whose cache is in their global folder.
  yarn: own => ({ YARN_CACHE_FOLDER: own, YARN_GLOBAL_FOLDER: own }),
  pnpm: own => ({ npm_config_store_dir: own, pnpm_config_store_dir: own }),
  pip: own => ({ PIP_CACHE_DIR: own }),
  nuget: own => ({ NUGET_PACKAGES: `${own}/packages`, NUGET_HTTP_CACHE_PATH: `${own}/http` }),
  // Cargo has no word for its registry alone.
  cargo: own => ({ CARGO_HOME: own }),
  go: own => ({ GOMODCACHE: `${own}/mod`, GOCACHE: `${own}/build` }),
};

/**
 * Decides about the caches: those that the request names, else those of the workspace’s languages, unless a layer of configuration refuses them.
 * Only a request can ask to fill one: what is put into a cache is there for every later sandbox.
 */
export function resolveCaches(request: PolicyFields['caches'], layers: Layers, of: CachesFor): Sourced<CachePolicy> {
  const { value: enabled, layer, where } = resolveEnabled(layers);
  if (request === undefined) {
    const tools = enabled ? toolsOf(of.languages ?? []) : [];
    return { value: { volumes: volumesOf(tools, layers, of), fill: false }, layer, where };
  }
  const source = { layer: 'request', where: 'policy.caches' } as const;
  if (request === false) return { value: NONE, ...source };
  const fill = isFilling(request);
  const tools = fill ? request.fill : request;
  return { value: { volumes: volumesOf(tools, layers, of), fill }, ...source };
}

// Not by the name `fill`: every list has a method that is called so.
function isFilling(
  request: Exclude<PolicyFields['caches'], undefined | false>,
): request is { readonly fill: readonly CacheTool[] } {
  return !Array.isArray(request);
}

// Off as soon as the user or the repository says so; a repository that says the opposite was refused before.
function resolveEnabled(layers: Layers): Sourced<boolean> {
  const { repository } = layers;
  const key = 'sandbox.cache_volumes.enabled';
  if (repository?.config.sandbox?.cache_volumes?.enabled === false)
    return { value: false, layer: 'repository', where: placeOf(repository, key) };
  return pick(
    { ...layers, repository: null },
    {
      field: 'caches',
      request: undefined,
      key,
      read: sandbox => sandbox.cache_volumes?.enabled,
      builtIn: true,
    },
  );
}

function toolsOf(languages: readonly LanguageFound[]): CacheTool[] {
  const wanted = new Set(languages.flatMap(({ language }) => TOOLS_OF[language]));
  return CACHE_TOOLS.filter(tool => wanted.has(tool));
}

function volumesOf(tools: readonly CacheTool[], layers: Layers, of: CachesFor): CacheVolume[] {
  return [...new Set(tools)].flatMap(tool => {
    const name = volumeName(tool, layers);
    return name === false ? [] : [{ tool, volume: `${name}${suffix(of)}` }];
  });
}

function volumeName(tool: CacheTool, { repository, user }: Layers): string | false {
  if (repository?.config.sandbox?.cache_volumes?.[tool] === false) return false;
  return user.config.sandbox?.cache_volumes?.[tool] ?? `acode-cache-${tool}`;
}

// Two users never share a cache, nor do two users inside: one could not write what the other has written.
function suffix({ caller, user }: CachesFor): string {
  const same = caller.uid === user.uid && caller.gid === user.gid;
  return same ? `-${caller.uid}` : `-${caller.uid}-as-${user.uid}-${user.gid}`;
}

/** A cache as it stands in the plan of a sandbox. */
export function cacheSpec({ tool, volume }: CacheVolume, fill: boolean): CacheSpec {
  const target = `${PLACE}/${tool}`;
  return { tool, volume, target, fill, environment: VARIABLES[tool](`${target}/${OWN}`) };
}
