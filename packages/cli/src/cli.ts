// Command line entry: from the arguments to the exit status. Every failure is reported here.

import { AcodeError } from '@acode/sandbox';
import { CommanderError } from '@commander-js/extra-typings';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { commonOptionsOf } from './arguments/common.ts';
import type { CommonOptions } from './arguments/common.ts';
import { Call } from './call.ts';
import { NOBODY_READS } from './execution/execute.ts';
import { riskyLines } from './execution/risky-lines.ts';
import { renderFailure, reportOn } from './failure/report.ts';
import { UsageError } from './failure/usage.ts';
import { Interruption } from './interruption.ts';
import type { Io } from './io.ts';
import type { Served } from './lender.ts';
import { OwnProgram } from './own-program.ts';
import { HELP_WIDTH, ParseComplaint, buildProgram, calledAs, helpArguments } from './program.ts';
import type { Printed } from './program.ts';
import { SCAN_COMMAND, hasScans } from './scans/directory.ts';
import { userConfigFile } from './serve/identity.ts';
import { lookOf } from './terminal/look.ts';
import { Output } from './terminal/output.ts';
import { oneLine } from './terminal/text.ts';
import { ownVersion } from './version.ts';

// After a signal, output that the reader has not taken by then is dropped.
const LAST_WORDS_MS = 250;
const PARTIAL_RESULT_MS = 2000;
const FAILED = 125;
// What programs call, and a person never sees.
const SAYS_NOTHING = ['completion', SCAN_COMMAND];
const TAKES_COMMAND = ['agent', 'exec', 'run', 'explain', 'shell', 'build', 'test', 'wrap'];

/**
 * Runs the command.
 *
 * @param argv the arguments after the name of the program
 * @returns the exit status; all output is with its reader by then
 * @example
 * process.exitCode = await runCli(process.argv.slice(2), io);
 */
export async function runCli(argv: readonly string[], io: Io, served: Served = {}): Promise<number> {
  const stdout = new Output(io.stdout);
  const stderr = new Output(io.stderr);
  using interruption = new Interruption(io.signals, status => io.leave(status));
  const program = served.entry === undefined ? undefined : new OwnProgram(served.entry);
  const line = new CommandLine(argv, { io, stdout, stderr, interruption, program, ...served });
  const status = await (served.lost ? line.fail(new AcodeError('ACODE-SBX-024', {})) : line.run());
  await flushed([stdout, stderr], interruption);
  if (interruption.exitStatus !== null) return interruption.exitStatus;
  if (stdout.fault !== null) return unwritable(stdout.fault, stderr);
  await line.afterwards();
  return stdout.broken ? NOBODY_READS : status;
}

/** The message of an uncaught error: one sentence, never a stack trace. */
export function lastWords(error: unknown): string {
  return `acode: ${reportOn(error).message}\n`;
}

async function unwritable(fault: string, stderr: Output): Promise<number> {
  await stderr.write(`acode: Standard output cannot be written: ${oneLine(fault)}.\n`);
  await stderr.flush();
  return FAILED;
}

async function flushed(outputs: readonly Output[], { signal }: Interruption): Promise<void> {
  const giveUp = new AbortController();
  const late = (): void => void setTimeout(() => giveUp.abort(), LAST_WORDS_MS).unref();
  signal.addEventListener('abort', late, { once: true });
  if (signal.aborted) late();
  await Promise.all(outputs.map(output => output.flush(giveUp.signal)));
}

// What options mean that may stand without their value.
const VALUE_LEFT_OUT = new Map([
  ['--fork', '--fork=current'],
  ['--learn', '--learn=ask'],
]);

interface Surroundings extends Served {
  readonly io: Io;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly interruption: Interruption;
  readonly program: OwnProgram | undefined;
}

class CommandLine {
  readonly #before: readonly string[];
  readonly #argv: readonly string[] | null;
  readonly #around: Surroundings;
  readonly #printed: Printed;
  readonly #program: CommandUnknownOpts;
  #options: CommonOptions;
  #status = 0;
  #done: Call | null = null;

