// The waiting start: the shell text a sandbox waits in, and the one line that hands it a command.
//
// The image’s own shell reads exactly one line from its standard input (shells read pipes byte by byte, so what follows
// stays for the command) and evaluates it. That line is built here from nothing but quoted words.

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

/** What the shell says on both streams right before it starts the command. */
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
  // The command has no process before this line is in both pipes, so that it cannot claim that it was never started.
  `_acode_f ${BEGUN}`,
  '}',
].join('\n');

// In the command’s own process, before it becomes the command.
const BECOMES = `_acode_x() { exec 2>&3 3>&-; unset TINI_KILL_PROCESS_GROUP OLDPWD SHLVL "$@"; }`;

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
    `( ${inner.join('; ')} )`,
    `_acode_e $? ${after}`,
  ].join('; ')}\n`;
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
