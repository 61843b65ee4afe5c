// Execution of one command: passes its output, input and exit status through as if it ran here.

import { PassThrough } from 'node:stream';
import type { Readable } from 'node:stream';
import { AcodeError } from '@acode/sandbox';
import type { Command, PublishedPort, RiskyChange, RunResult, RunningCommand } from '@acode/sandbox';
import { commandOf, quoted } from '../arguments/command-arguments.ts';
import { requestOf } from '../arguments/request.ts';
import type { RequestOptions } from '../arguments/request.ts';
import type { Call } from '../call.ts';
import { realPath } from '../own-program.ts';
import { pump } from '../terminal/pump.ts';
import { renderNotice } from '../terminal/notice.ts';
import type { Notice } from '../terminal/notice.ts';
import { closingNotices, denialLine, lacksModule, mayLackDependencies, riskyNotices } from './closing-lines.ts';
import type { Existing } from './in-existing.ts';
import type { NotFound } from './missing-dependencies.ts';
import { preparing } from './preparing.ts';
import { terminalVariables } from './terminal-variables.ts';
import type { InputStream } from '../io.ts';

// No isolation that is strong enough, no engine, no slot, no memory: nothing has started, and in mode `burst` it starts elsewhere.
const NO_ROOM = ['ACODE-SBX-008', 'ACODE-CTN-008', 'ACODE-CTN-009', 'ACODE-CTN-013'] as const;
const TIMED_OUT = 124;
const FAILED = 125;
/** The status a shell reports for a program that SIGPIPE ended. */
export const NOBODY_READS = 141;

/** Parses the command from the arguments of a call. */
export function commandIn(call: Call, argv: readonly string[], flags: readonly string[]): Command {
  return commandOf({ before: argv, after: call.argv, called: calledWithOptions(call, argv), options: flags });
}

// The `…` stands for options before the command. A hint without it would suggest running the command without them;
// their values are omitted because they may be secrets.
function calledWithOptions(call: Call, argv: readonly string[]): string {
  return hasOptions(call, argv.length) ? `${call.called} …` : call.called;
}

function hasOptions({ called, before }: Call, words: number): boolean {
  return before.length > called.split(' ').length - 1 + words;
}

// Programs that, without arguments, wait for what a person types. `true` and `make` say nothing, too, and are done.
const ASKING =
  /^(?:\S*\/)?(?:(?:ba|da|z|k|fi|a)?sh|cat|bc|ed|(?:i?python|pypy|node|deno|lua|php|perl|R|julia|scala|ghci|irb|iex|erl)[\d.]*|psql|mysql|mariadb|sqlite3|redis-cli|mongosh)$/;

/** How a program that asks gets a terminal; nothing where it cannot, or where its standard input is passed on. */
function withTerminal(call: Call, { command, flags = [] }: Attended): string | undefined {
  if (call.io.stdin.isTTY !== true || call.options.json || !flags.includes('--terminal')) return undefined;
  if (!ASKING.test(typeof command === 'string' ? command.trim() : command.join(' '))) return undefined;
  const [words, typed] =
    typeof command === 'string' ? [1, quoted(command)] : [0, `-- ${command.map(quoted).join(' ')}`];
  return `${call.called} -t ${hasOptions(call, words) ? '… ' : ''}${typed}`;
}

/** The options of a command with a sandbox of its own. */
export interface FreshOptions extends RequestOptions {
  readonly artifact?: readonly string[] | undefined;
}

/** Runs the command of a call until it ends, and returns the exit status. */
export async function execute(
  call: Call,
  argv: readonly string[],
  options: FreshOptions,
  flags: readonly string[],
): Promise<number> {
  return executeArgv(call, commandIn(call, argv, flags), options, flags);
}

