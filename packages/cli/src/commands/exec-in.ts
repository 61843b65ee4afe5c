// `acode sandbox exec` with a persistent sandbox: named by --in, or before `--`, with options on either side of the name.

import { AcodeError } from '@acode/sandbox';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { isOwnName, isReference, quoted, sandboxBefore } from '../arguments/command-arguments.ts';
import { commonOptionsOf } from '../arguments/common.ts';
import { refuseCreationOptions } from '../arguments/persistent-options.ts';
import { requestOf } from '../arguments/request.ts';
import type { RequestOptions } from '../arguments/request.ts';
import type { Call } from '../call.ts';
import { attend, commandIn, execute } from '../execution/execute.ts';
import type { FreshOptions } from '../execution/execute.ts';
import { refuseArtifacts } from '../execution/artifacts.ts';
import { executeInTerminal } from '../execution/in-terminal.ts';
import { refuseMouse } from '../execution/terminal-options.ts';
import { terminalVariables } from '../execution/terminal-variables.ts';
import { UsageError } from '../failure/usage.ts';

interface NamedOptions extends FreshOptions {
  readonly in?: string | undefined;
  readonly terminal?: true | undefined;
  readonly mouse?: true | undefined;
}

/** What was typed. */
export interface Typed {
  /** The arguments before `--` from the first one that is not an option. */
  readonly argv: readonly string[];
  readonly command: CommandUnknownOpts;
  /** The long options of the command. */
  readonly flags: readonly string[];
  /** Their values: those after the name of the sandbox count once they are read. */
  readonly options: () => NamedOptions;
}

/** Runs a command in the sandbox that is named, or in a fresh one, and returns the exit status. */
export async function executeNamed(call: Call, { argv, command, flags, options: read }: Typed): Promise<number> {
  const words = withoutOptions(call, argv, command);
  const options = read();
  refuseMouse(options);
  const { sandbox, rest } = sandboxOf(call, words, options.in);
  if (sandbox !== undefined) {
    refuseCreationOptions(command, sandbox);
    refuseArtifacts(options.artifact, sandbox);
  }
  try {
    if (options.terminal) return await executeInTerminal(call, rest, { ...options, in: sandbox }, flags);
    if (sandbox === undefined) return await execute(call, rest, options, flags);
    return await executeIn(call, sandbox, rest, options, flags, options.in === undefined);
  } catch (error) {
    throw sandbox === undefined && error instanceof UsageError ? orSandbox(error, argv, call) : error;
  }
}

// `web-server --timeout 5 -- …`: the parser stops at the first word, because what follows a line would belong to it.
function withoutOptions(call: Call, argv: readonly string[], command: CommandUnknownOpts): readonly string[] {
  const [first = '', ...more] = argv;
  if (call.argv === null || !isReference(first) || more[0]?.startsWith('-') !== true) return argv;
  const before = JSON.stringify(commonOptionsOf(command));
  const { operands, unknown } = command.parseOptions([...more]);
  if (operands.length > 0 || unknown.length > 0) return argv;
  if (JSON.stringify(commonOptionsOf(command)) === before) return [first];
  // These have had their effect by now.
  throw new UsageError(
    'Common options such as --json and --workspace stand before the name of the sandbox.',
    `Write \`${call.called} ${more.map(quoted).join(' ')} ${first} -- ${call.argv.map(quoted).join(' ')}\`.`,
  );
}

/** No single word of a program’s arguments would usually have these. */
const LINE = /[\s|&;<>$]/;

function isLineFor([first = '', line = '', ...more]: readonly string[]): boolean {
  return more.length === 0 && line !== '' && (isOwnName(first) || (isReference(first) && LINE.test(line)));
}

interface Named {
  readonly sandbox: string | undefined;
  /** The arguments before `--` that are not the sandbox. */
  readonly rest: readonly string[];
}

// As with the other subcommands, the sandbox may stand first. Without `--` an argument is a line for the shell, and two are a sandbox
// and a line where the second can be nothing else.
function sandboxOf({ argv: after, called }: Call, argv: readonly string[], named: string | undefined): Named {
  const [first, ...more] = argv;
  if (after === null && named === undefined && isLineFor(argv)) return { sandbox: first, rest: more };
  if (after === null || first === undefined || more.length > 0) return { sandbox: named, rest: argv };
  if (named !== undefined)
    throw new UsageError(
      `${quoted(first)} and --in ${quoted(named)} both name a sandbox.`,
      `Leave one out: \`${called} ${quoted(named)} -- ${after.map(quoted).join(' ')}\`.`,
    );
  return { sandbox: sandboxBefore(first, after, called), rest: [] };
}

// The first word of what could not be understood may have been a sandbox.
function orSandbox(error: UsageError, argv: readonly string[], { called, argv: after }: Call): UsageError {
  const [first = '', ...more] = argv;
  if (!isReference(first) || (after === null && more.length !== 1)) return error;
  const words = [...placed(first, more, after === null), ...(after ?? []).map(quoted)].join(' ');
  const hint = `In the sandbox ${first}: \`${called} ${words}\`.`;
  return new UsageError(error.message, isOwnName(first) ? hint : `${hint} ${error.hint}`);
}

function placed(sandbox: string, more: readonly string[], isLine: boolean): string[] {
  const words = more.map(quoted);
  if (isLine) return ['--in', sandbox, ...words];
  return more[0]?.startsWith('-') ? [...words, '--in', sandbox, '--'] : ['--in', sandbox, '--', ...words];
}

// A signal ends the command and not the sandbox, which is let go of when the host is closed.
async function executeIn(
  call: Call,
  sandboxId: string,
  argv: readonly string[],
  options: RequestOptions,
  flags: readonly string[],
  isFirst: boolean,
): Promise<number> {
  const command = commandIn(call, argv, flags);
  const { cwd, env: own } = await requestOf(options, await call.place(), call.io.env);
  const env = { ...terminalVariables(call), ...own };
  const { timeout: timeoutMs } = options;
  const request = { ...(cwd ? { cwd } : {}), env, ...(timeoutMs ? { timeoutMs } : {}) };
  return call.withHost(acode =>
    attend(call, { command, existing: { timeoutMs }, flags }, async given => {
      const connected = acode.connect(sandboxId, { signal: given.signal }).catch((error: unknown) => {
        throw isFirst ? orCommand(error, [sandboxId, ...(call.argv ?? argv)], call) : error;
      });
      const sandbox = await call.progress.during('Asking the engine…', connected);
      return sandbox.commands.spawn(command, { ...request, ...given });
    }),
  );
}

// What was meant may have been the program of a command.
function orCommand(error: unknown, words: readonly string[], { called }: Call): unknown {
  if (!(error instanceof AcodeError && error.is('ACODE-CTN-012'))) return error;
  const remedy = `\`acode sandbox list\` shows the sandboxes that exist. For a program in a fresh one: \`${called} -- ${words.map(quoted).join(' ')}\`.`;
  return new AcodeError('ACODE-CTN-012', { ...error.context, remedy }, { cause: error });
}
