// Tasks: what a task file says, as JSON or as Markdown with front matter, and what a swarm makes of it.

import { formatBytes, parseBytes } from '@acode/sandbox';
import { parseDocument } from 'yaml';
import * as z from 'zod';
import { swarmError } from './errors.ts';
import { branchProblem, taskNameProblem, variableProblem } from './names.ts';
import type { Story } from './protocol.ts';

/** Largest task file. */
export const MAX_TASK_BYTES = 512 * 1024;
const MAX_STORIES = 99;

const acceptance = z.array(z.string().min(1).max(4000)).max(50);

const storySchema = z.strictObject({
  id: z
    .string()
    .regex(/^US-\d{3}$/, 'a story id is US- and three digits')
    .optional(),
  title: z.string().min(1).max(200),
  description: z.string().max(100_000).optional(),
  acceptance: acceptance.optional(),
});

const size = z.union([z.string(), z.number()]);

const policySchema = z.strictObject({
  memory: size.optional(),
  cpus: z.number().positive().optional(),
  pids: z.int().min(8).optional(),
  timeout: z.union([z.string(), z.number()]).optional(),
  network: z
    .union([z.literal('none'), z.strictObject({ allow: z.array(z.string().min(1).max(253)).max(200) })])
    .optional(),
});

/** A task file. Unknown keys are refused. */
const taskFileSchema = z.strictObject({
  $schema: z.string().optional(),
  title: z.string().min(1).max(200),
  description: z.string().max(100_000).optional(),
  branch: z.string().optional(),
  stories: z.array(storySchema).min(1).max(MAX_STORIES),
  acceptance: acceptance.optional(),
  depends_on: z.array(z.string()).max(50).optional(),
  touches: z.array(z.string().min(1).max(1024)).max(200).optional(),
  agent: z.string().max(64).optional(),
  command: z.union([z.string().min(1).max(32_000), z.array(z.string().max(32_000)).min(1).max(256)]).optional(),
  attempts: z.int().min(1).max(5).optional(),
  env: z.record(z.string(), z.string()).optional(),
  policy: policySchema.optional(),
});

/** What a task may ask for, each at most what the user allows; absent for what the user says. */
export interface TaskPolicy {
  readonly memoryBytes?: number;
  readonly cpus?: number;
  readonly pids?: number;
  readonly timeoutMs?: number;
  /** Hosts and presets of an allow-list; empty for no network. */
  readonly allow?: readonly string[];
}

/** A task of a swarm. */
export interface Task {
  /** Its name: that of its file, without the ending. */
  readonly id: string;
  /** Relative to the workspace. */
  readonly file: string;
  readonly title: string;
  readonly description: string;
  /** The branch that it names; null for one that the swarm names. */
  readonly branch: string | null;
  readonly stories: readonly Story[];
  readonly dependsOn: readonly string[];
  readonly touches: readonly string[];
  /** The preset of an agent; null for the swarm’s own. */
  readonly agent: string | null;
  /** Its command in place of an agent; null for none. */
  readonly command: readonly string[] | null;
  readonly attempts: number | null;
  readonly env: Readonly<Record<string, string>>;
  readonly policy: TaskPolicy;
}

