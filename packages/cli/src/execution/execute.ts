// Runs one command and lets its output, its input and its end pass through as if it ran here.

import { AcodeError } from '@acode/sandbox';
import type { Acode, Command, EffectivePolicy, RunRequest, RunResult } from '@acode/sandbox';
import { commandOf } from '../arguments/command-words.ts';
import { requestOf } from '../arguments/request.ts';
import type { RequestOptions } from '../arguments/request.ts';
import type { Call } from '../call.ts';
import { pump } from '../terminal/pump.ts';
import { oneLine } from '../terminal/text.ts';
import { closingLines } from './closing-lines.ts';
import { StandardInput } from './standard-input.ts';

const TIMED_OUT = 124;
const FAILED = 125;
/** What a shell reports for a program that was ended by SIGPIPE. */
export const NOBODY_READS = 141;
const LOOK_UP_MS = 2000;

/** The command that the words of a call mean. */
export function commandIn(call: Call, words: readonly string[], flags: readonly string[]): Command {
  return commandOf({ before: words, after: call.words, called: call.called, options: flags });
}

/** Runs the command of a call to its end and gives the exit status. */
export async function execute(
  call: Call,
  words: readonly string[],
  options: RequestOptions,
  flags: readonly string[],
): Promise<number> {
  const command = commandIn(call, words, flags);
  const request = requestOf(options, (await call.place()).inside);
  return call.withHost(async acode => {
    const result = await run(call, acode, command, request);
    if (result === null) return NOBODY_READS;
    if (call.options.json) await call.printJson('acode.run/1', result);
    await sayClosingLines(call, acode, { command, request, result });
    return result.timedOut ? TIMED_OUT : (result.exitCode ?? FAILED);
  });
}

/** The result, or null where the reader of the output went away and so the run was given up. */
async function run(call: Call, acode: Acode, command: Command, request: RunRequest): Promise<RunResult | null> {
  const unread = new AbortController();
  const signal = AbortSignal.any([call.interruption.signal, unread.signal]);
  using stdin = new StandardInput(call.io.stdin);
  try {
    const running = await call.progress.during(
      'Preparing the sandbox…',
      acode.spawn(command, { ...request, stdin: stdin.source, signal }),
    );
    if (call.options.json) return await running.result;
    const passOn = async (source: AsyncIterable<Uint8Array>, output: Call['stdout']): Promise<void> => {
      await pump(source, output, signal);
      if (output.broken) unread.abort();
    };
    const streams = Promise.all([passOn(running.stdout, call.stdout), passOn(running.stderr, call.stderr)]);
    const [, outcome] = await Promise.all([streams, running.result.then(withValue, withError)]);
    await Promise.all([call.stdout.flush(signal), call.stderr.flush(signal)]);
    if (call.stdout.broken || call.stderr.broken) return null;
    return outcome();
  } catch (error) {
    if (unread.signal.aborted && error instanceof AcodeError && error.is('ACODE-SBX-014')) return null;
    throw error;
  }
}

function withValue(result: RunResult): () => RunResult {
  return () => result;
}

function withError(error: unknown): () => never {
  return () => {
    throw error;
  };
}

interface Ended {
  readonly command: Command;
  readonly request: RunRequest;
  readonly result: RunResult;
}

async function sayClosingLines(call: Call, acode: Acode, { command, request, result }: Ended): Promise<void> {
  const hitLimit = result.limitExceeded !== undefined || result.timedOut || result.oomKilled;
  const policy = hitLimit ? await policyOf(acode, command, request) : null;
  const { yellow } = call.errorLook.colours;
  for (const line of closingLines(result, policy, command)) await call.say(`${yellow('acode:')} ${oneLine(line)}\n`);
}

// The result does not say what the limits were; an engine that has become slow may not keep the caller waiting for it.
async function policyOf(acode: Acode, command: Command, request: RunRequest): Promise<EffectivePolicy | null> {
  try {
    const { policy } = await acode.explain(command, { ...request, signal: AbortSignal.timeout(LOOK_UP_MS) });
    return policy;
  } catch {
    return null;
  }
}
