// Agents that acode knows: its own presets, and those of the user’s own file. A repository has no say in them.

import { lstat, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseDocument } from 'yaml';
import * as z from 'zod';
import { agentError } from './errors.ts';
import { isNear } from './near.ts';
import { changedPresetSchema, presetSchema } from './preset.ts';
import type { AgentPreset, ChangedPreset } from './preset.ts';
import { claude } from './presets/claude.ts';
import { codex } from './presets/codex.ts';
import { gemini } from './presets/gemini.ts';
import { opencode } from './presets/opencode.ts';

/** The presets that acode ships, in the order in which they are shown. */
export const PRESETS: readonly AgentPreset[] = [claude, codex, gemini, opencode];

type Environment = Readonly<Record<string, string | undefined>>;

/** An agent, and where it comes from. */
export interface KnownAgent {
  readonly preset: AgentPreset;
  /** The user’s file, where that made or changed it; null for a preset as acode ships it. */
  readonly changedBy: string | null;
}

const fileSchema = z.strictObject({
  agents: z.record(
    z.string().regex(/^[a-z][a-z0-9-]{0,30}$/, 'small letters, digits and hyphens'),
    changedPresetSchema,
  ),
});

const MAX_BYTES = 256 * 1024;
const OTHERS_WRITE = 0o022;

/** The user’s file of agents. */
export function agentsFile(env: Environment): string {
  const home = env['HOME'] ?? '';
  const config = env['XDG_CONFIG_HOME'];
  return join(config?.startsWith('/') ? config : join(home, '.config'), 'acode', 'agents.yml');
}

/** Every agent. Throws where the user’s file is not valid. */
export async function knownAgents(env: Environment): Promise<readonly KnownAgent[]> {
  const file = agentsFile(env);
  const changes = await changesIn(file);
  const changed = (name: string): ChangedPreset | undefined =>
    Object.hasOwn(changes, name) ? changes[name] : undefined;
  const shipped = PRESETS.map((preset): KnownAgent => {
    const change = changed(preset.name);
    return change === undefined
      ? { preset, changedBy: null }
      : { preset: whole(file, preset.name, change), changedBy: file };
  });
  const added = Object.entries(changes).filter(([name]) => !PRESETS.some(preset => preset.name === name));
  return [...shipped, ...added.map(([name, change]) => ({ preset: whole(file, name, change), changedBy: file }))];
}

/** The agent of a name. Throws where there is none. */
export async function agentCalled(name: string, env: Environment): Promise<KnownAgent> {
  const all = await knownAgents(env);
  const found = all.find(({ preset }) => preset.name === name);
  if (found) return found;
  const known = all.map(({ preset }) => preset.name);
  const meant = known.find(one => isNear(one, name));
  throw agentError('ACODE-AGT-001', { agent: name, known, ...(meant === undefined ? {} : { meant }) });
}

/** The preset of a name; one for a program of the image where no agent was meant. Throws for an agent that was mistyped. */
export async function agentOrProgram(name: string, env: Environment): Promise<AgentPreset> {
  const all = await knownAgents(env);
  return all.some(({ preset }) => isNear(preset.name, name)) ? (await agentCalled(name, env)).preset : plainAgent(name);
}

/** An agent without a preset: a program of the image, started as it is. */
function plainAgent(program: string): AgentPreset {
  const name = /^[a-z][a-z0-9-]{0,30}$/.test(program) ? program : 'agent';
  return {
    name,
    title: program,
    command: [program],
    start: { terminal: ['{arguments}'], prompt: ['{arguments}', '{prompt}'] },
  };
}

async function changesIn(file: string): Promise<Readonly<Record<string, ChangedPreset>>> {
  const text = await ownText(file);
  if (text === null) return {};
  const document = parseDocument(text, { uniqueKeys: true });
  const [error] = document.errors;
  if (error) {
    const [at] = error.linePos ?? [];
    throw agentError('ACODE-AGT-006', { file, reason: `is not YAML${at === undefined ? '' : `, in line ${at.line}`}` });
  }
  const parsed = fileSchema.safeParse(document.toJS({ maxAliasCount: 100 }) ?? { agents: {} });
  if (parsed.success) return parsed.data.agents;
  throw agentError('ACODE-AGT-006', { file, reason: reasonOf(parsed.error) });
}

// What others can write is not the user’s.
async function ownText(file: string): Promise<string | null> {
  const found = await lstat(file).catch(() => null);
  if (found === null) return null;
  const refuse = (reason: string): Error => agentError('ACODE-AGT-006', { file, reason });
  if (!found.isFile()) throw refuse('is not a file');
  if (found.uid !== process.getuid?.() || (found.mode & OTHERS_WRITE) !== 0)
    throw refuse('can be written by others than you');
  if (found.size > MAX_BYTES) throw refuse('is larger than 256 KiB');
  return readFile(file, 'utf8');
}

function whole(file: string, name: string, { like, integrity, ...change }: ChangedPreset): AgentPreset {
  const base = PRESETS.find(preset => preset.name === (like ?? name));
  if (like !== undefined && base === undefined)
    throw agentError('ACODE-AGT-006', {
      file,
      reason: `says that agents.${name} is like ${like}, which acode does not ship`,
    });
  const program = change.program ?? base?.program;
  const merged = {
    title: name,
    start: { terminal: ['{arguments}'], prompt: ['{arguments}', '{prompt}'] },
    ...base,
    ...change,
    name,
    ...(program === undefined ? {} : { program: { ...program, integrity: { ...program.integrity, ...integrity } } }),
  };
  const parsed = presetSchema.safeParse(merged);
  if (parsed.success) return parsed.data;
  throw agentError('ACODE-AGT-006', { file, reason: `has agents.${name}: ${reasonOf(parsed.error)}` });
}

function reasonOf({ issues: [issue] }: z.ZodError): string {
  if (!issue) return 'is not valid';
  const where = issue.path.join('.');
  return `${where === '' ? '' : `${where}: `}${issue.message}`;
}
