// From what a run came to, to what is written: the state, and an outcome that fits into it.

import type { ErrorJson, RunResult } from '@acode/sandbox';
import type { Outcome } from '../tasks/outcome.ts';
import type { FinalState } from '../tasks/state.ts';

const MAX_LIST = 100;
const MAX_TEXT = 4000;

/** Codes that are about this machine, and not about the task: another worker may do better. */
const HOST_TROUBLE = /^ACODE-(?:CTN-|SBX-(?:001|002|005|006|018|019|024|025|027)$|AUD-)/;

/** Whether another worker may do better. */
export function isHostTrouble({ code }: Pick<ErrorJson, 'code'>): boolean {
  return HOST_TROUBLE.test(code);
}

/** The state that a result means. */
export function stateOf({ timedOut, exitCode }: Pick<RunResult, 'timedOut' | 'exitCode'>): FinalState {
  if (timedOut) return 'timed_out';
  return exitCode === 0 ? 'succeeded' : 'failed';
}

/** The result with each list and each text cut to what a state may have. */
export function fitted(result: RunResult, outputBytes: number): RunResult {
  const [stdout, stderr] = [cut(result.stdout, outputBytes), cut(result.stderr, outputBytes)];
  return {
    ...result,
    stdout: stdout.text,
    stderr: stderr.text,
    dropped: { stdout: result.dropped.stdout + stdout.dropped, stderr: result.dropped.stderr + stderr.dropped },
    denials: result.denials.slice(0, MAX_LIST),
    riskyChanges: result.riskyChanges.slice(0, MAX_LIST),
    ...(result.network ? { network: result.network.slice(0, MAX_LIST) } : {}),
    ...(result.masked ? { masked: result.masked.slice(0, MAX_LIST) } : {}),
  };
}

/** The error with what a person needs of it. Its causes are the operator’s: they name this machine’s paths. */
export function fittedError({ code, message, hint, exitStatus }: ErrorJson): NonNullable<Outcome['error']> {
  return { code, message: cut(message, MAX_TEXT).text, hint: cut(hint, MAX_TEXT).text, exitStatus };
}

function cut(text: string, bytes: number): { readonly text: string; readonly dropped: number } {
  const whole = Buffer.from(text);
  if (whole.length <= bytes) return { text, dropped: 0 };
  // Not within a character.
  let end = bytes;
  while (end > 0 && ((whole[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return { text: whole.subarray(0, end).toString(), dropped: whole.length - end };
}
