// The waiting start: the shell text a sandbox waits in, and the one line that hands it a command.
//
// The image’s own shell reads exactly one line from its standard input (shells read pipes byte by byte, so what follows
// stays for the command) and evaluates it. That line is built here from nothing but quoted words.

import { createHash } from 'node:crypto';
import type { Command } from '../../contract/command.ts';

/** What is handed over to a waiting sandbox: once, ever. */
export interface Handover {
  readonly command: Command;
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** Variables that are set where `env` does not set them. An image without a shell gets none. */
  readonly defaults?: Readonly<Record<string, string>>;
  /** Frames the status line. Unguessable, so that no program prints it by chance. */
  readonly nonce: string;
  /** Variables that the sandbox has and the command must not see. */
  readonly unset?: readonly string[];
  /** A process that has to end with status 0 before the command; the command is not started if it does not. */
  readonly first?: readonly string[];
  /** What is to be counted at the end, where somebody looks: a shell reads every byte of it by itself. All of it by default. */
  readonly counted?: Counted;
}

/** What is counted when a command has ended. */
export interface Counted {
  /** What the sandbox’s control group says. */
  readonly group: boolean;
  /** What passed its network interfaces. */
  readonly traffic: boolean;
  /** Whether the control group held other commands before, so that what it had counted by then is told too. */
  readonly shared?: boolean;
}

/** What begins a status line. */
export function statusMarker(nonce: string): Buffer {
  return Buffer.from(`\u001e${nonce} `, 'latin1');
}

/** What the command’s process says on both streams right before it becomes the command. */
export const BEGUN = 'begun';

// A newline cannot stand in a one-line frame, so quoted words reach it through this variable.
const NEWLINE = '_acode_n';

// Counters of the sandbox’s own control group, version 1 and version 2; what is not there is not reported.
const COUNTERS = [
  'memory/memory.oom_control',
  'memory/memory.max_usage_in_bytes',
  'memory.events',
  'memory.peak',
  'pids/pids.events',
  'pids.events',
  'cpuacct/cpuacct.usage',
  'cpu/cpu.stat',
  'cpu.stat',
];

// Those that say what went wrong: in a sandbox that stays, they are also read when a command begins.
const TROUBLE = ['memory/memory.oom_control', 'memory.events', 'pids/pids.events', 'pids.events'];

/** What stands before the name of a counter that was read when the command began. */
export const EARLIER = 'earlier/';

// What passed each network interface of the sandbox. The lines are of the kernel’s own form, read as they are.
const TRAFFIC = '/proc/net/dev';

function reading(counters: readonly string[], prefix = ''): string {
  return `for _acode_p in ${counters.join(' ')}; do if [ -r "/sys/fs/cgroup/$_acode_p" ]; then _acode_u="$_acode_u;${prefix}$_acode_p"; while read -r _acode_r; do _acode_u="$_acode_u|$_acode_r"; done <"/sys/fs/cgroup/$_acode_p"; fi; done`;
}

// Says something on both streams: what a command left unread on one of them does not hold it back on the other.
const SAYS = String.raw`_acode_f() { printf '\036%s %s\n' "$_acode_o" "$1"; printf '\036%s %s\n' "$_acode_o" "$1" >&3; }`;

// Before the command: where it runs, whether its program is there, and what other commands have counted.
const BEGINS = [
  '_acode_b() {',
  'unset _acode_l',
  // Caught, not ignored: the shell outlives a signal to its process group, and the command still gets it (traps are reset in a child).
  'trap : HUP INT QUIT TERM USR1 USR2',
  // The shell’s own remarks (“Killed”) are not the command’s output; descriptor 3 keeps the command’s standard error.
  'exec 3>&2 2>/dev/null',
  'if ! cd "$1"; then _acode_f cwd; exit 125; fi',
  // Asked before the command starts, so that “never started” and “ended with 127” stay two things.
  'case $2 in */*)',
  'if ! [ -e "$2" ]; then _acode_f missing; exit 127; fi',
  'if [ -d "$2" ] || ! [ -x "$2" ]; then _acode_f forbidden; exit 126; fi',
  // Shells take it for the end of their own options.
  ';; --) _acode_f missing; exit 127',
  ';; *) if ! command -v "$2" >/dev/null; then _acode_f missing; exit 127; fi',
  ';; esac',
  '_acode_u=',
  `case $3 in *s*) ${reading(TROUBLE, EARLIER)};; esac`,
  '}',
].join('\n');

// In the command’s own process, before it becomes the command. It says so itself: what is sent to it from then on reaches it, since a
// child does not catch what the shell does, and it cannot claim that it was never started, since the line is in both pipes by then.
const BECOMES = `_acode_x() { _acode_f ${BEGUN}; exec 2>&3 3>&-; unset TINI_KILL_PROCESS_GROUP OLDPWD SHLVL "$@"; }`;

