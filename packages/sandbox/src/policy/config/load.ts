// Configuration files of user, machine and repository: read strictly, bounded, and never as code.

import { createHash } from 'node:crypto';
import { constants, lstatSync } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { z } from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import type { EffectivePolicy } from '../../contract/policy.ts';
import { ENVIRONMENT_MODE } from '../../contract/wording.ts';
import { readBoundedFile } from '../../lifecycle/directories.ts';
import type { BoundedFile } from '../../lifecycle/directories.ts';
import { codeOf } from '../../contract/system-error.ts';
import { checkConfig, examineConfig, repeatsBuiltIn, valueAt } from './check.ts';
import type { ConfigKind, Examined, Loaded, LoadedConfig } from './check.ts';
import { MAX_BYTES, tooLarge } from './shape.ts';
import { configSchema, machineSchema, teamSchema } from './schema.ts';
import type { Config, MachinePolicy, TeamConfig } from './schema.ts';
import { MACHINE_POLICY, TEAM_CONFIG, isFixedValue, keysOf, repositoryRule } from './keys.ts';

/** The mode that the environment asks for. A value that is no mode is an error: it was meant to protect. */
export function environmentMode(env: NodeJS.ProcessEnv): EffectivePolicy['mode']['value'] | null {
  const value = env[ENVIRONMENT_MODE];
  if (value === undefined || value === '') return null;
  if (value === 'airgapped' || value === 'local-only') return value;
  throw new AcodeError('ACODE-SBX-013', {
    source: 'environment',
    key: ENVIRONMENT_MODE,
    reason: 'expected airgapped or local-only',
  });
}

/** The user’s own file; an absent one is an empty configuration. */
export async function loadUserConfig(directory: string, file?: string): Promise<LoadedConfig> {
  const source = file ?? join(directory, 'config.yml');
  const found = await examineUserConfig(source);
  if (found) return orThrow(found);
  if (file !== undefined) {
    const remedy = 'Name a configuration file that exists (--config), or leave it out to use your own.';
    throw new AcodeError('ACODE-SBX-013', { source, key: '', reason: 'does not exist', remedy });
  }
  return checkConfig({}, source);
}

/** A user’s file with everything that is wrong with it; null where there is none. */
export async function examineUserConfig(path: string): Promise<Examined<Config> | null> {
  return examined(async () => {
    const file = await readConfigFile(path, path, 0);
    return file && examineText(configSchema, textOf(file, path), path, 'user');
  });
}

/** The text of a user’s file with everything that is wrong with it. */
export async function examineUserText(text: string, source: string): Promise<Examined<Config>> {
  const found = await examined(() => examineText(configSchema, text, source, 'user'));
  return found ?? { loaded: checkConfig({}, source), problems: [] };
}

function orThrow<Value>({ loaded, problems }: Examined<Value>): Loaded<Value> {
  if (loaded) return loaded;
  throw problems[0];
}

// A file that cannot be read, or is not YAML, has one problem.
async function examined<Value>(work: () => Promise<Examined<Value> | null>): Promise<Examined<Value> | null> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof AcodeError) return { loaded: null, problems: [error] };
    throw error;
  }
}

/** The text of a file with everything that is wrong with it; throws where it is not YAML. */
export async function examineText<Value>(
  schema: z.ZodType<Value>,
  text: string,
  source: string,
  kind: ConfigKind,
): Promise<Examined<Value>> {
  const raw = (await import('./parse.ts')).rawConfig(text, source);
  return examineConfig(schema, { ...raw, kind }, kind === 'repository' ? forbiddenIn : undefined);
}

/**
 * The one key that is read before the root guard. Only root’s own file counts: one that another user owns or can write
 * allows nothing, and neither does one that cannot be understood.
 */
