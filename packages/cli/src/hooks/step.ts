// Process of a hook, which runs once for each command of an agent: the agent’s words as a call of `acode run`, or the answer that
// makes the agent run it. It is a part of the entry, so that neither the parser nor the library is loaded for it.

import { relative, sep } from 'node:path';
import { quoted } from '../arguments/command-arguments.ts';
import type { Io } from '../io.ts';
import { placeOf } from '../workspace.ts';

/** What the process of a hook does. */
export type HookStep =
  | { readonly kind: 'run'; readonly argv: readonly string[] }
  | { readonly kind: 'end'; readonly status: number; readonly stdout: string; readonly stderr: string };

/** The last line of an answer. The shell around it passes on nothing that ends otherwise. */
export const COMPLETE = 'acode-hook-complete';

const REFUSED = 125;
// For agents, the one status that blocks a command; every other failure of a hook lets it run.
const BLOCKED = 2;
const MAX_INPUT = 16 * 1024 ** 2;
// Agents write for bash. An image without one has its own shell.
const SHELL = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$1"; fi; exec sh -c "$1"';
// Claude reads the aliases of the user’s shell first, from a file that no sandbox has. A shell other than bash would end there.
const SNAPSHOT = /^source \S+\/shell-snapshots\/\S+ 2>\/dev\/null \|\| true && /;
// How agents call a shell: `-c <command>`, some as a login shell.
const SHELL_OPTION = /^-l?c$/;

/**
 * The step that the arguments of a process ask for; null for any other call.
 *
 * - `hook run <agent> <workspace> <words…>` runs a command. An empty workspace is the project around the current directory.
 * - `hook rewrite <agent> <program>` reads what the agent says of a tool call, and answers with a command that calls the program.
 */
export async function hookStep(argv: readonly string[], io: Io): Promise<HookStep | null> {
  const [group, step, agent = '', about = '', ...words] = argv;
  if (group !== 'hook') return null;
  if (step === 'run') return runStep(agent, about, words, io.cwd());
  if (step !== 'rewrite') return null;
  try {
    return answer(agent, about, JSON.parse(await inputOf(io)));
  } catch (error) {
    return blocked(`the hook could not read what ${agent} asked for (${error instanceof Error ? error.message : ''})`);
  }
}

function runStep(agent: string, workspace: string, words: readonly string[], cwd: string): HookStep {
  const command = commandOf(words);
  if (command === null)
    return refused(`${agent} called its shell in a way that acode does not know (${words.length} arguments)`, agent);
  const { root } = placeOf(cwd, workspace === '' ? undefined : workspace);
  const way = relative(root, placeOf(cwd).here);
  if (way === '..' || way.startsWith(`..${sep}`))
    return refused(`the current directory ${cwd} is outside of the workspace ${root}`, agent);
  const argv = ['run', '--workspace', root, '--workspace-path', 'same', '--', '/bin/sh', '-c', SHELL, 'sh', command];
  return { kind: 'run', argv };
}

function commandOf(words: readonly string[]): string | null {
  const [first, second] = words;
  if (words.length === 1 && first !== undefined) return first.replace(SNAPSHOT, '');
  return words.length === 2 && SHELL_OPTION.test(first ?? '') ? (second ?? null) : null;
}

function refused(reason: string, agent: string): HookStep {
  const hint = `The command did not run. Work in the workspace; if ${agent} was updated, check it: acode doctor --agent ${agent}`;
  return { kind: 'end', status: REFUSED, stdout: '', stderr: `acode: refused: ${reason}.\n╰▶ hint: ${hint}\n` };
}

function blocked(reason: string): HookStep {
  return { kind: 'end', status: BLOCKED, stdout: '', stderr: `acode: blocked: ${reason}. The command did not run.\n` };
}

// The answers of Codex and Gemini differ in names. Codex takes another command only together with `allow`; Gemini takes it
// without, so that its own question to the user stays.
const ANSWERS: Readonly<Record<string, (input: object) => object>> = {
  codex: updatedInput => ({ hookEventName: 'PreToolUse', permissionDecision: 'allow', updatedInput }),
  gemini: input => ({ hookEventName: 'BeforeTool', tool_input: input }),
};

function answer(agent: string, program: string, asked: unknown): HookStep {
  const { cwd, tool_input: given } = fieldsOf(asked);
  const { command } = fieldsOf(given);
  const shaped = ANSWERS[agent];
  if (shaped === undefined || typeof command !== 'string' || typeof cwd !== 'string' || !cwd.startsWith('/'))
    return blocked(`the hook does not know this kind of call; check it: acode doctor --agent ${agent}`);
  const { root } = placeOf(cwd);
  const rewritten = [program, root, command].map(quoted).join(' ');
  const hookSpecificOutput = shaped({ ...fieldsOf(given), command: rewritten });
  const stdout = `${JSON.stringify({ hookSpecificOutput })}\n${COMPLETE}\n`;
  return { kind: 'end', status: 0, stdout, stderr: '' };
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}

async function inputOf({ stdin }: Io): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stdin) {
    if (!(chunk instanceof Buffer)) continue;
    bytes += chunk.length;
    if (bytes > MAX_INPUT) throw new Error('it is too long');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}
