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

// A newline cannot stand in a one-line frame, so quoted words reach it through this variable.
const NEWLINE = '_acode_n';

/** The text a sandbox waits in. At end of file, which is what a dead client leaves, it ends. */
export const WAITING_SCRIPT = `${NEWLINE}='\n'\nIFS= read -r _acode_l && eval "$_acode_l"`;

/** The process of a waiting sandbox. */
export const WAITING_COMMAND: readonly string[] = ['/bin/sh', '-c', WAITING_SCRIPT];

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

/** The line that hands a command over. */
export function handoverLine(handover: Handover): string {
  const argv = typeof handover.command === 'string' ? ['/bin/sh', '-c', handover.command] : handover.command;
  const program = argv[0] ?? '';
  const counted = handover.counted ?? { group: true, traffic: true };
  const exports = Object.entries(handover.env).map(([name, value]) => `export ${name}=${quote(value)}`);
  const inner = [
    'exec 2>&3 3>&-',
    ['unset TINI_KILL_PROCESS_GROUP OLDPWD SHLVL', ...(handover.unset ?? [])].join(' '),
    ...exports,
    `exec ${argv.map(quote).join(' ')}`,
  ];
  return `${[
    'unset _acode_l',
    // Caught, not ignored: the shell outlives a signal to its process group, and the command still gets it (traps are reset in a child).
    'trap : HUP INT QUIT TERM USR1 USR2',
    // The shell’s own remarks (“Killed”) are not the command’s output; descriptor 3 keeps the command’s standard error.
    'exec 3>&2 2>/dev/null',
    `_acode_f() { printf '\\036%s %s\\n' ${quote(handover.nonce)} "$1"; printf '\\036%s %s\\n' ${quote(handover.nonce)} "$1" >&3; }`,
    `if ! cd ${quote(handover.cwd)}; then _acode_f cwd; exit 125; fi`,
    ...missingCheck(program),
    '_acode_u=',
    ...(counted.group && counted.shared === true ? [reading(TROUBLE, EARLIER)] : []),
    `( ${inner.join('; ')} )`,
    '_acode_s=$?',
    ...counting(counted),
    '_acode_f "exit $_acode_s$_acode_u"',
    'exit $_acode_s',
  ].join('; ')}\n`;
}

function reading(counters: readonly string[], prefix = ''): string {
  return `for _acode_p in ${counters.join(' ')}; do if [ -r "/sys/fs/cgroup/$_acode_p" ]; then _acode_u="$_acode_u;${prefix}$_acode_p"; while read -r _acode_r; do _acode_u="$_acode_u|$_acode_r"; done <"/sys/fs/cgroup/$_acode_p"; fi; done`;
}

function counting(counted: Counted): string[] {
  const traffic = `if [ -r ${TRAFFIC} ]; then _acode_u="$_acode_u;net"; while read -r _acode_r; do _acode_u="$_acode_u|$_acode_r"; done <${TRAFFIC}; fi`;
  return [...(counted.group ? [reading(COUNTERS)] : []), ...(counted.traffic ? [traffic] : [])];
}

// Asked before the command starts, so that “never started” and “ended with 127” stay two things.
function missingCheck(program: string): string[] {
  const word = quote(program);
  if (!program.includes('/')) return [`if ! command -v ${word} >/dev/null; then _acode_f missing; exit 127; fi`];
  return [
    `if ! [ -e ${word} ]; then _acode_f missing; exit 127; fi`,
    `if [ -d ${word} ] || ! [ -x ${word} ]; then _acode_f forbidden; exit 126; fi`,
  ];
}

/** A word the shell takes as it is, on one line. */
export function quote(word: string): string {
  return `'${word.replaceAll("'", String.raw`'\''`).replaceAll('\n', `'"$${NEWLINE}"'`)}'`;
}