/** Runs a command in a fresh sandbox until it ends, and returns the exit status. */
export async function executeArgv(
  call: Call,
  command: Command,
  options: FreshOptions,
  flags: readonly string[],
): Promise<number> {
  const place = await call.place();
  const { artifact } = options;
  const request = await requestOf(options, place, call.io.env);
  if (artifact) request.artifacts = await (await import('./artifacts.ts')).artifactsFor(artifact, place);
  const writable = request.policy?.mounts?.filter(({ readOnly }) => readOnly === false) ?? [];
  call.written.push(...writable.map(({ source }) => realPath(source)));
  let given: StartedWith | null = null;
  try {
    return await call.withHost(acode =>
      attend(call, { command, flags, image: options.image }, started => {
        given = started;
        return preparing(
          call,
          acode,
          acode.spawn(command, { ...request, envDefaults: terminalVariables(call), ...started }),
        );
      }),
    );
  } catch (error) {
    const code = NO_ROOM.find(one => error instanceof AcodeError && error.is(one));
    if (code === undefined) throw error;
    const { onFleet } = await import('./burst.ts');
    const status = await onFleet(call, code, { command, options, hasInput: hasInput(given) });
    if (status === null) throw error;
    return status;
  }
}

function hasInput(given: StartedWith | null): boolean {
  const stdin = given?.stdin ?? '';
  return stdin !== '' && (stdin.readableDidRead || stdin.readableLength > 0);
}

/** Inputs of a command: its standard input, and the signal that cancels it. */
export interface StartedWith {
  readonly stdin: Readable | '';
  readonly signal: AbortSignal;
}

/** A command, and the existing sandbox it runs in, if any. */
export interface Attended {
  readonly command: Command;
  readonly existing?: Existing;
  /** The options that acode itself accepts for this call. */
  readonly flags?: readonly string[];
  /** The image that the user named, if any. */
  readonly image?: string | undefined;
  /** How the same command gets a terminal, if it was started at one without it. */
  readonly withTerminal?: string | undefined;
}

/** Starts a command, passes its streams through, and returns the exit status. */
export async function attend(call: Call, about: Attended, start: Start): Promise<number> {
  const ended = await passedThrough(call, start);
  if ('unread' in ended) {
    // A user who pipes into `head` no longer reads the output, but usually still sees acode’s messages on standard
    // error.
    await sayNotices(call, riskyNotices(ended.unread));
    return NOBODY_READS;
  }
  const { result } = ended;
  if (call.options.json) await call.printJson('acode.run/1', withMessages(result));
  await sayClosing(call, result, { ...about, withTerminal: withTerminal(call, about) });
  return result.artifacts ? afterArtifacts(call, result) : statusOf(result);
}

/** Prints what there is to say after a command. */
export async function sayClosing(
  call: Call,
  result: RunResult,
  { command, existing, flags, image, withTerminal: again }: Attended,
): Promise<void> {
  const dependencies = await dependenciesOf(call, result, { ...result, command, chosenImage: image });
  const permission = await permissionOf(call, result);
  const names = await namesOf(result);
  await sayNotices(
    call,
    closingNotices(result, command, {
      existing,
      dependencies,
      permission,
      names,
      options: flags,
      called: call.called,
      withTerminal: again,
    }),
  );
}

// A command that succeeded and left out what it was to bring has not done what was asked.
async function afterArtifacts(call: Call, result: RunResult): Promise<number> {
  const { artifactNotices, lacksArtifact } = await import('./artifacts.ts');
  await sayNotices(call, artifactNotices(result));
  const status = statusOf(result);
  return status === 0 && lacksArtifact(result) ? FAILED : status;
}

/** What a command that failed lacks. Loaded only then. */
export async function dependenciesOf(call: Call, result: RunResult, ended: NotFound): Promise<string | null> {
  // `acode build` and `acode test` look for them after every failure.
  if (!mayLackDependencies(result) || (lacksModule(result) && /^acode (?:build|test)\b/.test(call.called))) return null;
  const { missingDependencies } = await import('./missing-dependencies.ts');
  return missingDependencies(await call.place(), lacksModule(result) ? { ...ended, isModule: true } : ended);
}

// Denials are structured data; the JSON output also includes the message that a terminal would show.
function withMessages(result: RunResult): object {
  return { ...result, denials: result.denials.map(denial => ({ ...denial, message: denialLine(denial) })) };
}