export async function readAllowRoot(directory: string, uid: number): Promise<boolean> {
  try {
    const path = join(directory, 'config.yml');
    const file = await readBoundedFile(path, MAX_BYTES);
    if (file.uid !== uid || (file.mode & 0o022) !== 0 || file.size > MAX_BYTES) return false;
    const { value } = (await import('./parse.ts')).rawConfig(file.text, path);
    return typeof value === 'object' && value !== null && 'allow_root' in value && value.allow_root === true;
  } catch {
    return false;
  }
}

/** Reads a configuration file; null where there is none. `source` is the name it has in messages. */
async function readConfigFile(path: string, source: string, flags: number): Promise<BoundedFile | null> {
  const file = await readBoundedFile(path, MAX_BYTES, flags).catch((cause: unknown) => {
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return null;
    throw new AcodeError('ACODE-SBX-013', { source, key: '', ...unreadable(path, codeOf(cause)) }, { cause });
  });
  if (file && file.size > MAX_BYTES) throw new AcodeError('ACODE-SBX-013', { source, key: '', reason: tooLarge() });
  return file;
}

function unreadable(path: string, code: string): { readonly reason: string; readonly remedy?: string } {
  if (code === 'ELOOP') return { reason: 'is a link, and links are not followed here' };
  if (code === 'ENOTDIR') return { reason: 'cannot be read: a part of its path is not a directory' };
  if (code !== 'EACCES' && code !== 'EPERM') return { reason: 'cannot be read' };
  const blocked = nearestClosed(path);
  return {
    reason: 'cannot be read: permission denied',
    remedy: isOwn(blocked)
      ? `Let yourself read it: \`chmod ${blocked === path ? 'u+r' : 'u+rx'} ${shellWord(blocked)}\``
      : `It belongs to another user. Ask the administrator for \`sudo chmod ${blocked === path ? 'o+r' : 'o+rx'} ${shellWord(blocked)}\``,
  };
}

// The directory on the way that cannot be entered, or the file itself.
function nearestClosed(path: string): string {
  let here = path;
  for (;;) {
    try {
      lstatSync(here);
      return here;
    } catch {
      const above = dirname(here);
      if (above === here) return path;
      here = above;
    }
  }
}

function isOwn(path: string): boolean {
  try {
    return lstatSync(path).uid === process.getuid?.();
  } catch {
    return false;
  }
}

function shellWord(path: string): string {
  return /^[\w./@+-]+$/.test(path) ? path : `'${path.replaceAll("'", String.raw`'\''`)}'`;
}

// What is not UTF-8 is refused: its bytes could read as one thing and count as another.
function textOf(file: BoundedFile, source: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(file.bytes);
  } catch (cause) {
    throw new AcodeError('ACODE-SBX-013', { source, key: '', reason: 'is not UTF-8 text' }, { cause });
  }
}

/** The machine’s policy with its places. */
export type LoadedMachine = Loaded<MachinePolicy>;

/** The machine’s policy; null where there is none. One that another user than `owner` could write is an error. */
export async function loadMachinePolicy(path = MACHINE_POLICY, owner = 0): Promise<LoadedMachine | null> {
  const found = await examineMachinePolicy(path, owner);
  return found && orThrow(found);
}

/** The machine’s policy with everything that is wrong with it; null where there is none. */
export function examineMachinePolicy(path = MACHINE_POLICY, owner = 0): Promise<Examined<MachinePolicy> | null> {
  return examined(() => examineOwned(machineSchema, path, owner, 'machine'));
}

/** The team’s defaults; null where there are none. A file that another user than `owner` could write is an error. */
export async function loadTeamConfig(path = TEAM_CONFIG, owner = 0): Promise<Loaded<TeamConfig> | null> {
  const found = await examineTeamConfig(path, owner);
  return found && orThrow(found);
}

/** The team’s defaults with everything that is wrong with them; null where there are none. */
export function examineTeamConfig(path = TEAM_CONFIG, owner = 0): Promise<Examined<TeamConfig> | null> {
  return examined(() => examineOwned(teamSchema, path, owner, 'team'));
}

const OWNED = { machine: 'the machine’s policy', team: 'the team’s defaults' } as const;

