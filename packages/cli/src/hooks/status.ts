// Status of the hook of an agent: whether its settings name acode’s programs, and whether those are what acode would write now.

import { readFile, stat } from 'node:fs/promises';
import { codexTrust } from './codex-trust.ts';
import type { AskingCodex, Trust } from './codex-trust.ts';
import type { Hooked } from './agents.ts';
import { programTexts, programsOf } from './install.ts';
import type { Installing } from './install.ts';
import { readFields } from './json-file.ts';
import { isRewritten, variablesIn } from './shim.ts';
import { SETTINGS } from './settings.ts';

/** What is known of the hook of an agent. */
export interface HookStatus {
  readonly agent: Hooked;
  /** The user’s settings of the agent. */
  readonly file: string;
  readonly state: 'none' | 'whole' | 'faulty';
  /** What stays outside of sandboxes even so. */
  readonly outside: string;
  /** What is wrong, one sentence each. */
  readonly faults: readonly string[];
}

const EXECUTABLE = 0o100;
const OTHERS_WRITE = 0o022;

/** Reads the settings and the programs of a hook. */
export async function hookStatus(about: Installing): Promise<HookStatus> {
  const { agent, env } = about;
  const { file: fileOf, held: heldIn, outside } = SETTINGS[agent];
  const file = fileOf(env);
  const read = await readFields(file);
  const found = { agent, file, outside };
  if (read !== null && 'reason' in read) return { ...found, state: 'faulty', faults: [`${file} ${read.reason}`] };
  const held = read === null ? 'none' : heldIn(read.fields, programsOf(about));
  if (held === 'none') return { ...found, state: 'none', faults: [] };
  if (held === 'other')
    return { ...found, state: 'faulty', faults: ['the settings name a program that is not acode’s'] };
  const faults = held === 'outdated' ? [`the settings are not as acode writes them: acode hook install ${agent}`] : [];
  for (const [path] of programTexts(about)) faults.push(...(await faultsOf(about, path)));
  return { ...found, state: faults.length === 0 ? 'whole' : 'faulty', faults };
}

async function faultsOf(about: Installing, path: string): Promise<string[]> {
  const remedy = `acode hook install ${about.agent}`;
  const [found, text] = await Promise.all([stat(path).catch(() => null), readFile(path, 'utf8').catch(() => null)]);
  if (found === null || text === null) return [`${path} is missing or cannot be read: ${remedy}`];
  if ((found.mode & EXECUTABLE) === 0 || (found.mode & OTHERS_WRITE) !== 0 || found.uid !== process.getuid?.())
    return [`${path} is not yours alone and executable: ${remedy}`];
  // Written in another shell, it has the variables of that one.
  const given = programTexts(about, variablesIn(text));
  return given.get(path) === text ? [] : [`${path} is not what acode would write: ${remedy}`];
}

const TRUST: Readonly<Record<Trust, string | null>> = {
  trusted: null,
  untrusted: 'you have not trusted the hook of acode yet, and Codex skips it without a word',
  modified: 'the hook changed since you trusted it, and Codex skips it without a word',
  disabled: 'the hook of acode is switched off in Codex',
  absent: 'Codex has no hook of acode',
  unknown: 'Codex did not report its hooks',
};

/** Why Codex skips the hook; null where it runs it. */
export async function trustFault(about: Installing, asking: AskingCodex): Promise<string | null> {
  return TRUST[await codexTrust(asking, programsOf(about))];
}

/**
 * Why the hook of an agent is not in force that is in the user’s own settings; null where it is. Other agents are given theirs
 * when they start.
 */
export async function whyNotInForce(about: Installing, asking: AskingCodex): Promise<string | null> {
  if (!isRewritten(about.agent)) return null;
  const { state, faults } = await hookStatus(about);
  if (state === 'none') return 'its hook is not installed';
  return faults[0] ?? (about.agent === 'codex' ? trustFault(about, asking) : null);
}
