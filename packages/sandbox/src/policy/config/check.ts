// Configuration check: every file is held to the schema. A mistake is an error with its position, and nothing is
// ignored.

import { isDeepStrictEqual } from 'node:util';
import type { z } from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import type { Path } from './document.ts';
import { issueText, kindOf } from './issue-text.ts';
import { MACHINE_POLICY, TEAM_CONFIG, isPlanned, isSection, keysOf, nearestKey } from './keys.ts';
import { configSchema, machineSchema, teamSchema } from './schema.ts';
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
  /** What was written, under the names of today and before sizes became bytes. */
  readonly written: unknown;
}

/** A user’s or a repository’s configuration. */
export interface LoadedConfig extends Loaded<Config> {
  /** Which layer set a key, where the team’s defaults are below the user’s own configuration. */
  readonly layerOf?: (key: string) => 'user' | 'team';
  /** The configurations it was merged from. */
  readonly parts?: { readonly own: LoadedConfig; readonly team: LoadedConfig };
}

/** The file a configuration stands in. */
export type ConfigKind = 'user' | 'team' | 'machine' | 'repository';

/** What a file or an object holds, before any schema. */
export interface RawConfig {
  readonly value: unknown;
  readonly source: string;
  readonly where: (path: Path) => string;
  /** Which file it is, so that a key that belongs in another one is led there; the user’s unless named. */
  readonly kind?: ConfigKind;
}

/** The keys that the writer of this configuration may not set, as errors; sees the value before any schema. */
export type KeyGuard = (value: unknown, where: (key: string) => string) => readonly AcodeError[];

/** A configuration, or everything that is wrong with it. */
export type Examined<Value> =
  | { readonly loaded: Loaded<Value>; readonly problems: readonly [] }
  | { readonly loaded: null; readonly problems: readonly [AcodeError, ...AcodeError[]] };

/** Checks a configuration that was given as an object. */
export function checkConfig(value: unknown, source: string): LoadedConfig {
  return holdTo(configSchema, { value, source, where: () => source });
}

/** Holds a raw configuration to a schema. Throws the first problem. */
export function holdTo<Value>(schema: z.ZodType<Value>, raw: RawConfig, guard?: KeyGuard): Loaded<Value> {
  const { loaded, problems } = examineConfig(schema, raw, guard);
  if (loaded) return loaded;
  throw problems[0];
}

/** Holds a raw configuration to a schema, and collects every problem. */
export function examineConfig<Value>(schema: z.ZodType<Value>, raw: RawConfig, guard?: KeyGuard): Examined<Value> {
  const { value: given, where: placeOf } = raw;
  if (given !== null && given !== undefined && (typeof given !== 'object' || Array.isArray(given)))
    return wrong(invalid(placeOf([]), '', `holds ${kindOf(given)} at its top; expected keys such as \`sandbox:\``));
  const fault = shapeFault(given);
  if (fault) return wrong(invalid(placeOf(fault.path), fault.path.join('.'), fault.reason));
  try {
    return held(schema, raw, guard);
  } catch (error) {
    // A contradiction between two forms of a key: what else is wrong cannot be told.
    if (isKnown(error)) return wrong(error);
    throw error;
  }
}

function isKnown(error: unknown): error is AcodeError {
  return error instanceof AcodeError;
}

function wrong(first: AcodeError, ...others: AcodeError[]): Examined<never> {
  return { loaded: null, problems: [first, ...others] };
}