async function examineOwned<Value>(
  schema: z.ZodType<Value>,
  path: string,
  owner: number,
  kind: keyof typeof OWNED,
): Promise<Examined<Value> | null> {
  const file = await readConfigFile(path, path, 0);
  if (!file) return null;
  hold(file, path, owner, OWNED[kind]);
  const directory = await stat(dirname(path));
  hold(directory, dirname(path), owner, OWNED[kind]);
  return examineText(schema, textOf(file, path), path, kind);
}

function hold({ uid, mode }: { uid: number; mode: number }, path: string, owner: number, what: string): void {
  if (uid !== owner)
    throw new AcodeError('ACODE-SBX-013', {
      source: path,
      key: '',
      reason: `does not belong to root, so it is not ${what}`,
      remedy: `If it is meant to be, make it root’s: \`sudo chown root: ${shellWord(path)} && sudo chmod go-w ${shellWord(path)}\``,
    });
  if ((mode & 0o022) === 0) return;
  throw new AcodeError('ACODE-SBX-013', {
    source: path,
    key: '',
    reason: 'can be written by others than its owner',
    remedy: `Check who changed it, then: \`sudo chmod go-w ${shellWord(path)}\``,
  });
}

/** The user’s configuration over the team’s defaults: what the user sets counts, lists of what is allowed and labels add up. */
export function overTeam(own: LoadedConfig, team: Loaded<TeamConfig> | null): LoadedConfig {
  if (!team) return own;
  const below: LoadedConfig = team;
  const setsIt = (key: string): boolean => valueAt(own.written, key) !== undefined;
  const both = (key: string): boolean =>
    ADDED_UP.includes(key) && setsIt(key) && valueAt(team.written, key) !== undefined;
  return {
    config: merged(below.config, own.config, ''),
    written: merged(below.written, own.written, ''),
    source: own.source,
    warnings: [...team.warnings, ...own.warnings],
    where: key => {
      if (both(key)) return `${own.where(key)} and ${team.where(key)}`;
      return setsIt(key) || valueAt(team.written, key) === undefined ? own.where(key) : team.where(key);
    },
    layerOf: key => (setsIt(key) || valueAt(team.written, key) === undefined ? 'user' : 'team'),
    parts: { own, team: below },
  };
}

/** Keys whose values of user and team add up. What is allowed by either is allowed: the machine’s policy bounds both. */
export const ADDED_UP: readonly string[] = [
  'sandbox.network.allow',
  'sandbox.network.deny',
  'sandbox.network.allowed_networks',
  'sandbox.mounts.allowed_host_roots',
  'sandbox.security.trusted_images',
  'sandbox.security.allowed_runtimes',
  'sandbox.containers.labels',
];

function merged<Value>(below: Value, above: Value, key: string): Value;
function merged(below: unknown, above: unknown, key: string): unknown {
  if (above === undefined) return below;
  if (below === undefined) return above;
  if (isList(below) && isList(above)) return ADDED_UP.includes(key) ? [...new Set([...below, ...above])] : above;
  if (!isMap(below) || !isMap(above)) return above;
  const names = [...new Set([...Object.keys(below), ...Object.keys(above)])];
  return Object.fromEntries(
    names.map(name => [name, merged(below[name], above[name], key === '' ? name : `${key}.${name}`)]),
  );
}

