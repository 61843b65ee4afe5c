// Configuration files of the user, the team, the machine and the repository: shown, checked and changed. Runs nothing.

import { randomUUID } from 'node:crypto';
import { existsSync, lstatSync, mkdirSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import type {
  CheckedConfigFile,
  ConfigChange,
  ConfigFile,
  ConfigLayer,
  ConfigPlan,
  ConfigProblem,
  ConfigValue,
  Configuration,
  Consent,
  LooseningChange,
} from '../contract/configuration.ts';
import { AcodeError } from '../contract/errors.ts';
import { codeOf, reasonOf } from '../contract/system-error.ts';
import { systemClock } from '../lifecycle/clock.ts';
import type { Directories } from '../lifecycle/directories.ts';
import { readBoundedFile, writePrivateFile } from '../lifecycle/directories.ts';
import type { Examined, LoadedConfig } from '../policy/config/check.ts';
import { checkConfig, valueAt } from '../policy/config/check.ts';
import { parseDocument } from '../policy/config/document.ts';
import { editedKey, meantValues, newFileText, withValue, withoutKey } from '../policy/config/edit.ts';
import { SCHEMA_FILE, configJsonSchema } from '../policy/config/json-schema.ts';
import { MACHINE_POLICY, TEAM_CONFIG, keysOf } from '../policy/config/keys.ts';
import {
  ADDED_UP,
  examineMachinePolicy,
  examineRepositoryConfig,
  examineTeamConfig,
  examineText,
  examineUserConfig,
  examineUserText,
  overTeam,
} from '../policy/config/load.ts';
import { loosenings } from '../policy/config/loosening.ts';
import { configSchema, machineSchema, teamSchema } from '../policy/config/schema.ts';
import type { Config } from '../policy/config/schema.ts';
import { MAX_BYTES } from '../policy/config/shape.ts';
import { AuditLog } from '../records/audit/log.ts';

/** Where the files are. */
export interface ConfigurationPlaces {
  readonly directories: Pick<Directories, 'config' | 'state'>;
  /** A file in place of the user’s own. */
  readonly configFile?: string | undefined;
  /** The workspace, whose repository may have a file. */
  readonly workspace: string;
  readonly uid: number;
}

const REPOSITORY_FILE = join('.agent', 'config.yml');

/** The configuration files of a user in a workspace. */
export function configurationIn(places: ConfigurationPlaces): Configuration {
  const own = places.configFile ?? join(places.directories.config, 'config.yml');
  return {
    keys: () => keysOf(configSchema),
    files: () => Promise.resolve(filesOf(own, places.workspace)),
    get: key => get(own, places.workspace, key),
    check: (file, as) => (file === undefined ? checkAll(own, places.workspace) : checkOne(file, as)),
    read: () => textIn(own),
    newFile: newFileText,
    problemsIn: async text => problemsOf((await examineUserText(text, own)).problems),
    plan: change => plan(own, change),
    install: (planned, consent) => install(planned, places, consent),
  };
}

function filesOf(own: string, workspace: string): ConfigFile[] {
  const old = join(workspace, 'agent-config.yml');
  const repository = join(workspace, REPOSITORY_FILE);
  const places: readonly (readonly [ConfigLayer, string])[] = [
    ['repository', existsSync(old) && !existsSync(repository) ? old : repository],
    ['user', own],
    ['team', TEAM_CONFIG],
    ['machine', MACHINE_POLICY],
  ];
  return places.map(([layer, path]) => ({ layer, path, exists: isThere(path) }));
}

// A file in a directory that cannot be entered may be there: reading it gives the reason.
function isThere(path: string): boolean {
  try {
    lstatSync(path);
    return true;
  } catch (error) {
    return codeOf(error) !== 'ENOENT' && codeOf(error) !== 'ENOTDIR';
  }
}

/** One file, as it was examined. */
interface ExaminedFile extends ConfigFile {
  readonly examined: Examined<unknown> | null;
  readonly warnings: readonly string[];
}

async function examineAll(own: string, workspace: string): Promise<ExaminedFile[]> {
  const examine: Readonly<Record<ConfigLayer, () => Promise<Examined<unknown> | null>>> = {
    repository: async () => (await examineRepositoryConfig(workspace))?.examined ?? null,
    user: () => examineUserConfig(own),
    team: () => examineTeamConfig(),
    machine: () => examineMachinePolicy(),
  };
  return Promise.all(
    filesOf(own, workspace).map(async file => {
      const examined = await examine[file.layer]().catch(problem);
      return { ...file, examined, warnings: examined?.loaded?.warnings ?? [] };
    }),
  );
}

function problem(error: unknown): Examined<unknown> {
  if (error instanceof AcodeError) return { loaded: null, problems: [error] };
  throw error;
}

async function checkAll(own: string, workspace: string): Promise<CheckedConfigFile[]> {
  const found = await examineAll(own, workspace);
  return found.map(({ examined, ...file }) => ({ ...file, problems: problemsOf(examined?.problems ?? []) }));
}

// A file that is checked before it is installed: who owns it there is not the question yet.
async function checkOne(file: string, as: ConfigLayer | undefined): Promise<CheckedConfigFile[]> {
  const path = resolve(file);
  const layer = as ?? layerNamedBy(path);
  const text = await textIn(path);
  if (text === null)
    throw new AcodeError('ACODE-SBX-013', {
      source: path,
      key: '',
      reason: 'does not exist',
      remedy: 'Name a configuration file that exists, or leave it out to check your own, the team’s and the machine’s.',
    });
  const schema = { machine: machineSchema, team: teamSchema, user: configSchema, repository: configSchema }[layer];
  const examined = await examineText<unknown>(schema, text, file, layer).catch(problem);
  return [
    { layer, path, exists: true, problems: problemsOf(examined.problems), warnings: examined.loaded?.warnings ?? [] },
  ];
}

function layerNamedBy(path: string): ConfigLayer {
  if (basename(path) === 'policy.yml') return 'machine';
  if (path === TEAM_CONFIG) return 'team';
  return basename(dirname(path)) === '.agent' || basename(path) === 'agent-config.yml' ? 'repository' : 'user';
}

function problemsOf(errors: readonly AcodeError[]): ConfigProblem[] {
  return [...errors]
    .sort((one, other) => positionOf(one).localeCompare(positionOf(other), 'en', { numeric: true }))
    .map(error => ({ code: error.code, message: error.message, hint: hasRemedy(error) ? error.hint : SEE_KEYS }));
}

// The position stands in the message already, and what to correct is there.
const SEE_KEYS = 'Correct it; docs/configuration.md lists every key.';

function hasRemedy(error: AcodeError): boolean {
  return !error.is('ACODE-SBX-013') || error.context.remedy !== undefined;
}

// File, line and column, where the error has them as data.
function positionOf(error: AcodeError): string {
  if (error.is('ACODE-SBX-013')) return error.context.source;
  return error.is('ACODE-SBX-020') ? error.context.where : '';
}

async function get(own: string, workspace: string, key: string | undefined): Promise<ConfigValue[]> {
  const wanted = key === undefined ? null : editedKey(key).path.join('.');
  const files = await examineAll(own, workspace);
  for (const { examined } of files) if (examined && !examined.loaded) throw examined.problems[0];
  return keysOf(configSchema)
    .filter(one => wanted === null || one === wanted || wanted.startsWith(`${one}.`))
    .flatMap(one => valuesOf(files, one, wanted ?? one));
}

// What the files set for a key; `shown` may be one name in a map of the user’s own.
function valuesOf(files: readonly ExaminedFile[], key: string, shown: string): ConfigValue[] {
  const values = files.flatMap(({ layer, examined }) => {
    const loaded = examined?.loaded;
    const whole = loaded ? valueAt(loaded.written, key) : undefined;
    const value = shown === key ? whole : memberOf(whole, shown.slice(key.length + 1));
    return loaded && value !== undefined ? [{ key: shown, value, layer, where: loaded.where(key) }] : [];
  });
  // The machine’s policy bounds the others and is overridden by none; lists of what is allowed add up.
  const isOverridden = (layer: ConfigLayer, at: number): boolean =>
    at > 0 && layer !== 'machine' && !ADDED_UP.includes(key);
  return values.map((value, at) => ({ ...value, overridden: isOverridden(value.layer, at) }));
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Object.getOwnPropertyDescriptor(value, name)?.value : undefined;
}

async function textIn(path: string): Promise<string | null> {
  try {
    const file = await readBoundedFile(path, MAX_BYTES + 1);
    return file.text;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null;
    // The reason, and the command that helps, as every command would give them.
    const found = await examineUserConfig(path);
    throw found?.problems[0] ?? error;
  }
}

async function plan(file: string, change: ConfigChange): Promise<ConfigPlan> {
  const before = await textIn(file);
  const { after, loaded } = await changed(file, before, change);
  return { file, before, after, loosens: await loosenedBy(file, before, loaded) };
}

// Of a file that is not valid, nothing counts: whatever loosens in the new one is new. Both are compared over the team’s
// defaults, since a user’s value may replace a stricter one of the team, and without it a looser one may count.
async function loosenedBy(file: string, before: string | null, after: LoadedConfig): Promise<LooseningChange[]> {
  const now = before === null ? null : await examineUserText(before, file);
  const team = (await examineTeamConfig())?.loaded ?? null;
  const effective = (own: LoadedConfig): Config => overTeam(own, team).config;
  return loosenings(effective(now?.loaded ?? checkConfig({}, file)), effective(after));
}

async function changed(
  file: string,
  before: string | null,
  change: ConfigChange,
): Promise<{ readonly after: string; readonly loaded: LoadedConfig }> {
  if (change.kind !== 'text' && before !== null) refuseBroken(file, before);
  const [first, ...others] = textsAfter(before, change);
  const found = await examineUserText(first, file);
  if (found.loaded) return { after: first, loaded: found.loaded };
  for (const text of others) {
    const other = await examineUserText(text, file);
    if (other.loaded) return { after: text, loaded: other.loaded };
  }
  throw change.kind === 'text' ? found.problems[0] : await notValid(file, before, change.key, found.problems[0]);
}

// A text that is not YAML has no keys to change. Other problems of the file do not prevent a change that corrects them.
function refuseBroken(file: string, text: string): void {
  try {
    parseDocument(text, file);
  } catch (error) {
    if (!(error instanceof AcodeError && error.is('ACODE-SBX-013'))) throw error;
    const remedy = 'Nothing was changed. Correct the file first: `acode config edit` opens it.';
    throw new AcodeError('ACODE-SBX-013', { ...error.context, remedy }, { cause: error });
  }
}

// What was typed is wrong, unless the file was before.
async function notValid(file: string, before: string | null, field: string, cause: AcodeError): Promise<AcodeError> {
  const now = before === null ? null : await examineUserText(before, file);
  if (!cause.is('ACODE-SBX-013') || (now && !now.loaded)) return cause;
  const remedy = `Nothing was changed. docs/configuration.md says what ${field} may be.`;
  return new AcodeError('ACODE-SBX-017', { field, reason: cause.context.reason, remedy }, { cause });
}

// The texts that a change may mean, likeliest first.
function textsAfter(before: string | null, change: ConfigChange): readonly [string, ...string[]] {
  if (change.kind === 'text') return [change.text];
  const key = editedKey(change.key);
  if (change.kind === 'unset') return [before === null ? '' : withoutKey(before, key)];
  if (change.kind === 'add' && !key.isList) throw notAList(change.key);
  const [first, ...others] = meantValues(key, change.values).map(value =>
    withValue(before, key, value, change.kind === 'add'),
  );
  return [first ?? newFileText(), ...others];
}

function notAList(key: string): AcodeError {
  return new AcodeError('ACODE-SBX-017', {
    field: key,
    reason: 'this is not a list, so nothing can be added to it',
    remedy: `Set it: \`acode config set ${key} <value>\`.`,
  });
}

async function install(
  { file, before, after }: ConfigPlan,
  { directories, uid }: ConfigurationPlaces,
  consent: Consent | undefined,
): Promise<void> {
  if (after === before) return;
  const found = await examineUserText(after, file);
  if (!found.loaded) throw found.problems[0];
  if ((await textIn(file)) !== before)
    throw new AcodeError('ACODE-SBX-013', {
      source: file,
      key: '',
      reason: 'was changed by another program meanwhile, so nothing was written',
      remedy: 'Look at it, and do it again.',
    });
  // Decided again: a plan is data, and may have come from anywhere.
  const loosens = await loosenedBy(file, before, found.loaded);
  if (loosens.length > 0) await recordConsent(join(directories.state, 'audit'), uid, { file, loosens }, consent);
  write(file, after, before === null);
}

// Recorded before it takes effect: if the record cannot be written, the policy is not loosened.
async function recordConsent(
  directory: string,
  uid: number,
  { file, loosens }: Pick<ConfigPlan, 'file' | 'loosens'>,
  consent: Consent | undefined,
): Promise<void> {
  const keys = loosens.map(({ key }) => key).join(', ');
  if (!consent)
    throw new AcodeError('ACODE-SBX-013', {
      source: file,
      key: loosens[0]?.key ?? '',
      reason: 'loosens the policy, and nobody agreed to it',
      remedy: 'Ask the user first, and pass their consent.',
    });
  const audit = new AuditLog({ directory, uid, clock: systemClock });
  try {
    const detail = { file, keys, consent: consent.how, parent: consent.parent ?? 'unknown' };
    const event = 'policy loosened';
    await audit.append({ kind: 'event', operation: 'config', correlationId: randomUUID(), event, detail });
  } finally {
    await audit.close();
  }
}

const NEW_DIRECTORY = 0o700;
const NEW_FILE = 0o600;

function write(file: string, text: string, isNew: boolean): void {
  try {
    mkdirSync(dirname(file), { recursive: true, mode: NEW_DIRECTORY });
    // Where dotfiles are links, what they lead to is the file.
    const target = isNew ? file : realpathSync(file);
    const mode = isNew ? NEW_FILE : statSync(target).mode & 0o777;
    writePrivateFile(target, text, { mode });
    if (text.includes(SCHEMA_FILE)) writeSchema(join(dirname(file), SCHEMA_FILE));
  } catch (cause) {
    const reason = `cannot be written: ${reasonOf(cause)}`;
    const remedy = 'Make sure that the file and its directory are yours, and that the disk has free space.';
    throw new AcodeError('ACODE-SBX-013', { source: file, key: '', reason, remedy }, { cause });
  }
}

// For editors, beside the file that names it.
function writeSchema(path: string): void {
  writePrivateFile(path, `${JSON.stringify(configJsonSchema(), null, 2)}\n`, { mode: NEW_FILE, durable: false });
}
