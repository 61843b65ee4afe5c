// Installs the hook of an agent in the user’s own settings, and removes it again.

import { access, constants, rm } from 'node:fs/promises';
import { stateDirectory } from '../serve/identity.ts';
import type { Hooked } from './agents.ts';
import { hookError } from './errors.ts';
import { readFields, writeFields, writeWhole } from './json-file.ts';
import type { Fields } from './json-file.ts';
import { SETTINGS, programsIn } from './settings.ts';
import type { HookPrograms } from './settings.ts';
import { SYSTEM_PROGRAMS, environmentOfShim, isRewritten, rewriteShim, runShim } from './shim.ts';
import type { ShimParts } from './shim.ts';

type Environment = Readonly<Record<string, string | undefined>>;

const PROGRAM = 0o500;

/** Where acode is, and for whom. */
export interface Installing {
  readonly agent: Hooked;
  readonly env: Environment;
  /** The file of Node.js. */
  readonly node: string;
  /** The file of acode. */
  readonly entry: string;
}

/** What was done. */
export interface HookChange {
  readonly agent: Hooked;
  readonly file: string;
  readonly outcome: 'installed' | 'updated' | 'unchanged' | 'removed' | 'absent';
}

/** The texts of the programs of an agent, by their paths. */
export function programTexts(
  about: Installing,
  env: Readonly<Record<string, string>> = environmentOfShim(about.env),
): ReadonlyMap<string, string> {
  const programs = programsOf(about);
  const parts: ShimParts = { ...about, env };
  const texts = new Map([[programs.run, runShim(parts)]]);
  if (isRewritten(about.agent)) texts.set(programs.rewrite, rewriteShim(parts, programs.run));
  return texts;
}

/** Where the programs of an agent are. */
export function programsOf({ agent, env }: Pick<Installing, 'agent' | 'env'>): HookPrograms {
  return programsIn(stateDirectory(env), agent);
}

/** Writes the programs of the hook, then names them in the agent’s settings. */
export async function installHook(about: Installing): Promise<HookChange> {
  const { agent, env } = about;
  await requireSystem(agent);
  const settings = SETTINGS[agent];
  const file = settings.file(env);
  const fields = await fieldsOf(agent, file);
  const programs = programsOf(about);
  const held = settings.held(fields, programs);
  if (held === 'other') throw occupied(agent, file);
  for (const [path, text] of programTexts(about)) await writeWhole(path, text, PROGRAM);
  if (held === 'whole') return { agent, file, outcome: 'unchanged' };
  await writeFields(file, settings.added(fields, programs));
  return { agent, file, outcome: held === 'none' ? 'installed' : 'updated' };
}

/** Takes the hook out of the agent’s settings, then removes its programs. */
export async function removeHook({ agent, env }: Pick<Installing, 'agent' | 'env'>): Promise<HookChange> {
  const settings = SETTINGS[agent];
  const file = settings.file(env);
  const programs = programsOf({ agent, env });
  const fields = await fieldsOf(agent, file);
  const held = settings.held(fields, programs);
  const isThere = held === 'whole' || held === 'outdated';
  if (isThere) await writeFields(file, settings.removed(fields, programs));
  for (const path of [programs.run, programs.rewrite]) await rm(path, { force: true });
  return { agent, file, outcome: isThere ? 'removed' : 'absent' };
}

async function fieldsOf(agent: Hooked, file: string): Promise<Fields> {
  const read = await readFields(file);
  if (read === null) return {};
  if ('fields' in read) return read.fields;
  throw hookError('ACODE-HOK-004', { agent, file, reason: read.reason });
}

function occupied(agent: Hooked, file: string): Error {
  const reason = `names another program in the place of acode’s (${agent === 'claude' ? 'env.CLAUDE_CODE_SHELL_PREFIX' : 'shell'})`;
  return hookError('ACODE-HOK-004', { agent, file, reason });
}

// Without them every command would be blocked, and the reason would be hard to find.
async function requireSystem(agent: Hooked): Promise<void> {
  for (const file of SYSTEM_PROGRAMS)
    await access(file, constants.X_OK).catch(() => {
      throw hookError('ACODE-HOK-004', { agent, file, reason: 'is not a program, and the hook needs it' });
    });
}