// Loaded only where a command failed for want of permission, which few do.
async function permissionOf(call: Call, { exitCode, stderr, denials }: RunResult): Promise<string | null> {
  if (exitCode === 0 || denials.length > 0 || !/permission denied/i.test(stderr)) return null;
  const { missingPermission } = await import('./missing-permission.ts');
  return missingPermission(await call.place(), stderr);
}

// Loaded only where a command with a network failed.
async function namesOf(result: RunResult): Promise<string | null> {
  if (result.exitCode === 0 || (result.usage?.txBytes ?? result.network) === undefined) return null;
  const { NAMES_REMEDY, lacksNames, unreachedHosts } = await import('./unresolved-names.ts');
  return lacksNames(result) ? NAMES_REMEDY : unreachedHosts(result);
}

/** The exit status of acode for a result. */
export function statusOf({ timedOut, exitCode }: RunResult): number {
  return timedOut ? TIMED_OUT : (exitCode ?? FAILED);
}

type Start = (given: StartedWith) => Promise<RunningCommand>;

/** The result. If the reader closed the output, acode cancelled the run, and only its risky changes are reported. */
type Attending = { readonly result: RunResult } | { readonly unread: readonly RiskyChange[] };

/** Starts a command, and passes its streams through until it has ended. */
export async function passedThrough(call: Call, start: Start): Promise<Attending> {
  const unread = new AbortController();
  const signal = AbortSignal.any([call.interruption.signal, unread.signal]);
  using stdin = new StandardInput(call.io.stdin);
  try {
    const running = await start({ stdin: stdin.source, signal });
    await sayPorts(call, running.ports);
    if (call.options.json) return { result: await running.result };
    const passOn = async (source: AsyncIterable<Uint8Array>, output: Call['stdout']): Promise<void> => {
      await pump(source, output, signal);
      if (output.broken) unread.abort();
    };
    const streams = Promise.all([passOn(running.stdout, call.stdout), passOn(running.stderr, call.stderr)]);
    const [, outcome] = await Promise.all([streams, running.result.then(withValue, withError)]);
    await Promise.all([call.stdout.flush(signal), call.stderr.flush(signal)]);
    const result = outcome();
    return call.stdout.broken || call.stderr.broken ? { unread: result.riskyChanges } : { result };
  } catch (error) {
    if (unread.signal.aborted && error instanceof AcodeError && error.is('ACODE-SBX-014'))
      return { unread: error.context.result?.riskyChanges ?? [] };
    throw error;
  }
}

async function sayPorts(call: Call, ports: readonly PublishedPort[]): Promise<void> {
  for (const { container, host, protocol } of ports)
    await call.say(`${call.errorLook.colours.cyan('acode:')} port ${container}/${protocol} is at 127.0.0.1:${host}.\n`);
}

function withValue(result: RunResult): () => RunResult {
  return () => result;
}

function withError(error: unknown): () => never {
  return () => {
    throw error;
  };
}

/** Prints what there is to say after a run to standard error. */
export async function sayNotices(call: Call, notices: readonly Notice[]): Promise<void> {
  const look = call.errorLook;
  for (const notice of notices) await call.say(renderNotice(notice, look, look.colours.yellow));
}

/**
 * Standard input for one run. Disposing it detaches from the pipe, so that an open pipe does not prevent the process
 * from exiting.
 */
class StandardInput implements Disposable {
  /** The stream to pass to the run; empty if standard input is a terminal. */
  readonly source: Readable | '';
  readonly #stdin: InputStream;

  constructor(stdin: InputStream) {
    this.#stdin = stdin;
    this.source = stdin.isTTY ? '' : passedOn(stdin);
  }

  [Symbol.dispose](): void {
    if (this.source === '') return;
    this.#stdin.unpipe();
    this.source.destroy();
    this.#stdin.destroy();
  }
}

// As in a shell, a standard input that cannot be read, such as a directory, appears empty to the command.
function passedOn(stdin: InputStream): Readable {
  const source = new PassThrough();
  stdin.on('error', () => source.end());
  source.on('error', () => undefined);
  return stdin.pipe(source);
}