  constructor(argv: readonly string[], around: Surroundings) {
    // Taken off before parsing: the parser does not tell whether a word stood before or after it.
    const end = argv.indexOf('--');
    // Before `--` nothing but options and one quoted line stand, so that `--fork` never takes the command for its name.
    const before = end < 0 ? argv : argv.slice(0, end);
    this.#before = before.map(argument => VALUE_LEFT_OUT.get(argument) ?? argument);
    this.#argv = end < 0 ? null : argv.slice(end + 1);
    this.#around = around;
    this.#printed = { text: '', width: lookOf(around.stdout, around.io, false).width };
    this.#program = buildProgram((command, work) => this.#perform(command, work), this.#printed);
    // What can be known before parsing, for complaints of the parser itself.
    this.#options = {
      json: this.#before.includes('--json'),
      verbose: this.#before.includes('--verbose'),
      color: !this.#before.includes('--no-color'),
    };
  }

  async run(): Promise<number> {
    try {
      await this.#program.parseAsync([...helpArguments(this.#program, this.#before)], { from: 'user' });
      return this.#status;
    } catch (error) {
      if (error instanceof CommanderError && error.exitCode === 0) return this.#printAnswer(error.code);
      return this.fail(await explained(error));
    }
  }

  /** What a command leaves to be done when all output is with its reader. It has ended by now, and nothing here changes how. */
  async afterwards(): Promise<void> {
    await this.#done?.afterwards();
  }

  async #perform(command: CommandUnknownOpts, work: (call: Call) => Promise<number>): Promise<void> {
    this.#options = commonOptionsOf(command);
    const called = calledAs(command);
    if (this.#argv !== null && !TAKES_COMMAND.includes(command.name()))
      throw new UsageError(
        `\`${called}\` takes no command after \`--\`.`,
        `\`${called} --help\` shows how it is used.`,
      );
    // Nobody reads what the server in the background says either.
    const isSilent = SAYS_NOTHING.includes(command.name()) || this.#before.includes('--background');
    const call = this.#call(called, isSilent ? undefined : sayPendingScans);
    this.#status = await work(call);
    this.#done = call;
  }

  #call(called: string, sayPending?: (call: Call) => Promise<void>): Call {
    return new Call({
      ...this.#around,
      runCli,
      options: this.#options,
      before: this.#before,
      argv: this.#argv,
      called,
      sayPending,
    });
  }

  // Help and version, which the parser prints itself.
  async #printAnswer(code: string): Promise<number> {
    const text = await this.#withExamples(this.#printed.text);
    const call = this.#call('acode');
    if (code === 'commander.version') await call.print('acode.version/1', { version: ownVersion() }, () => text);
    else await call.print('acode.help/1', { text }, () => text);
    return 0;
  }

  // Loaded here: no other call needs them.
  async #withExamples(text: string): Promise<string> {
    const { helpOf, width } = this.#printed;
    if (helpOf === undefined) return text;
    const examples = (await import('./examples.ts')).exampleText(helpOf, width ?? HELP_WIDTH);
    return examples === '' ? text : `${text}${examples}\n`;
  }

  #configFile(): string {
    return this.#options.config ?? userConfigFile(this.#around.io.env);
  }

  async fail(error: unknown): Promise<number> {
    const report = reportOn(error);
    const call = this.#call('acode');
    const { interruption } = this.#around;
    const { context, code, message, hint, correlationId, settings } = report;
    if (this.#options.json) {
      const { signal } = interruption;
      const enough = signal.aborted ? AbortSignal.timeout(PARTIAL_RESULT_MS) : signal;
      await call.printJson('acode.error/1', { code, message, hint, context, correlationId, settings }, enough);
    } else if (interruption.name !== null) {
      await call.say(stoppedText(error, interruption.name, this.#around.stderr.isTerminal));
    } else if (error instanceof UsageError && error.help !== '') {
      await call.say(await this.#withExamples(error.help));
    } else {
      await call.say(renderFailure(report, call.errorLook, this.#options.verbose, this.#configFile()));
    }
    if (!this.#options.json) for (const line of leftBy(error)) await call.say(`acode: ${oneLine(line)}\n`);
    return report.exitStatus;
  }
}

function stoppedText(error: unknown, signal: string, isTerminal: boolean): string {
  if (!isTerminal || signal !== 'SIGINT') return `acode: stopped by ${signal}.\n`;
  // A sandbox ends at once, whatever its command makes of signals.
  const isKilled = error instanceof AcodeError && error.is('ACODE-SBX-014') && error.context.result !== undefined;
  // The terminal has shown `^C` where the cursor was.
  return `\nacode: stopped by Ctrl-C${isKilled ? ': the command was killed' : ''}.\n`;
}

async function explained(error: unknown): Promise<unknown> {
  if (!(error instanceof ParseComplaint)) return error;
  const { usageErrorFor } = await import('./failure/parse-failure.ts');
  return usageErrorFor(error.complaint, error.about);
}

// Findings after earlier commands come first. A failure to report them does not stop this command.
async function sayPendingScans(call: Call): Promise<void> {
  if (!hasScans()) return;
  try {
    const { sayPending } = await import('./scans/pending.ts');
    await sayPending(call);
  } catch {
    // What is wrong with the place of the call, the command itself says.
  }
}

// A command that was stopped may have left something all the same, and so may a sandbox that was refused.
function leftBy(error: unknown): readonly string[] {
  return error instanceof AcodeError ? riskyLines(error.riskyChanges) : [];
}
