// Shell texts of hooks: the program that an agent starts in place of a shell, and the hook that blocks a command whenever acode does
// not answer. Both name every program by its absolute path, and give acode an environment of its own.

import { quoted } from '../arguments/command-arguments.ts';
import { hashedVariables } from '../serve/identity.ts';
import type { Hooked } from './agents.ts';
import { COMPLETE } from './step.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** What a hook starts, and in which environment. */
export interface ShimParts {
  readonly agent: Hooked;
  /** The file of Node.js. */
  readonly node: string;
  /** The file of acode. */
  readonly entry: string;
  /** All variables that acode is given. */
  readonly env: Readonly<Record<string, string>>;
}

/** How long acode has to answer before its hook blocks the command, in seconds. */
const ANSWER_SECONDS = 15;
/** How long the agent waits for the hook, in seconds. Far more, because an agent runs a command whose hook is late. */
export const AGENT_SECONDS = 600;

const ENV = '/usr/bin/env';
const TIMEOUT = '/usr/bin/timeout';

/** The programs of the system that the texts name. */
export const SYSTEM_PROGRAMS = ['/bin/sh', ENV, TIMEOUT] as const;

// Says the same to acode as in a shell, where no background process starts.
const BESIDES = ['CI'];

/**
 * The environment that acode gets from a hook: what acode reads, taken once from the user’s own. Nothing that the agent, its
 * settings or a repository add later reaches it.
 */
export function environmentOfShim(env: Environment): Record<string, string> {
  const kept = BESIDES.flatMap(name => (env[name] === undefined ? [] : [[name, env[name]] as const]));
  const path = (env['PATH'] ?? '').split(':').filter(directory => directory.startsWith('/'));
  return {
    ...hashedVariables(env),
    ...Object.fromEntries(kept),
    PATH: path.join(':') || '/usr/local/bin:/usr/bin:/bin',
  };
}

/**
 * The program that an agent calls with a command, in place of a shell.
 *
 * @param workspace the directory for all commands; without one, the caller names it as the first argument, or (for an agent
 *   that calls it as its shell) it is the project around the current directory
 */
export function runShim(parts: ShimParts, workspace?: string): string {
  const isNamed = workspace === undefined && isRewritten(parts.agent);
  const about = isNamed ? [] : [quotedAlways(workspace ?? '')];
  return shim(parts, 'run', about);
}

/** The program that answers a hook with another command. `program` is what that command calls. */
export function rewriteShim(parts: ShimParts, program: string): string {
  return shim(parts, 'rewrite', [quotedAlways(program)]);
}

/** Whether an agent’s commands are rewritten by a hook, and not only sent through another shell. */
export function isRewritten(agent: Hooked): boolean {
  return agent === 'codex' || agent === 'gemini';
}

function shim({ agent, node, entry, env }: ShimParts, step: string, about: readonly string[]): string {
  const variables = Object.entries(env).map(([name, value]) => quotedAlways(`${name}=${value}`));
  const words = [ENV, '-i', ...variables, quotedAlways(node), '--', quotedAlways(entry), 'hook', step, agent, ...about];
  return [
    '#!/bin/sh',
    `# Written by acode for ${agent}. \`acode hook status\` compares it; \`acode hook install ${agent}\` writes it anew.`,
    `exec ${words.join(' ')} "$@"`,
    '',
  ].join('\n');
}

/** The variables that a program of acode’s gives acode, of those that it may give. */
export function variablesIn(text: string): Record<string, string> {
  const words = [...text.matchAll(/ '((?:[^']|'\\'')*)'/g)].map(([, word = '']) =>
    word.replaceAll(String.raw`'\''`, "'"),
  );
  const all = words.flatMap(word => {
    const [, name, value] = /^([A-Z][A-Z0-9_]*)=([^]*)$/.exec(word) ?? [];
    return name === undefined || value === undefined ? [] : [[name, value] as const];
  });
  return environmentOfShim(Object.fromEntries(all));
}

function quotedAlways(word: string): string {
  return `'${word.replaceAll("'", String.raw`'\''`)}'`;
}

/**
 * The command of a hook, for a shell: passes on one whole answer of a program. Without one (the program is missing, crashes,
 * hangs, or prints anything else) it blocks, which is status 2 and a reason on standard error. Only the shell itself and its
 * builtins decide that.
 */
export function gate(program: string): string {
  const blocked =
    'acode: blocked: the hook of acode did not answer, so the command did not run. Check it: acode hook status';
  return (
    `acode_answer=$(${TIMEOUT} -k 1 ${ANSWER_SECONDS} ${quoted(program)}) || acode_answer=; ` +
    `case $acode_answer in '{"hookSpecificOutput":{'*'}}\n${COMPLETE}') ` +
    `printf '%s\\n' "\${acode_answer%?${COMPLETE}}"; exit 0;; esac; ` +
    `echo '${blocked}' >&2; exit 2`
  );
}