// After it: what was counted, and how it ended.
const ENDS = [
  '_acode_e() {',
  '_acode_s=$1',
  `case $2 in *g*) ${reading(COUNTERS)};; esac`,
  `case $2 in *t*) if [ -r ${TRAFFIC} ]; then _acode_u="$_acode_u;net"; while read -r _acode_r; do _acode_u="$_acode_u|$_acode_r"; done <${TRAFFIC}; fi;; esac`,
  '_acode_f "exit $_acode_s$_acode_u"',
  'exit $_acode_s',
  '}',
].join('\n');

/**
 * The text a sandbox waits in. At end of file, which is what a dead client leaves, it ends. Whatever is the same for every
 * command is said here: the line is read byte by byte, which under gVisor takes ten microseconds for each.
 */
export const WAITING_SCRIPT = [
  `${NEWLINE}='\n'`,
  SAYS,
  BEGINS,
  BECOMES,
  ENDS,
  'IFS= read -r _acode_l && eval "$_acode_l"',
].join('\n');

/** The process of a waiting sandbox. */
export const WAITING_COMMAND: readonly string[] = ['/bin/sh', '-c', WAITING_SCRIPT];

// Persistent sandboxes outlive an update of acode. Whoever changes the script adds the hash it had (a test names it).
const FORMER: ReadonlySet<string> = new Set(['ee3de34c39ee934361c261ac35b460c27fa0d5047704d88b8245475e6eb93f1d']);

/** Whether a sandbox waits in the script of this version or of an earlier one. */
export function isWaitingCommand(argv: readonly string[]): boolean {
  const hash = waitingHash(argv);
  return hash === waitingHash(WAITING_COMMAND) || FORMER.has(hash);
}

/** The hash by which a later version knows the script. */
export function waitingHash(argv: readonly string[] = WAITING_COMMAND): string {
  return createHash('sha256').update(JSON.stringify(argv)).digest('hex');
}

/** The line that hands a command over. */
export function handoverLine(handover: Handover): string {
  const argv = typeof handover.command === 'string' ? ['/bin/sh', '-c', handover.command] : handover.command;
  const { group, traffic, shared = false } = handover.counted ?? { group: true, traffic: true };
  const inner = [
    ['_acode_x', ...(handover.unset ?? [])].join(' '),
    ...exportsOf(handover),
    `exec ${argv.map(quote).join(' ')}`,
  ];
  const before = group && shared ? 's' : '-';
  const after = `-${group ? 'g' : ''}${traffic ? 't' : ''}`;
  return `${[
    `_acode_o=${quote(handover.nonce)}`,
    `_acode_b ${quote(handover.cwd)} ${quote(argv[0] ?? '')} ${before}`,
    ...firstOf(handover),
    `( ${inner.join('; ')} )`,
    `_acode_e $? ${after}`,
  ].join('; ')}\n`;
}

function firstOf({ first }: Pick<Handover, 'first'>): string[] {
  return first ? [`${first.map(quote).join(' ')} || { _acode_f network; exit 125; }`] : [];
}

// One statement for all: the line is read byte by byte.
function exportsOf({ defaults, env }: Pick<Handover, 'defaults' | 'env'>): string[] {
  const assigned = Object.entries({ ...defaults, ...env }).map(([name, value]) => `${name}=${quote(value)}`);
  return assigned.length > 0 ? [`export ${assigned.join(' ')}`] : [];
}

/** A word the shell takes as it is, on one line. */
export function quote(word: string): string {
  return `'${word.replaceAll("'", String.raw`'\''`).replaceAll('\n', `'"$${NEWLINE}"'`)}'`;
}

// The shell text in which a process waits inside a sandbox that stays: it says who it is, and then waits for one line.

const SAYS_PID = String.raw`printf '\036%s\n' "$$"`;

/** The process that waits for a command. */
export const READY_COMMAND: readonly string[] = ['/bin/sh', '-c', `${SAYS_PID}; ${WAITING_SCRIPT}`];

// Between saying who it is and the command it waits for a line: by then its terminal has its size. What a terminal repeats
// of that line comes before the mark.
const TERMINAL_SCRIPT = `cd "$1" || exit 125; shift; ${SAYS_PID}; IFS= read -r _ || exit 129; printf '\\036go\\n'; exec "$@"`;
// oxlint-disable-next-line no-control-regex -- the mark is a control character, so that no program prints it by chance
const TERMINAL_BEGUN = /\u001ego\r?\n/;

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
  const match = TERMINAL_BEGUN.exec(data.toString('latin1'));
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