function held<Value>(schema: z.ZodType<Value>, raw: RawConfig, guard?: KeyGuard): Examined<Value> {
  const { source, where: placeOf } = raw;
  const nested = nestDottedKeys(raw.value ?? {}, placeOf);
  const renamed = renameOldKeys(nested.value, nested.where);
  const value = withoutGiven(renamed.value);
  const whereOf = (path: Path): string => nested.where(renamed.written.get(path.join('.')) ?? path);
  const where = (key: string): string => whereOf(key.split('.'));
  const refused = guard?.(value, where) ?? [];
  const parsed = schema.safeParse(value, { error: issueText });
  if (parsed.success && refused.length === 0)
    return {
      loaded: { config: parsed.data, source, where, warnings: renamed.warnings, written: value },
      problems: [],
    };
  const issues = parsed.success ? [] : parsed.error.issues;
  const known = keysOf(schema);
  const found = issues.flatMap(issue => issueErrors(issue, { known, where: whereOf, kind: raw.kind ?? 'user' }));
  const [first, ...others] = [...refused, ...found];
  return wrong(first ?? invalid(source, '', 'is not valid'), ...others);
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

/** What an issue is judged by. */
interface Judged {
  readonly known: readonly string[];
  readonly where: (path: Path) => string;
  readonly kind: ConfigKind;
}

function issueErrors(issue: z.core.$ZodIssue, judged: Judged): AcodeError[] {
  const { where } = judged;
  if (issue.code !== 'unrecognized_keys') return [invalid(where(issue.path), issue.path.join('.'), issue.message)];
  return issue.keys.map(written => {
    const path = [...issue.path, written];
    return unknownKey(path.join('.'), where(path), judged);
  });
}

function unknownKey(key: string, where: string, { known, kind }: Judged): AcodeError {
  if (isPlanned(key)) return later(key, where);
  const elsewhere = elsewhereOf(key, kind, known);
  if (elsewhere) return new AcodeError('ACODE-SBX-013', { source: where, key: shortened(key), ...elsewhere });
  const near = nearestKey(key, known);
  return invalid(where, shortened(key), `is not a known key${near === null ? '' : ` (did you mean ${near}?)`}`);
}

/** Why a key is refused, and what to do. */
interface Misplaced {
  readonly reason: string;
  readonly remedy: string;
}

// A key that is right, in a file that may not have it.
function elsewhereOf(key: string, kind: ConfigKind, known: readonly string[]): Misplaced | null {
  if ((kind !== 'machine' && kind !== 'team') || !covers(keysOf(configSchema), key)) return null;
  const own = `each user sets it in their own file: \`acode config set ${key} …\`.`;
  return kind === 'team' ? notForTeam(key, own) : notForMachine(key, known, own);
}

function covers(keys: readonly string[], key: string): boolean {
  return keys.includes(key) || isSection(key, keys);
}

function notForTeam(key: string, own: string): Misplaced {
  return {
    reason: 'cannot be set in the team’s defaults',
    remedy: covers(keysOf(machineSchema), key)
      ? `Take it out. A limit for everyone belongs in ${MACHINE_POLICY}; a preference, ${own}`
      : `Take it out: ${own}`,
  };
}

function notForMachine(key: string, known: readonly string[], own: string): Misplaced {
  const defaults = covers(keysOf(teamSchema), key)
    ? `Defaults for everyone belong in ${TEAM_CONFIG}.`
    : `Otherwise ${own}`;
  const reason = 'is not a key of the machine’s policy, which only narrows';
  const ceiling = key.replace(/^sandbox\.defaults(?=\.|$)/, 'sandbox.ceilings');
  if (ceiling === key || !covers(known, ceiling)) return { reason, remedy: `Take it out. ${defaults}` };
  return {
    reason: `${reason} (did you mean ${ceiling}?)`,
    remedy: `Upper limits for everyone are \`${ceiling}\`. ${defaults}`,
  };
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

/** A configuration whose keys are nested, and where each was written. */
interface Nested {
  readonly value: unknown;
  readonly where: (path: Path) => string;
}

// Names in these maps are the writer’s own, and may have dots.
const OWN_NAMES = ['sandbox.containers.labels', 'sandbox.images.combined', 'sandbox.services'];

/**
 * Nests keys that were written with dots, as messages and docs name them: `sandbox.network.allow_bridge: true`. Only those
 * that exist; any other is judged as it stands. The same key in both forms with two values is an error.
 */
function nestDottedKeys(value: unknown, placeOf: (path: Path) => string): Nested {
  if (!hasDots(value)) return { value, where: placeOf };
  const every = [...keysOf(configSchema), ...ALIASES.map(({ old }) => old)];
  const written = new Map<string, readonly string[]>();
  const root = copyOfTree(value);
  const moves: { readonly from: readonly string[]; readonly to: readonly string[]; readonly value: unknown }[] = [];
  collect(root, [], []);
  for (const move of moves) place(move.to, move.value, move.from);
  return { value: root, where: path => placeOf(writtenAt(path)) };

  function collect(here: unknown, at: readonly string[], meant: readonly string[]): void {
    if (!isTree(here) || OWN_NAMES.includes(meant.join('.'))) return;
    for (const [name, child] of Object.entries(here)) {
      const to = [...meant, ...name.split('.')];
      const key = to.join('.');
      const dotted = name.includes('.') && (isNamed(key, every) || isOwnName(key));
      collect(child, [...at, name], dotted ? to : [...meant, name]);
      if (!dotted) continue;
      delete here[name];
      moves.push({ from: [...at, name], to: ownNamePath(to), value: child });
    }
  }

  function place(to: readonly string[], moved: unknown, from: readonly string[]): void {
    if (isTree(moved) && !OWN_NAMES.includes(to.join('.'))) {
      if (Object.keys(moved).length === 0) sectionAt(to);
      for (const [name, child] of Object.entries(moved)) place([...to, name], child, [...from, name]);
      return;
    }
    const holder = sectionAt(to.slice(0, -1));
    const name = to.at(-1) ?? '';
    const key = to.join('.');
    if (!holder) throw twice(key, to.slice(0, -1), from);
    if (Object.hasOwn(holder, name) && !isDeepStrictEqual(holder[name], moved)) throw twice(key, to, from);
    holder[name] = moved;
    if (!written.has(key)) written.set(key, from);
  }

  function twice(key: string, to: readonly string[], from: readonly string[]): AcodeError {
    return new AcodeError('ACODE-SBX-013', {
      source: placeOf(from),
      key,
      reason: `is set twice, to different values: here with dots, and at ${placeOf(writtenAt(to))}`,
      remedy: 'Keep one of the two.',
    });
  }

  function sectionAt(path: readonly string[]): Tree | null {
    let here = asTree(root);
    for (const step of path) {
      if (!here) return null;
      if (!Object.hasOwn(here, step)) here[step] = {};
      here = treeAt(here, [step]);
    }
    return here;
  }

  // A list that was moved takes its entries with it.
  function writtenAt(path: Path): Path {
    for (let length = path.length; length > 0; length -= 1) {
      const moved = written.get(path.slice(0, length).join('.'));
      if (moved) return [...moved, ...path.slice(length)];
    }
    return path;
  }
}

function hasDots(value: unknown): boolean {
  return isTree(value) && Object.entries(value).some(([name, child]) => name.includes('.') || hasDots(child));
}

function isNamed(key: string, every: readonly string[]): boolean {
  return every.includes(key) || isSection(key, every) || isPlanned(key);
}

function isOwnName(key: string): boolean {
  return OWN_NAMES.some(map => key.startsWith(`${map}.`));
}

// What follows such a map is one name, dots and all.
function ownNamePath(path: readonly string[]): readonly string[] {
  const key = path.join('.');
  const map = OWN_NAMES.find(one => key.startsWith(`${one}.`));
  return map === undefined ? path : [...map.split('.'), key.slice(map.length + 1)];
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
  { old: 'sandbox.defaults.bandwidth', key: 'sandbox.network.rate' },
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
function renameOldKeys(value: unknown, where: (path: Path) => string): Renamed {
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
