// The names that keys had before: still understood, each with a warning that gives the name of today.

import { isDeepStrictEqual } from 'node:util';
import { AcodeError } from '../../contract/errors.ts';

/** One old name. */
interface Alias {
  readonly old: string;
  readonly key: string;
  /** What the old value is in today’s words. */
  readonly convert?: (value: unknown) => unknown;
}

/** Every old name. */
export const ALIASES: readonly Alias[] = [
  { old: 'sandbox.limits.cpu_limit', key: 'sandbox.defaults.cpu_limit' },
  { old: 'sandbox.limits.memory', key: 'sandbox.defaults.memory_mb' },
  { old: 'sandbox.limits.pids_limit', key: 'sandbox.defaults.pids_limit' },
  { old: 'sandbox.limits.timeout', key: 'sandbox.defaults.timeout_seconds' },
  { old: 'sandbox.network.enabled', key: 'sandbox.defaults.network' },
  { old: 'sandbox.docker_image', key: 'sandbox.images.default' },
  { old: 'sandbox.memory_limit', key: 'sandbox.defaults.memory_mb' },
  { old: 'sandbox.cpu_limit', key: 'sandbox.defaults.cpu_limit', convert: numberOf },
  { old: 'docker.enabled', key: 'sandbox.enabled' },
  { old: 'docker.resources.cpus', key: 'sandbox.defaults.cpu_limit' },
  { old: 'docker.resources.memory', key: 'sandbox.defaults.memory_mb' },
  { old: 'docker.resources.pids_limit', key: 'sandbox.defaults.pids_limit' },
  { old: 'docker.images.default', key: 'sandbox.images.default' },
  { old: 'docker.images.dotnet', key: 'sandbox.images.dotnet' },
  { old: 'docker.images.node', key: 'sandbox.images.node' },
  { old: 'docker.images.python', key: 'sandbox.images.python' },
  { old: 'docker.cleanup.orphan_on_startup', key: 'sandbox.containers.cleanup_orphans' },
  { old: 'docker.cleanup.on_task_complete', key: 'sandbox.cleanup.on_task_complete' },
  { old: 'docker.cleanup.on_agent_exit', key: 'sandbox.cleanup.on_agent_exit' },
  { old: 'docker.cleanup.timeout_seconds', key: 'sandbox.cleanup.timeout_seconds' },
  { old: 'DefaultImage', key: 'sandbox.images.default' },
  { old: 'LanguageImages.csharp', key: 'sandbox.images.dotnet' },
  { old: 'LanguageImages.fsharp', key: 'sandbox.images.dotnet' },
  { old: 'LanguageImages.javascript', key: 'sandbox.images.node' },
  { old: 'LanguageImages.typescript', key: 'sandbox.images.node' },
  { old: 'LanguageImages.python', key: 'sandbox.images.python' },
  { old: 'MaxOpenFiles', key: 'sandbox.defaults.open_files' },
  { old: 'DnsServers', key: 'sandbox.network.dns_servers' },
  { old: 'Ports', key: 'sandbox.network.ports' },
  { old: 'DropCapabilities', key: 'sandbox.security.capabilities_drop' },
  { old: 'ReadOnlyRootFilesystem', key: 'sandbox.security.readonly_rootfs' },
  {
    old: 'security.RunAsNonRoot',
    key: 'sandbox.defaults.user',
    convert: value => (value === true ? 'host' : value),
  },
];

// It was text once.
function numberOf(value: unknown): unknown {
  return typeof value === 'string' && /^\d+(?:\.\d+)?$/.test(value) ? Number(value) : value;
}

/** A configuration in today’s words. */
export interface Renamed {
  readonly value: unknown;
  /** The path under which a key of today was written, where that was an old one. */
  readonly written: ReadonlyMap<string, readonly string[]>;
  readonly warnings: readonly string[];
}

type Tree = Record<string, unknown>;

/** Moves old names to their new places in a copy. An old and a new name that contradict each other are an error. */
export function renameOldKeys(value: unknown, where: (path: readonly string[]) => string): Renamed {
  const found = ALIASES.flatMap(alias => {
    const old = alias.old.split('.');
    const holder = treeAt(value, old.slice(0, -1));
    const name = old.at(-1) ?? '';
    return holder && Object.hasOwn(holder, name) ? [{ alias, path: old, value: holder[name] }] : [];
  });
  if (found.length === 0) return { value, written: new Map(), warnings: [] };
  const copy = copyOfTree(value);
  const written = new Map<string, readonly string[]>();
  const warnings: string[] = [];
  for (const { alias, path, value: old } of found) {
    remove(copy, path);
    put(copy, alias, alias.convert ? alias.convert(old) : old, where(path));
    if (!written.has(alias.key)) written.set(alias.key, path);
    warnings.push(`${where(path)}: ${alias.old} is an old name; write ${alias.key}.`);
  }
  return { value: copy, written, warnings };
}

function put(root: unknown, alias: Alias, value: unknown, where: string): void {
  const path = alias.key.split('.');
  const name = path.pop() ?? '';
  let here = treeAt(root, []);
  for (const step of path) {
    if (!here) return;
    if (!Object.hasOwn(here, step)) here[step] = {};
    here = treeAt(here, [step]);
  }
  // What stands there is no map: the schema says so in words of its own.
  if (!here) return;
  if (Object.hasOwn(here, name) && !isDeepStrictEqual(here[name], value)) {
    throw new AcodeError('ACODE-SBX-013', {
      source: where,
      key: alias.old,
      reason: `is an old name of ${alias.key}, which is set to something else`,
    });
  }
  here[name] = value;
}

// A section that held nothing but old names is gone with the last of them.
function remove(root: unknown, path: readonly string[]): void {
  const holder = treeAt(root, path.slice(0, -1));
  const name = path.at(-1);
  if (!holder || name === undefined) return;
  delete holder[name];
  if (path.length > 1 && path[0] !== 'sandbox' && Object.keys(holder).length === 0) remove(root, path.slice(0, -1));
  if (path.length === 3 && path[1] === 'limits' && Object.keys(holder).length === 0) remove(root, path.slice(0, -1));
}

function treeAt(value: unknown, path: readonly string[]): Tree | null {
  let here: unknown = value;
  for (const step of path) {
    const tree = asTree(here);
    if (!tree || !Object.hasOwn(tree, step)) return null;
    here = tree[step];
  }
  return asTree(here);
}

// Only maps are copied: nothing else is changed. A caller’s own object stays as it is.
function copyOfTree(value: unknown): unknown {
  if (!isTree(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, child]) => [name, copyOfTree(child)]));
}

function asTree(value: unknown): Tree | null {
  return isTree(value) ? value : null;
}

function isTree(value: unknown): value is Tree {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