function isList(value: unknown): value is readonly unknown[] {
  return Array.isArray(value);
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const FOLDER = '.agent';
const FILE = 'config.yml';
const OLD_FILE = 'agent-config.yml';

/** The configuration of a repository. */
export interface RepositoryConfig extends LoadedConfig {
  /** The workspace it came from. */
  readonly root: string;
  /** The file itself. */
  readonly file: string;
  /** Hash of its exact bytes. */
  readonly hash: string;
}

/** Reads `.agent/config.yml` of a workspace, else the old `agent-config.yml`; null where there is neither. */
export async function loadRepositoryConfig(root: string): Promise<RepositoryConfig | null> {
  const found = await examineRepositoryConfig(root);
  if (!found) return null;
  const { file, hash, warnings } = found;
  const loaded = orThrow(found.examined);
  return { ...loaded, warnings: [...warnings, ...loaded.warnings], root, file, hash };
}

/** A repository’s file with everything that is wrong with it. */
export interface ExaminedRepository {
  readonly file: string;
  readonly hash: string;
  readonly warnings: readonly string[];
  readonly examined: Examined<Config>;
}

/** Reads a repository’s file as {@link loadRepositoryConfig} does, and collects every problem; throws where it cannot be read. */
export async function examineRepositoryConfig(root: string): Promise<ExaminedRepository | null> {
  const source = `${FOLDER}/${FILE}`;
  // Most have neither, and it is asked before each command.
  if (isAbsent(join(root, FOLDER)) && isAbsent(join(root, OLD_FILE))) return null;
  const [own, old] = await Promise.all([
    readInFolder(root, source),
    readConfigFile(join(root, OLD_FILE), OLD_FILE, constants.O_NOFOLLOW),
  ]);
  if (own && old) {
    const reason = `stands beside ${OLD_FILE}, its old name; keep one of the two`;
    throw new AcodeError('ACODE-SBX-013', { source, key: '', reason });
  }
  if (own) return parse(own, root, source, []);
  return old ? parse(old, root, OLD_FILE, [`${OLD_FILE} is an old name; rename it to ${source}.`]) : null;
}

// A path that cannot be inspected is not absent: opening it gives the reason.
function isAbsent(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) === undefined;
  } catch {
    return false;
  }
}

async function parse(
  file: BoundedFile,
  root: string,
  source: string,
  warnings: readonly string[],
): Promise<ExaminedRepository> {
  const text = textOf(file, source);
  return {
    examined: await examineText(configSchema, text, source, 'repository'),
    warnings,
    file: join(root, source),
    hash: `sha256:${createHash('sha256').update(file.bytes).digest('hex')}`,
  };
}

// Opened by way of the folder’s own descriptor, so that a folder swapped for a link meanwhile changes nothing.
async function readInFolder(root: string, source: string): Promise<BoundedFile | null> {
  const path = join(root, FOLDER);
  const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
  const folder = await open(path, flags).catch((cause: unknown) => {
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return null;
    const reason = 'is not a directory of the workspace itself, and links are not followed here';
    throw new AcodeError('ACODE-SBX-013', { source: FOLDER, key: '', reason }, { cause });
  });
  if (!folder) return null;
  try {
    const base = process.platform === 'linux' ? `/proc/self/fd/${folder.fd}` : path;
    return await readConfigFile(join(base, FILE), source, constants.O_NOFOLLOW);
  } finally {
    await folder.close();
  }
}

// Before the schema: whatever the value, the reason to hear is that the key is not the repository’s to set.
function forbiddenIn(value: unknown, where: (key: string) => string): AcodeError[] {
  return keysOf(configSchema).flatMap((key): AcodeError[] => {
    const found = valueAt(value, key);
    if (found === undefined || repeatsBuiltIn(key, found)) return [];
    const rule = repositoryRule(key);
    if (rule === 'never' || (rule === 'fixed' && !isFixedValue(key, found))) {
      return [
        new AcodeError('ACODE-SBX-020', {
          key,
          where: where(key),
          rule: rule === 'never' ? 'only your own configuration may set it' : 'its value is fixed, for everybody',
          remedy:
            rule === 'never'
              ? 'Take the line out of the repository’s file; if you want it, set it in your own configuration file.'
              : 'Take the line out of the repository’s file; the safe value holds anyway.',
        }),
      ];
    }
    if (rule !== 'later') return [];
    return [
      new AcodeError('ACODE-SBX-016', {
        what: `The key ${key} in a repository’s file (${where(key)})`,
        instead: 'Take the line out of the repository’s file, or set it in your own configuration file.',
      }),
    ];
  });
}