/** The task that a file holds. `file` is relative to the workspace, and its ending says what it is. */
export function parseTask(file: string, content: string): Task {
  const name = file.split('/').at(-1) ?? '';
  const isMarkdown = name.endsWith('.md');
  const id = name.replace(/\.(?:json|md)$/, '');
  const problem = taskNameProblem(id);
  if (problem !== null) throw swarmError('ACODE-SWM-002', { name: id, reason: problem });
  const value = isMarkdown ? markdownValue(file, content) : jsonValue(file, content);
  const found = taskFileSchema.safeParse(value);
  if (!found.success) {
    const [issue] = found.error.issues;
    const at = issue?.path
      .map(part => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`))
      .join('')
      .replace(/^\./, '');
    throw invalid(file, reasonOf(issue), at);
  }
  return checked(file, id, found.data);
}

function reasonOf(issue: z.core.$ZodIssue | undefined): string {
  if (issue?.code === 'unrecognized_keys') return `it has a key that tasks do not have: ${issue.keys.join(', ')}`;
  return (issue?.message ?? 'it is not a task').replace(/\.$/, '');
}

function invalid(file: string, reason: string, at?: string): Error {
  return swarmError('ACODE-SWM-003', { file, reason, ...(at ? { at } : {}) });
}

function checked(file: string, id: string, data: z.infer<typeof taskFileSchema>): Task {
  const { title, description = '', branch = null, depends_on: dependsOn = [], touches = [], agent = null } = data;
  const { attempts = null, env = {} } = data;
  checkNames(id, branch, env);
  if (touches.some(path => path.startsWith('/') || path.split('/').includes('..')))
    throw invalid(file, 'a path is relative to the workspace, without ..', 'touches');
  return {
    id,
    file,
    title,
    description,
    branch,
    stories: numbered(file, data),
    dependsOn,
    touches,
    agent,
    command: commandLine(data.command),
    attempts,
    env,
    policy: policyOf(file, data.policy),
  };
}

function checkNames(task: string, branch: string | null, env: Readonly<Record<string, string>>): void {
  const reason = branch === null ? null : branchProblem(branch);
  if (branch !== null && reason !== null)
    throw swarmError('ACODE-SWM-004', { what: 'branch', value: branch, reason, task });
  for (const [name, value] of Object.entries(env)) {
    const problem = variableProblem(name, value);
    if (problem !== null) throw swarmError('ACODE-SWM-004', { what: 'variable', value: name, reason: problem, task });
  }
}

// As an argument vector: a line is for the shell of the image.
function commandLine(command: string | readonly string[] | undefined): readonly string[] | null {
  if (command === undefined) return null;
  return typeof command === 'string' ? ['sh', '-c', command] : command;
}

// A task’s own acceptance commands stand at the end: they hold for the whole of it.
function numbered(file: string, { stories, acceptance: whole = [] }: z.infer<typeof taskFileSchema>): Story[] {
  const made = stories.map((story, index) => ({
    id: story.id ?? `US-${String(index + 1).padStart(3, '0')}`,
    title: story.title,
    description: story.description ?? '',
    acceptance: [...(story.acceptance ?? []), ...(index === stories.length - 1 ? whole : [])],
  }));
  const twice = made.find(({ id }, index) => made.findIndex(other => other.id === id) !== index);
  if (twice) throw invalid(file, `two stories are ${twice.id}`, 'stories');
  return made;
}

function policyOf(file: string, policy: z.infer<typeof policySchema> = {}): TaskPolicy {
  const { memory, cpus, pids, timeout, network } = policy;
  return {
    ...(memory === undefined ? {} : { memoryBytes: bytesOf(file, memory) }),
    ...(cpus === undefined ? {} : { cpus }),
    ...(pids === undefined ? {} : { pids }),
    ...(timeout === undefined ? {} : { timeoutMs: durationOf(file, timeout) }),
    ...(network === undefined ? {} : { allow: network === 'none' ? [] : network.allow }),
  };
}

function bytesOf(file: string, value: string | number): number {
  const bytes = typeof value === 'number' ? value : parseBytes(value);
  if (bytes !== null) return bytes;
  throw invalid(
    file,
    `${JSON.stringify(value)} is not a size such as 2g or ${formatBytes(512 * 1024 ** 2)}`,
    'policy.memory',
  );
}

const UNITS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000 };

/** A duration in milliseconds: `90s`, `20m`, `2h`; null where it is none. */
export function parseDuration(text: string): number | null {
  const [, amount, unit = ''] = /^(\d{1,6}(?:\.\d{1,3})?)([smh])$/.exec(text) ?? [];
  const ms = Math.round(Number(amount) * (UNITS[unit] ?? Number.NaN));
  return Number.isFinite(ms) && ms > 0 ? ms : null;
}

function durationOf(file: string, value: string | number): number {
  const ms = typeof value === 'number' ? Math.round(value * 1000) : parseDuration(value);
  if (ms === null || !(ms > 0))
    throw invalid(file, `${JSON.stringify(value)} is not a duration such as 20m`, 'policy.timeout');
  return ms;
}

function jsonValue(file: string, content: string): unknown {
  try {
    return JSON.parse(content);
  } catch (error) {
    throw invalid(file, `it is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
}

// Front matter has the keys of a task. Where it names no stories, each heading of the second level is one; text before the first
// describes the whole task, and a fenced block that is marked `acceptance` holds a command on each line.
function markdownValue(file: string, content: string): unknown {
  const [, front, body] = /^---\r?\n([\s\S]*?)\r?\n---\r?\n?([\s\S]*)$/.exec(content) ?? [];
  const head = front === undefined ? {} : yamlValue(file, front);
  return { ...bodyOf((body ?? content).replaceAll('\r\n', '\n'), head), ...head };
}

function bodyOf(text: string, head: object): object {
  const [before = '', ...sections] = text.split(/^## +/m);
  const heading = /^# +(.+)$/m.exec(before)?.[1]?.trim();
  const title = heading === undefined ? {} : { title: heading };
  const { plain, commands } = withoutCommands(before.replace(/^# +.+$/m, ''));
  if (sections.length > 0)
    return { ...title, ...(plain === '' ? {} : { description: plain }), stories: sections.map(storyOf) };
  return { ...title, stories: [{ title: heading ?? titleIn(head), description: plain, acceptance: commands }] };
}

function storyOf(section: string): object {
  const [first = '', ...rest] = section.split('\n');
  const [, id, name] = /^(US-\d{3})[:.\s-]+(.+)$/.exec(first.trim()) ?? [];
  const { plain, commands } = withoutCommands(rest.join('\n'));
  return { ...(id === undefined ? {} : { id }), title: name ?? first.trim(), description: plain, acceptance: commands };
}

function titleIn(head: object): unknown {
  return 'title' in head ? head.title : undefined;
}

function withoutCommands(text: string): { plain: string; commands: string[] } {
  const commands: string[] = [];
  const plain = text.replaceAll(/^```[a-z]* *acceptance *\n([\s\S]*?)^```[ \t]*$/gm, (_, block: string) => {
    commands.push(
      ...block
        .split('\n')
        .map(line => line.trim())
        .filter(line => line !== '' && !line.startsWith('#')),
    );
    return '';
  });
  return { plain: plain.trim(), commands };
}

function yamlValue(file: string, text: string): object {
  const document = parseDocument(text, { uniqueKeys: true });
  const [error] = document.errors;
  if (error) throw invalid(file, `its front matter is not YAML: ${error.code}`);
  const value: unknown = document.toJS({ maxAliasCount: 0 });
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalid(file, 'its front matter is not a list of keys and values');
  return value;
}
