// Settings of swarms, in the user’s own file and nowhere else: a repository has no say in what runs on this machine.

import { lstatSync, readFileSync, realpathSync } from 'node:fs';
import { isAbsolute, join, relative, sep } from 'node:path';
import { homeOf } from '@acode/sandbox';
import { parseDocument } from 'yaml';
import * as z from 'zod';
import { swarmError } from './errors.ts';

type Environment = Readonly<Record<string, string | undefined>>;

const MAX_BYTES = 64 * 1024;
const OTHERS_WRITE = 0o022;
const IDLE_MINUTES = 10;
const TIMEOUT_SECONDS = 10;

/** The states of a task, and of a swarm, that a person can be told of. */
export const TOLD = [
  'needs-input',
  'blocked-by-policy',
  'idle',
  'needs-review',
  'running',
  'completed',
  'failed',
  'stopped',
  'finished',
] as const;
/** A state that a person can be told of. */
export type Told = (typeof TOLD)[number];

const fileSchema = z.strictObject({
  notify: z
    .strictObject({
      command: z.array(z.string().min(1).max(4096)).min(1).max(64).optional(),
      url: z.url({ protocol: /^https?$/ }).optional(),
      on: z.array(z.enum(TOLD)).min(1).optional(),
      timeout_seconds: z.int().min(1).max(60).default(TIMEOUT_SECONDS),
    })
    .refine(({ command, url }) => command !== undefined || url !== undefined, 'has neither command nor url')
    .optional(),
  idle_minutes: z.number().min(0.01).max(1440).default(IDLE_MINUTES),
});

/** Whom to tell of a change of state. */
export interface NotifySettings {
  /** A program by its absolute path, with arguments. It gets the event on standard input. */
  readonly command?: readonly string[];
  /** An address that gets the event by POST. */
  readonly url?: string;
  readonly on: readonly Told[];
  readonly timeoutMs: number;
}

/** Settings of swarms. */
export interface SwarmSettings {
  readonly notify: NotifySettings | null;
  /** How long nothing may be heard of a task before it counts as idle. */
  readonly idleMs: number;
}

/** Settings where the user has none. */
export const DEFAULT_SETTINGS: SwarmSettings = { notify: null, idleMs: IDLE_MINUTES * 60_000 };

/** The states that are told of where the user’s file names none: those in which a person is needed, and ends. */
const USUAL: readonly Told[] = ['needs-input', 'blocked-by-policy', 'idle', 'needs-review', 'failed', 'finished'];

/** The user’s file. */
export function settingsFile(env: Environment): string {
  const config = env['XDG_CONFIG_HOME'];
  return join(config?.startsWith('/') ? config : join(homeOf({ ...env }), '.config'), 'acode', 'swarm.yml');
}

/** The settings of the user. Throws where the file is not valid, is not the user’s alone, or names a program of the workspace. */
export function readSettings(env: Environment, workspace: string): SwarmSettings {
  const file = settingsFile(env);
  const text = ownText(file);
  if (text === null) return DEFAULT_SETTINGS;
  const { notify, idle_minutes: minutes } = parsed(file, text);
  const idleMs = Math.round(minutes * 60_000);
  if (!notify) return { notify: null, idleMs };
  const { command, url, on = USUAL, timeout_seconds: seconds } = notify;
  const fault = (command && programFault(command[0] ?? '', workspace)) ?? urlFault(url);
  if (fault !== null) throw swarmError('ACODE-SWM-011', { file, reason: fault });
  const told = { ...(command ? { command } : {}), ...(url === undefined ? {} : { url }) };
  return { notify: { ...told, on, timeoutMs: seconds * 1000 }, idleMs };
}

function parsed(file: string, text: string): z.infer<typeof fileSchema> {
  const document = parseDocument(text, { uniqueKeys: true });
  if (document.errors.length > 0) throw swarmError('ACODE-SWM-011', { file, reason: 'is not YAML' });
  const found = fileSchema.safeParse(document.toJS({ maxAliasCount: 100 }) ?? {});
  if (found.success) return found.data;
  const [issue] = found.error.issues;
  const where = issue?.path.map(String).join('.') || 'key';
  throw swarmError('ACODE-SWM-011', { file, reason: `has an invalid ${where}: ${issue?.message ?? ''}` });
}

// What others can write is not the user’s.
function ownText(file: string): string | null {
  const found = lstatSync(file, { throwIfNoEntry: false });
  if (!found) return null;
  const refuse = (reason: string): Error => swarmError('ACODE-SWM-011', { file, reason });
  if (!found.isFile()) throw refuse('is not a file');
  if (found.uid !== process.getuid?.() || (found.mode & OTHERS_WRITE) !== 0)
    throw refuse('can be written by others than you');
  if (found.size > MAX_BYTES) throw refuse('is larger than 64 KiB');
  return readFileSync(file, 'utf8');
}

// A program of the workspace may be what a task wrote.
function programFault(program: string, workspace: string): string | null {
  if (!isAbsolute(program)) return 'has a notify.command that does not begin with an absolute path';
  let real: string;
  try {
    real = realpathSync(program);
  } catch {
    return `has a notify.command that does not exist: ${program}`;
  }
  for (const path of [program, real]) {
    const way = relative(workspace, path);
    if (way !== '..' && !way.startsWith(`..${sep}`)) return 'has a notify.command of the workspace';
  }
  return null;
}

function urlFault(url: string | undefined): string | null {
  const { protocol, hostname } = new URL(url ?? 'https://none');
  const isSafe = protocol === 'https:' || ['127.0.0.1', '[::1]', 'localhost'].includes(hostname);
  return isSafe ? null : 'has a notify.url that is neither https nor on this machine';
}
