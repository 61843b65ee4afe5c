// Configuration check: every file is held to the schema. A mistake is an error with its position, and nothing is
// ignored.

import { isDeepStrictEqual } from 'node:util';
import type { z } from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import type { Path } from './document.ts';
import { issueText, kindOf } from './issue-text.ts';
import { isPlanned, isSection, keysOf, nearestKey } from './keys.ts';
import { configSchema } from './schema.ts';
import type { Config } from './schema.ts';
import { shapeFault } from './shape.ts';
import { RISKS } from '../../contract/levels.ts';

/** A configuration and where it came from. */
export interface Loaded<Value> {
  readonly config: Value;
  /** A path, or `AcodeOptions.config`. */
  readonly source: string;
  /** The place of a key, given with dots: file, line and column where there is a file. */
  readonly where: (key: string) => string;
  /** Old names that were understood, in sentences. */
  readonly warnings: readonly string[];
}

/** A user’s or a repository’s configuration. */
export type LoadedConfig = Loaded<Config>;

/** What a file or an object holds, before any schema. */
export interface RawConfig {
  readonly value: unknown;
  readonly source: string;
  readonly where: (path: Path) => string;
}

/** Refuses keys that the writer of this configuration may not set; sees the value before any schema. */
export type KeyGuard = (value: unknown, where: (key: string) => string) => void;

/** Checks a configuration that was given as an object. */
export function checkConfig(value: unknown, source: string): LoadedConfig {
  return holdTo(configSchema, { value, source, where: () => source });
}

/** Holds a raw configuration to a schema. */
export function holdTo<Value>(
  schema: z.ZodType<Value>,
  { value: raw, source, where: placeOf }: RawConfig,
  guard?: KeyGuard,
): Loaded<Value> {
  if (raw !== null && raw !== undefined && (typeof raw !== 'object' || Array.isArray(raw)))
    throw invalid(placeOf([]), '', `holds ${kindOf(raw)} at its top; expected keys such as \`sandbox:\``);
  const fault = shapeFault(raw);
  if (fault) throw invalid(placeOf(fault.path), fault.path.join('.'), fault.reason);
  const { value: renamed, written, warnings } = renameOldKeys(raw ?? {}, placeOf);
  const value = withoutGiven(renamed);
  const whereOf = (path: Path): string => placeOf(written.get(path.join('.')) ?? path);
  const where = (key: string): string => whereOf(key.split('.'));
  guard?.(value, where);
  const parsed = schema.safeParse(value, { error: issueText });
  if (parsed.success) return { config: parsed.data, source, where, warnings };
  const issue = parsed.error.issues[0];
  throw issue ? issueError(schema, issue, { value, where: whereOf }) : invalid(source, '', 'is not valid');
}

/** The value of a key, given with dots, in a value of any shape. */
export function valueAt(value: unknown, key: string): unknown {
  let here: unknown = value;
  for (const step of key.split('.')) {
    if (typeof here !== 'object' || here === null || !Object.hasOwn(here, step)) return undefined;
    here = Object.getOwnPropertyDescriptor(here, step)?.value;
  }
  return here;
}

/** A value that did not pass its schema. */
interface Checked {
  readonly value: unknown;
  readonly where: (path: Path) => string;
}

function issueError(schema: z.ZodType, issue: z.core.$ZodIssue, { value, where }: Checked): AcodeError {
  if (issue.code !== 'unrecognized_keys') return invalid(where(issue.path), issue.path.join('.'), issue.message);
  const written = issue.keys[0] ?? '';
  const path = [...issue.path, written];
  const key = path.join('.');
  const known = keysOf(schema);
  if (written.includes('.') && (known.includes(key) || isSection(key, known)))
    return dotted(key, where(path), memberOf(valueOf(value, issue.path), written));
  if (isPlanned(key)) return later(key, where(path));
  const near = nearestKey(key, known);
  return invalid(where(path), shortened(key), `is not a known key${near === null ? '' : ` (did you mean ${near}?)`}`);
}

