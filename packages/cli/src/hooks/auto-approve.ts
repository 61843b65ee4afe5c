// `acode hook auto-approve`: answers an agent’s question before a command, for a few calls of acode itself that a shell can read in one
// way only. An approval skips the agent’s question to its user, and no check of acode; without one the agent asks as always.

import { lstatSync, realpathSync } from 'node:fs';
import { dirname, isAbsolute, relative, resolve, sep } from 'node:path';
import * as z from 'zod';
import type { Call } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { oneLine } from '../terminal/text.ts';
import { placeOf } from '../workspace.ts';

const MAX_INPUT = 1024 * 1024;
const MAX_LINE = 1000;

/** What is approved, word for word. `--json` may follow each. */
export const APPROVED: readonly string[] = [
  // Sandboxes: nothing of these takes an option that would give one more.
  'sandbox create',
  'sandbox kill <sandbox>',
  'sandbox list',
  'sandbox status',
  'sandbox cleanup',
  'doctor',
  // The image of a project in the workspace.
  'sandbox build-image',
  'sandbox build-image --workspace <directory>',
  // Swarms: what shows one, or lets less of it run. What begins, accepts, merges or removes is the user’s to say.
  'swarm status',
  'swarm status <swarm>',
  'swarm list',
  'swarm logs <task>',
  'swarm review',
  'swarm review <task>',
  'swarm pause',
  'swarm stop',
  'swarm stop <task>',
  'swarm repair',
];

// Nothing here means anything to a shell, wherever it stands: no quote, variable, pattern, tilde, separator or newline.
const PLAIN = /^[A-Za-z0-9_./-]+(?: [A-Za-z0-9_./-]+)*$/;
const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/;
const ID = /^[0-9a-f][0-9a-f-]{3,35}$/;
// What a shell or Node.js obeys before it does what stands in the line, or puts in the place of it.
const OBEYED =
  /^(?:LD_.*|DYLD_.*|NODE_OPTIONS|NODE_PATH|NODE_REPL_EXTERNAL_MODULE|BASH_ENV|ENV|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|BASH_FUNC_.*\/.*|CLAUDE_CODE_SHELL.*|CLAUDE_ENV_FILE)$/;

const askedSchema = z.looseObject({
  hook_event_name: z.literal('PreToolUse'),
  tool_name: z.literal('Bash'),
  cwd: z.string().refine(isAbsolute),
  permission_mode: z.string().optional(),
  // Another field, such as one that switches a sandbox of the agent’s off, is nothing that this knows.
  tool_input: z.strictObject({
    command: z.string(),
    description: z.string().optional(),
    timeout: z.number().optional(),
    run_in_background: z.boolean().optional(),
  }),
});

