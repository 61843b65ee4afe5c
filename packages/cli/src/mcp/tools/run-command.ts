// run_command: one command in a fresh sandbox that is gone afterwards.

import * as z from 'zod';
import { commandAnswer, commandSchema } from '../command-answer.ts';
import { tightened, tighteningArguments } from '../tighten.ts';
import { tool } from '../tool.ts';
import { command, surroundings } from './arguments.ts';
import { given } from './given.ts';

/** The tool. */
export const runCommand = tool({
  name: 'run_command',
  title: 'Run a command in a fresh sandbox',
  description:
    'Runs one command in a fresh, isolated, single-use sandbox and waits for its end. The user’s workspace is at /workspace; changes to files there are kept, everything else (processes, /tmp, installed programs) is gone afterwards. There is no network unless the user’s policy gives one. Use run_in_sandbox instead when later commands need what this one leaves behind, or to start a server.',
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