// The key is right and its form is not: messages and docs name keys with dots, and YAML nests them.
function dotted(key: string, where: string, value: unknown): AcodeError {
  const parts = key.split('.');
  const shown = typeof value === 'boolean' || typeof value === 'number' ? String(value) : '…';
  const lines = parts.map((part, index) => `\`${part}:${index === parts.length - 1 ? ` ${shown}` : ''}\``);
  const flow = `${parts
    .slice(0, -1)
    .map(part => `${part}: { `)
    .join('')}${parts.at(-1) ?? ''}: ${shown}${' }'.repeat(parts.length - 1)}`;
  return new AcodeError('ACODE-SBX-013', {
    source: where,
    key: shortened(key),
    reason: 'is written with dots; in a file, its parts are nested',
    remedy: `Write \`${flow}\`, or put ${lines.join(', ')} on separate lines, each indented below the one before.`,
  });
}

function valueOf(value: unknown, path: Path): unknown {
  return path.reduce<unknown>((here, step) => memberOf(here, step), value);
}

function memberOf(value: unknown, step: PropertyKey): unknown {
  return typeof value === 'object' && value !== null ? Object.getOwnPropertyDescriptor(value, step)?.value : undefined;
}

function later(key: string, where: string): AcodeError {
  const instead = insteadOf(key);
  const what = instead === undefined ? `The key ${key} (${where})` : `This value of ${key} (${where})`;
  return new AcodeError('ACODE-SBX-016', { what, instead: instead ?? 'Take the line out for now.' });
}

function shortened(key: string): string {
  return key.length > 120 ? `${key.slice(0, 120)}…` : key;
}

function invalid(source: string, key: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-013', { source, key, reason });
}

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
function renameOldKeys(value: unknown, where: (path: readonly string[]) => string): Renamed {
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

// A section that held only old names is removed with the last of them.
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

// Only maps are copied: nothing else is changed. A caller’s own object is not changed.
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

const API_FLOOR = [1, 41] as const;

/** A value that changes nothing, and why another one is refused. */
interface Given {
  readonly accepts: (value: unknown) => boolean;
  /** What to write instead of another value. */
  readonly instead: string;
}

const is =
  (expected: unknown) =>
  (value: unknown): boolean =>
    isDeepStrictEqual(value, expected);

// Keys that nothing else honours: any other value is refused with the reason.
const GIVEN: ReadonlyMap<string, Given> = new Map(
  Object.entries({
    'sandbox.enabled': {
      accepts: is(true),
      instead:
        'Write true or take the line out: acode runs nothing without a sandbox. `sandbox.level` names a weaker one.',
    },
    'sandbox.docker.api_version': {
      accepts: value => value === null || isAtLeastFloor(value),
      instead: `Write ${API_FLOOR.join('.')} or a later version, or take the line out: acode asks the engine for its version.`,
    },
    'sandbox.mounts.workspace_path': {
      accepts: is('/workspace'),
      instead: 'Write /workspace or take the line out: the workspace is always there.',
    },
    'sandbox.cleanup.on_task_complete': {
      accepts: is(true),
      instead: 'Write true or take the line out: a sandbox is always removed when its command has ended.',
    },
    'sandbox.cleanup.on_agent_exit': {
      accepts: is(true),
      instead: 'Write true or take the line out: what a session made is always removed with it.',
    },
  }),
);

// Values of keys that are there: this one is the same as no line at all.
const SAME_AS_NONE = new Map(
  Object.entries({
    'sandbox.docker.host': is(null),
    'sandbox.containers.labels': is({ 'acode.managed': 'true' }),
  }),
);

// Keys that a repository may not set, at the value they have unless the user says otherwise.
const BUILT_IN = new Map(
  Object.entries({
    'sandbox.containers.name_prefix': is('acode'),
    'sandbox.containers.cleanup_orphans': is(true),
    'sandbox.containers.create_timeout_seconds': is(30),
    'sandbox.containers.pull_timeout_seconds': is(300),
    'sandbox.cleanup.timeout_seconds': is(30),
  }),
);

function isAtLeastFloor(value: unknown): boolean {
  const version = /^v?(\d+)\.(\d+)$/.exec(String(value));
  if (!version) return false;
  const [major, minor] = [Number(version[1]), Number(version[2])];
  return major > API_FLOOR[0] || (major === API_FLOOR[0] && minor >= API_FLOOR[1]);
}

/** What to write instead of a value of a key that has only one; undefined for any other key. */
function insteadOf(key: string): string | undefined {
  return GIVEN.get(key)?.instead;
}

/** A configuration without the lines that change nothing, and with the names of risks in lower case. */
function withoutGiven(value: unknown, above = ''): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const entries = Object.entries(value).flatMap(([name, child]: [string, unknown]) => {
    const key = above === '' ? name : `${above}.${name}`;
    return !name.includes('.') && changesNothing(key, child) ? [] : [[name, spelled(key, withoutGiven(child, key))]];
  });
  return Object.fromEntries(entries);
}

function changesNothing(key: string, value: unknown): boolean {
  return GIVEN.get(key)?.accepts(value) === true || SAME_AS_NONE.get(key)?.(value) === true;
}

function spelled(key: string, value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  if (key === 'sandbox.require_for') return value.map(lowerRisk);
  return key === 'sandbox.risk_rules' ? value.map(lowerRule) : value;
}

function lowerRule(rule: unknown): unknown {
  return isRule(rule) ? { ...rule, risk: lowerRisk(rule.risk) } : rule;
}

function isRule(rule: unknown): rule is { readonly risk: unknown } {
  return typeof rule === 'object' && rule !== null && 'risk' in rule;
}

function lowerRisk(risk: unknown): unknown {
  return RISKS.find(name => typeof risk === 'string' && name === risk.toLowerCase()) ?? risk;
}

/** Whether a repository only repeats the built-in value of a key that is not its own to set. */
export function repeatsBuiltIn(key: string, value: unknown): boolean {
  return BUILT_IN.get(key)?.(value) === true;
}