/** What level ulimit holds each process to. */
interface UlimitSettings {
  readonly fileBytes: number;
  readonly cpuSeconds: number;
  /** Null where the address space is not limited; absent where it is to be as large as the memory. */
  readonly virtualMemoryBytes?: number | null;
}

/** How a host behaves, apart from the policy of its sandboxes. */
export interface Settings {
  readonly engineSocket: string | undefined;
  readonly namePrefix: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly createTimeoutMs: number;
  /** How long a pull may take, with every try. */
  readonly pullTimeoutMs: number;
  /** Between being asked to end and being killed. */
  readonly graceMs: number;
  readonly maxConcurrent: number;
  /** How long a run waits for a place; 0 where the user wants no queue. */
  readonly queueMs: number;
  readonly cleanupMs: number;
  /** Whether what dead sessions left behind is removed when a session begins. */
  readonly sweepsOrphans: boolean;
  readonly retry: { readonly attempts: number; readonly baseMs: number; readonly factor: number };
  /** Whether bubblewrap may run where memory is limited for each process only. */
  readonly acceptsProcessLimits: boolean;
  /** What level ulimit holds each process to. */
  readonly ulimit: UlimitSettings;
  /** How many days output is kept; null where it is not. */
  readonly keepOutputDays: number | null;
}

type Section<Name extends keyof NonNullable<Config['sandbox']>> = NonNullable<NonNullable<Config['sandbox']>[Name]>;

/** Fills in the defaults. */
export function settingsOf({ sandbox = {} }: Config): Settings {
  const { containers = {}, output = {} } = sandbox;
  return {
    engineSocket: sandbox.docker?.host,
    ...containerSettings(containers),
    cleanupMs: (sandbox.cleanup?.timeout_seconds ?? 30) * 1000,
    retry: retrySettings(sandbox.retry ?? {}),
    ...levelSettings(sandbox),
    keepOutputDays: output.save === false ? null : (output.retention_days ?? 7),
  };
}

function levelSettings(sandbox: NonNullable<Config['sandbox']>): Pick<Settings, 'acceptsProcessLimits' | 'ulimit'> {
  const acceptsProcessLimits = sandbox.bubblewrap?.accept_process_limits ?? false;
  return { acceptsProcessLimits, ulimit: ulimitSettings(sandbox) };
}

function ulimitSettings(sandbox: NonNullable<Config['sandbox']>): UlimitSettings {
  const virtual = sandbox.max_virtual_memory;
  return {
    fileBytes: (sandbox.max_file_size_mb ?? 100) * 1024 ** 2,
    cpuSeconds: sandbox.max_cpu_seconds ?? 300,
    ...(virtual === undefined ? {} : { virtualMemoryBytes: virtual === 'unlimited' ? null : virtual }),
  };
}

function retrySettings({ attempts = 3, base_ms = 100, factor = 2 }: Section<'retry'>): Settings['retry'] {
  return { attempts, baseMs: base_ms, factor };
}

function containerSettings(
  containers: Section<'containers'>,
): Pick<
  Settings,
  | 'namePrefix'
  | 'labels'
  | 'createTimeoutMs'
  | 'pullTimeoutMs'
  | 'graceMs'
  | 'maxConcurrent'
  | 'queueMs'
  | 'sweepsOrphans'
> {
  return {
    namePrefix: containers.name_prefix ?? 'acode',
    labels: containers.labels ?? {},
    createTimeoutMs: (containers.create_timeout_seconds ?? 30) * 1000,
    pullTimeoutMs: (containers.pull_timeout_seconds ?? 300) * 1000,
    graceMs: (containers.stop_timeout_seconds ?? 2) * 1000,
    maxConcurrent: containers.max_concurrent ?? 4,
    sweepsOrphans: containers.cleanup_orphans ?? true,
    queueMs: containers.on_limit === 'reject' ? 0 : (containers.queue_timeout_seconds ?? 60) * 1000,
  };
}