/** Who asks, and where acode is. */
export interface Approving {
  /** The file of this acode, with all links followed. */
  readonly entry: string;
  /** The path that this process was started by: a link that leads to the file counts as it, too. */
  readonly calledAs: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** A command that may run without a question, or why it may not. */
export type Approval =
  | { readonly words: readonly string[]; readonly cwd: string; readonly reason: null }
  | { readonly words: null; readonly reason: string };

const no = (reason: string): Approval => ({ words: null, reason });

/** Whether what an agent asks for is one of {@link APPROVED}. Everything that is not understood is not approved. */
export function approvalOf(asked: unknown, about: Approving): Approval {
  const parsed = askedSchema.safeParse(asked);
  if (!parsed.success) return no('it is not a call of Bash in a form that acode knows');
  const { cwd, permission_mode: mode, tool_input: given } = parsed.data;
  if (mode === 'plan') return no('the agent is only to plan');
  const obeyed = Object.keys(about.env).find(name => about.env[name] !== undefined && OBEYED.test(name));
  if (obeyed !== undefined) return no(`${obeyed} is set, which changes what a command does`);
  if (given.command.length > MAX_LINE || !PLAIN.test(given.command))
    return no('the line has more than plain words with one space between them');
  const [program = '', ...words] = given.command.split(' ');
  const { root } = placeOf(cwd);
  const fault = faultOf(program, about, root);
  if (fault !== null) return no(fault);
  const call = words.at(-1) === '--json' ? words.slice(0, -1) : words;
  return APPROVED.some(pattern => fits(pattern.split(' '), call, { cwd, root }))
    ? { words: [program, ...words], cwd, reason: null }
    : no('it is not one of the calls that are approved');
}

function faultOf(program: string, { entry, calledAs }: Approving, root: string): string | null {
  const real = realOf(entry);
  const isLink = program === calledAs && realOf(calledAs) === real;
  if (!isAbsolute(program) || (program !== real && !isLink)) return `it does not begin with ${entry}`;
  for (const path of [program, real]) {
    if (isWithin(root, path)) return 'acode is installed in the workspace, where the agent can replace it';
    if (othersCanReplace(path)) return `another user can replace ${path}`;
  }
  return null;
}

function realOf(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

function isWithin(root: string, path: string): boolean {
  const way = relative(root, path);
  return way === '' || (way !== '..' && !way.startsWith(`..${sep}`));
}

// Whoever may write one of the directories above a file may put another one in its place.
function othersCanReplace(path: string): boolean {
  const uid = process.getuid?.();
  for (let at = path; ; at = dirname(at)) {
    const found = lstatSync(at, { throwIfNoEntry: false });
    if (!found) return true;
    const isOpen = !found.isSymbolicLink() && (found.mode & 0o002) !== 0 && (found.mode & 0o1000) === 0;
    if (isOpen || (found.uid !== 0 && found.uid !== uid)) return true;
    if (dirname(at) === at) return false;
  }
}

const PLACES: Readonly<Record<string, RegExp>> = { '<sandbox>': NAME, '<task>': NAME, '<swarm>': ID };

function fits(pattern: readonly string[], words: readonly string[], where: Where): boolean {
  return (
    pattern.length === words.length &&
    pattern.every((part, at) => {
      const word = words[at] ?? '';
      return part === '<directory>' ? isDirectoryWithin(word, where) : (PLACES[part]?.test(word) ?? part === word);
    })
  );
}

interface Where {
  readonly cwd: string;
  readonly root: string;
}

// A directory of the workspace, by a path without a way up and without links.
function isDirectoryWithin(path: string, { cwd, root }: Where): boolean {
  if (path.startsWith('-') || path.split('/').includes('..')) return false;
  const full = resolve(realOf(cwd), path);
  return (
    isWithin(root, full) && realOf(full) === full && lstatSync(full, { throwIfNoEntry: false })?.isDirectory() === true
  );
}

/** Reads what an agent asks for on standard input, and answers with an approval, or with nothing. */
export async function autoApprove(call: Call): Promise<number> {
  const entry = call.program?.entry;
  if (call.io.stdin.isTTY === true || entry === undefined)
    throw new UsageError(
      'An agent calls this before each command, with a JSON object on standard input.',
      'docs/hooks.md shows what to add to the settings of Claude Code.',
    );
  const about = { entry, calledAs: process.argv[1] ?? entry, env: call.io.env };
  const approval = approvalOf(await inputOf(call), about);
  if (approval.words === null) {
    await call.say(`acode: not approved: ${oneLine(approval.reason)}. The agent asks its user.\n`);
    return 0;
  }
  const { Acode } = await import('@acode/sandbox');
  const { words, cwd } = approval;
  // Without the record there is no approval.
  await Acode.recordApproval({ command: words, workspace: placeOf(cwd).root });
  const answer = {
    hookSpecificOutput: {
      hookEventName: 'PreToolUse',
      permissionDecision: 'allow',
      permissionDecisionReason: `acode approves ${words.slice(1).join(' ')}, and recorded it`,
    },
  };
  await call.stdout.write(`${JSON.stringify(answer)}\n`, call.interruption.signal);
  return 0;
}

async function inputOf({ io: { stdin } }: Call): Promise<unknown> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stdin) {
    if (!Buffer.isBuffer(chunk)) continue;
    bytes += chunk.length;
    if (bytes > MAX_INPUT) return null;
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    return null;
  }
}
