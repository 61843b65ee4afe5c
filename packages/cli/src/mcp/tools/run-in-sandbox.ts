// run_command and run_in_sandbox: a command in a fresh sandbox, or in a persistent one to its end or in the background.

import type { Command } from '@acode/sandbox';
import * as z from 'zod';
import { commandAnswer } from '../command-answer.ts';
import type { InsideRequest, InsideSandbox } from '../host.ts';
import { plainPolicy, tightened, tighteningArguments } from '../tighten.ts';
import { CHANGES, tool } from '../tool.ts';
import type { Answer, ToolCall } from '../tool.ts';
import { command, given, inside, sandboxId, surroundings, workingDirectory } from './arguments.ts';

/** The tool. */
export const runInSandbox = tool({
  name: 'run_in_sandbox',
  title: 'Run a command in a persistent sandbox',
  description:
    'Runs a command in a persistent sandbox, where later calls find its files in /tmp and home, and its processes. background: true returns a command_id at once, for read_output, write_input and stop_command: use it for servers and long commands.',
  annotations: CHANGES,
  lane: 'commands',
  input: z.strictObject({
    command,
    background: z.boolean().optional(),
    ...surroundings,
    timeout_seconds: z.number().positive().optional(),
    sandbox_id: sandboxId,
  }),
  perform: async ({ command: asked, sandbox_id: id, timeout_seconds: seconds, background, cwd, ...rest }, call) => {
    const { timeoutMs, notes } = timeLimit(seconds, seconds === undefined ? null : await limitOf(call));
    const request = given({ ...rest, cwd: workingDirectory('run_in_sandbox', call.session, cwd), timeoutMs });
    return inside(call.session, id, sandbox =>
      background === true
        ? begin(sandbox, asked, request, { ...call, notes })
        : toItsEnd(sandbox, asked, request, { ...call, notes }),
    );
  },
});

// No sandbox lives longer, so that more is no limit at all.
const MAX_SECONDS = 86_400;

// The built-in limit is for single commands; one in a persistent sandbox may take as long as the sandbox lives.
async function limitOf({ session, signal }: ToolCall): Promise<number | null> {
  const plan = await session.host.explain(['true'], { policy: plainPolicy({}), signal }).catch(() => null);
  const limit = plan?.policy.timeoutMs;
  return limit === undefined || limit.layer === 'built-in' ? null : limit.value / 1000;
}

/** A time limit as the library takes it; one beyond what the policy or any sandbox has is left out, with a note. */
export function timeLimit(
  seconds: number | undefined,
  most: number | null,
): { readonly timeoutMs: number | undefined; readonly notes: readonly string[] } {
  if (seconds === undefined) return { timeoutMs: undefined, notes: [] };
  if (most !== null && seconds > most)
    return {
      timeoutMs: undefined,
      notes: [`timeout_seconds was lowered from ${seconds} to ${most}, the limit of the user’s policy.`],
    };
  if (seconds <= MAX_SECONDS) return { timeoutMs: Math.max(1, Math.round(seconds * 1000)), notes: [] };
  const note = `timeout_seconds was ignored: ${seconds} is more than the ${MAX_SECONDS} seconds a sandbox can live; the command ends with its sandbox.`;
  return { timeoutMs: undefined, notes: [note] };
}

type NotedCall = ToolCall & { readonly notes: readonly string[] };

async function toItsEnd(
  sandbox: InsideSandbox,
  asked: Command,
  request: InsideRequest,
  { session, signal, progress, notes }: NotedCall,
): Promise<Answer> {
  const heard = { onStdout: progress.hear, onStderr: progress.hear };
  const result = await sandbox.commands.run(asked, { ...request, ...heard, signal });
  const anotherImage = 'open_sandbox with the argument image opens a sandbox of another.';
  return commandAnswer(session, { command: asked, cwd: request.cwd, result, notes, anotherImage });
}

// It belongs to the session and not to the call that began it, so only the end of the session cancels it.
async function begin(
  sandbox: InsideSandbox,
  asked: Command,
  { stdin, ...request }: InsideRequest,
  { session, notes }: NotedCall,
): Promise<Answer> {
  session.makeRoomForCommand();
  const handle = await sandbox.commands.run(asked, { ...request, background: true, signal: session.closing });
  const { id } = session.follow(sandbox.id, handle);
  // Not waited for: a command that does not read would hold the turn that others wait for.
  if (typeof stdin === 'string' && stdin !== '') handle.write(stdin).catch(() => undefined);
  return {
    text: [`Runs in the background as ${id}. read_output shows what it prints.`, ...notes].join('\n'),
    structured: { command_id: id, running: true, notes },
  };
}

/** The tool. */
export const runCommand = tool({
  name: 'run_command',
  title: 'Run a command in a fresh sandbox',
  description:
    'Runs one command (tests, builds, scripts, any shell line) in a fresh sandbox and waits for its end. The user’s workspace is /workspace, and only changes there are kept. No network unless the user’s policy gives one. Use run_in_sandbox for servers, background commands, or state that later commands need.',
  annotations: CHANGES,
  lane: 'commands',
  isAlwaysLoaded: true,
  input: z.strictObject({ command, ...surroundings, ...tighteningArguments }),
  perform: async ({ command: asked, cwd: directory, env, stdin, ...wishes }, { session, signal, progress }) => {
    const cwd = workingDirectory('run_command', session, directory);
    const { policy, notes } = await tightened(session.host, wishes, signal);
    const result = await session.host.run(asked, {
      policy,
      ...given({ cwd, env, stdin, risk: wishes.risk }),
      signal,
      onStdout: progress.hear,
      onStderr: progress.hear,
    });
    return commandAnswer(session, {
      command: asked,
      cwd,
      result,
      notes,
      anotherImage: 'The argument image chooses another, if the user trusts it.',
    });
  },
});
