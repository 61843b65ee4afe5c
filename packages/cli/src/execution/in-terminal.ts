// Execution of one command with a terminal (-t), in a fresh sandbox or a persistent one.

import { AcodeError } from '@acode/sandbox';
import type { Acode, Sandbox } from '@acode/sandbox';
import { Option } from '@commander-js/extra-typings';
import { environmentOf } from '../arguments/environment-options.ts';
import { createRequestOf } from '../arguments/request.ts';
import type { RequestOptions } from '../arguments/request.ts';
import type { Call } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { closingNotices } from './closing-lines.ts';
import { commandIn, dependenciesOf, sayNotices, statusOf } from './execute.ts';
import type { FreshOptions } from './execute.ts';
import { preparing } from './preparing.ts';
import { filterOptions } from './terminal-options.ts';
import { variablesOfTerminal } from './terminal-variables.ts';

// The status for SIGHUP: like closing a terminal, Enter ~ . ends the command.
const LEFT = 129;
// Longer than any command’s time limit. The sandbox is removed when its command or this process ends.
const LIFE_MS = 24 * 3600 * 1000;

/** The option that gives a command a terminal. */
export function terminalOption() {
  return new Option(
    '-t, --terminal',
    'give the command a terminal, for editors and prompts; stdout and stderr become one stream',
  );
}

/** The help text for `-t`. */
export const TERMINAL_HELP = `
With -t the command gets a terminal of its own: every key you type goes to it, Ctrl-C too. Standard output and standard error become one stream. If the command hangs, type Enter ~ . to end it (status 129).`;

/** Runs the command of a call in a terminal, and returns the exit status. */
export async function executeInTerminal(
  call: Call,
  argv: readonly string[],
  options: FreshOptions & { readonly in?: string | undefined; readonly mouse?: true | undefined },
  flags: readonly string[],
): Promise<number> {
  refuseWithoutTerminal(call);
  if (options.artifact) (await import('./artifacts.ts')).refuseArtifacts(options.artifact, options.in);
  const command = commandIn(call, argv, flags);
  const place = await call.place();
  const env = await environmentOf(options, { env: call.io.env, here: place.here });
  const { signal } = call.interruption;
  return call.withHost(async acode => {
    const sandbox = await sandboxFor(call, acode, options);
    const { size } = call.stdout;
    const filter = await filterOptions(call, options.mouse);
    // Loaded before any command runs: where acode is installed in the workspace, the command may put something else in its place.
    const { atTerminal } = await import('./at-terminal.ts');
    const handle = await sandbox.commands.terminal(command, {
      cwd: options.workdir ?? place.inside,
      env: { ...variablesOfTerminal(call), ...env },
      signal,
      limited: true,
      ...(options.timeout === undefined ? {} : { timeoutMs: options.timeout }),
      ...(size ? { size } : {}),
    });
    const result = await atTerminal(call, handle, filter);
    if (result === null) {
      await call.say('\nacode: you ended the command with Enter ~ .\n');
      return LEFT;
    }
    const existing = options.in === undefined ? null : { timeoutMs: options.timeout };
    const dependencies = await dependenciesOf(call, result, { ...result, command });
    await sayNotices(call, closingNotices(result, command, { existing, dependencies }));
    return statusOf(result);
  });
}

function refuseWithoutTerminal(call: Call): void {
  if (call.options.json)
    throw new UsageError('With -t there is no result to print as JSON.', 'Leave -t out, or leave --json out.');
  if (call.io.stdin.isTTY && call.stdout.isTerminal) return;
  const what = call.io.stdin.isTTY ? 'standard output' : 'standard input';
  throw new UsageError(
    `-t needs a terminal for input and output, but ${what} is not one.`,
    `Leave -t out: \`${call.called}\` passes input and output on as they are.`,
  );
}

async function sandboxFor(
  call: Call,
  acode: Acode,
  options: RequestOptions & { readonly in?: string | undefined },
): Promise<Sandbox> {
  const { signal } = call.interruption;
  if (options.in !== undefined)
    return call.progress.during('Asking the engine…', acode.connect(options.in, { signal }));
  const request = createRequestOf(options, await call.place());
  try {
    return await preparing(call, acode, acode.create({ ...request, expiresInMs: LIFE_MS, signal }));
  } catch (error) {
    if (!(error instanceof AcodeError && error.is('ACODE-SBX-016'))) throw error;
    // The library’s message is about persistent sandboxes; the user asked for a terminal.
    if (error.context.persistent !== true) throw error;
    throw new UsageError(
      'A terminal (-t) needs an engine: level docker or stronger, and an image with /bin/sh.',
      'Leave -t out, or ask for --level docker.',
    );
  }
}
