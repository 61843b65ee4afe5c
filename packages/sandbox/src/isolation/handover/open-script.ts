// The shell text in which a process waits inside a sandbox that stays: it says who it is, and then waits for one line.

import { WAITING_SCRIPT } from './script.ts';

const SAYS_PID = String.raw`printf '\036%s\n' "$$"`;

/** The process that waits for a command. */
export const READY_COMMAND: readonly string[] = ['/bin/sh', '-c', `${SAYS_PID}; ${WAITING_SCRIPT}`];

// Between saying who it is and the command it waits for a line: by then its terminal has its size. What a terminal repeats
// of that line comes before the mark.
const TERMINAL_SCRIPT = `cd "$1" || exit 125; shift; ${SAYS_PID}; IFS= read -r _ || exit 129; printf '\\036go\\n'; exec "$@"`;
// oxlint-disable-next-line no-control-regex -- the mark is a control character, so that no program prints it by chance
const BEGUN = /\u001ego\r?\n/;

/** The process of a command with a terminal: the words of the command are arguments, and no part of the text. */
export function terminalCommand(cwd: string, argv: readonly string[]): readonly string[] {
  return ['/bin/sh', '-c', TERMINAL_SCRIPT, 'sh', cwd, ...argv];
}

/** What the first process of a sandbox does that outlives its maker: nothing, and no longer at the end of its input. */
export const STAYING_LINE = 'trap : HUP INT QUIT USR1 USR2; exec </dev/null; while sleep 3600; do :; done\n';

/**
 * Sends a signal to a process group, by the shell itself: where no further process is allowed, that still works. Then it says
 * the word it was given: programs beside it can write to where it writes.
 */
export function signalLine(pid: number, signal: string, word: string): string {
  const name = signal.replace(/^SIG/, '');
  return `kill -s ${name} -- -${pid} 2>/dev/null; ${answerLine(word)}`;
}

/** Says the word it was given and nothing else: who hears it knows that the sandbox goes on. */
export function answerLine(word: string): string {
  return String.raw`printf '%s\n' ${word}; exit` + '\n';
}

/** Stops everything but the shell that says so, by one call of the kernel: nothing that forks meanwhile is left out. */
export function quietLine(word: string): string {
  return `kill -s STOP -- -1 2>/dev/null; ${answerLine(word)}`;
}

/** Takes the mark after which everything is the command’s; null until it is whole. */
export function readBegun(data: Buffer): Buffer | null {
  const match = BEGUN.exec(data.toString('latin1'));
  return match ? data.subarray(match.index + match[0].length) : null;
}

// oxlint-disable-next-line no-control-regex -- as above
const FIRST_LINE = /^\u001e([1-9]\d{0,9})\r?\n/;
const MAX_FIRST_LINE = 16;

/** Takes the line with which a process says who it is; null until it is whole, and throws where it is something else. */
export function readFirstLine(data: Buffer): { readonly pid: number; readonly rest: Buffer } | null {
  const match = FIRST_LINE.exec(data.toString('latin1', 0, MAX_FIRST_LINE));
  if (match) return { pid: Number(match[1]), rest: data.subarray(match[0].length) };
  if (data.length < MAX_FIRST_LINE && !data.includes(0x0a)) return null;
  throw new Error('the shell of the sandbox did not say who it is');
}
