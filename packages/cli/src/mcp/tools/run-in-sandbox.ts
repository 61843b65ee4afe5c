// run_command and run_in_sandbox: a command in a fresh sandbox, or in a persistent one to its end or in the background.

import type { Command } from '@acode/sandbox';
import * as z from 'zod';
import { commandAnswer, commandSchema } from '../command-answer.ts';
import type { InsideRequest, InsideSandbox } from '../host.ts';
import { tool } from '../tool.ts';
import type { Answer, ToolCall } from '../tool.ts';
import { command, given, inside, sandboxId, surroundings } from './arguments.ts';
import { tightened, tighteningArguments } from '../tighten.ts';

// Of a command that runs on there is nothing to tell yet but its id.
const outputSchema = commandSchema.partial().extend({
  sandboxId: z.string(),
  background: z.boolean(),
  command_id: z.string().optional().describe('Of a background command: for read_output, write_input and stop_command.'),
});

/** The tool. */
export const runInSandbox = tool({
  name: 'run_in_sandbox',
  title: 'Run a command in an open sandbox',
  description:
    'Runs a command in a persistent sandbox, so that later calls find what it left behind: files, installed packages, running servers. Without sandbox_id it uses the default sandbox of this session. With background: true it returns at once with a command_id; read_output, write_input and stop_command work on that.',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: false },
  lane: 'commands',
  input: z.strictObject({
    command,
    sandbox_id: sandboxId,
    ...surroundings,
    timeout_seconds: z
      .number()
      .positive()
      .optional()
      .describe('Stop the command after this many seconds. Can only shorten the limit of the user’s policy.'),
    background: z.boolean().optional().describe('true: return at once and let it run on.'),
  }),
  output: outputSchema,
  perform: ({ command: asked, sandbox_id: id, timeout_seconds: seconds, background, ...rest }, call) => {
    const { timeoutMs, notes } = timeLimit(seconds);
    const request = given({ ...rest, timeoutMs });
    return inside(call.session, id, sandbox =>
      background === true
        ? begin(sandbox, asked, request, { ...call, notes })
        : toItsEnd(sandbox, asked, request, { ...call, notes }),
    );
  },
});

// No sandbox lives longer, so that more is no limit at all.
const MAX_SECONDS = 86_400;

/** A time limit as the library takes it; one beyond what any sandbox has is left out, with a note. */
export function timeLimit(seconds: number | undefined): {
  readonly timeoutMs: number | undefined;
  readonly notes: readonly string[];
} {
  if (seconds === undefined) return { timeoutMs: undefined, notes: [] };
  if (seconds <= MAX_SECONDS) return { timeoutMs: Math.max(1, Math.round(seconds * 1000)), notes: [] };
  const note = `timeout_seconds was ignored: ${seconds} is more than the ${MAX_SECONDS} seconds a sandbox can live; the limit of the user’s policy applies.`;
  return { timeoutMs: undefined, notes: [note] };
}

type NotedCall = ToolCall & { readonly notes: readonly string[] };

async function toItsEnd(
  sandbox: InsideSandbox,
  asked: Command,
  request: InsideRequest,
  { session, signal, progress, notes }: NotedCall,
): Promise<Answer<z.input<typeof outputSchema>>> {
  const heard = { onStdout: progress.hear, onStderr: progress.hear };
  const result = await sandbox.commands.run(asked, { ...request, ...heard, signal });
  const { structured, ...answer } = commandAnswer(result, session.outputs, notes);
  return { ...answer, structured: { ...structured, sandboxId: sandbox.id, background: false } };
}

// It belongs to the session and not to the call that began it, so only the end of the session cancels it.
async function begin(
  sandbox: InsideSandbox,
  asked: Command,
  { stdin, ...request }: InsideRequest,
  { session, notes }: NotedCall,
): Promise<Answer<z.input<typeof outputSchema>>> {
  session.makeRoomForCommand();
  const handle = await sandbox.commands.run(asked, { ...request, background: true, signal: session.closing });
  const { id } = session.follow(sandbox.id, handle);
  // Not waited for: a command that does not read would hold the turn that others wait for.
  if (typeof stdin === 'string' && stdin !== '') handle.write(stdin).catch(() => undefined);
  return {
    text: [
      `Runs in the background as ${id} in sandbox ${sandbox.id}. read_output shows what it prints.`,
      ...notes,
    ].join('\n'),
    structured: { sandboxId: sandbox.id, background: true, command_id: id },
  };
}

/** The tool. */
export const runCommand = tool({
  name: 'run_command',
  title: 'Run a command in a fresh sandbox',
  description:
    'Runs one command in a fresh, isolated, single-use sandbox and waits for its end. The user’s workspace is at /workspace; changes to files there are kept, everything else (processes, /tmp, installed programs) is removed afterwards. There is no network unless the user’s policy gives one. Use run_in_sandbox instead when later commands need what this one leaves behind, or to start a server.',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: false },
  lane: 'commands',
  input: z.strictObject({ command, ...surroundings, ...tighteningArguments }),
  output: commandSchema,
  perform: async ({ command: asked, cwd, env, stdin, ...wishes }, { session, signal, progress }) => {
    const { policy, notes } = await tightened(session.host, wishes, signal);
    const result = await session.host.run(asked, {
      policy,
      ...given({ cwd, env, stdin, risk: wishes.risk }),
      signal,
      onStdout: progress.hear,
      onStderr: progress.hear,
    });
    return commandAnswer(result, session.outputs, notes);
  },
});
