// Starts bubblewrap and waits until the shell inside waits: from then on there is something to verify.

import type { Readable } from 'node:stream';
import * as z from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import type { Limits } from '../../contract/policy.ts';
import type { MountSpec, SandboxSpec, TmpfsSpec } from '../../contract/spec.ts';
import { shortageIn } from '../../contract/system-error.ts';
import { WAITING_COMMAND } from '../handover/script.ts';
import { Child, parseLimits, signalNamed } from '../process/child.ts';
import type { Observed, SandboxProcesses } from '../process/execution.ts';
import { identify, isAlive, onlyChild, type ProcessIdentity, signalTree } from '../process/held.ts';
import { isForked } from '../overlays.ts';
import type { ControlGroup } from './control-group.ts';
import { forkArguments, type ForkTools } from './forks.ts';
import type { HostPath, HostView } from './host-view.ts';

/** What a sandbox is started from. */
export interface Start {
  readonly spec: SandboxSpec;
  /** Bubblewrap’s own path. */
  readonly program: string;
  readonly words: readonly string[];
  /** What is started in its place and becomes it: it makes the network of an allow-list, and mounts forks. */
  readonly before: readonly string[];
  /** The system call filter as the kernel wants it. */
  readonly seccomp: Uint8Array;
  /** What holds it to its limits; null where each process carries them itself. */
  readonly group: ControlGroup | null;
}

/** A sandbox whose shell waits. */
export interface Started {
  /** Bubblewrap’s process outside; when it ends, the sandbox does. */
  readonly child: Child;
  /** The first process inside: when it ends, the kernel ends all others. */
  readonly first: ProcessIdentity;
  /** The shell that waits. */
  readonly shell: number;
}

const SHELL = '/bin/sh';
const START_MS = 5000;
const MAX_REASON = 600;
const MAX_STATUS = 4096;

// What becomes bubblewrap. A pipe of ours is a socket to the program, and a socket cannot be opened by the names that
// scripts have for it (/dev/stderr), nor should the inside hold one end of a socket to the host; so real pipes stand
// between, each with a program that passes on. A shell makes a pipe for a text of its own (<<), and the kernel opens its
// other end by name; a shell that makes a file instead leaves the sockets as they are.
//
// Then it joins each control group before anything else is started, with none of the variables that a shell makes for
// itself. The words after -- are the program it becomes.
const ENTER = `unset PWD OLDPWD SHLVL _
exec 3<<E 4<<E 5<<E
.
E
.
E
.
E
if [ -x /bin/cat ] && [ -p /proc/self/fd/3 ] && [ -p /proc/self/fd/4 ] && [ -p /proc/self/fd/5 ]; then
read -r line <&3 && read -r line <&4 && read -r line <&5 && unset line || exit 125
exec 6<&0 7>/proc/self/fd/3
/bin/cat <&6 >&7 2>/dev/null 3<&- 4<&- 5<&- 6<&- 7>&- &
exec <&3 3<&- 6<&- 7>&-
exec 6>/proc/self/fd/4 7>/proc/self/fd/5
/bin/cat <&4 2>/dev/null 4<&- 5<&- 6>&- 7>&- &
/bin/cat <&5 >&2 4<&- 5<&- 6>&- 7>&- &
exec >&6 2>&7 4<&- 5<&- 6>&- 7>&-
else
exec 3<&- 4<&- 5<&-
fi
while [ "$1" != -- ]; do echo $$ >"$1" || exit 125; shift; done
shift
exec "$@"`;

const STATUS = 0;
const READY = 1;
const statusSchema = z.looseObject({ 'child-pid': z.int().positive() });

/** Starts a sandbox; rejects with why it did not start, and leaves nothing then. */
export async function startBubblewrap(start: Start, signal: AbortSignal): Promise<Started> {
  const { spec } = start;
  const child = await Child.start(programOf(start)).catch((error: unknown) => {
    throw failed(spec, error instanceof Error ? error.message : String(error), error);
  });
  try {
    const patience = AbortSignal.any([signal, AbortSignal.timeout(START_MS)]);
    const ready = await untilReady(child, patience);
    signal.throwIfAborted();
    if (!ready) throw failed(spec, await reasonOf(child));
    return await processesOf(spec, child);
  } catch (error) {
    // Not the program alone: it may have made its first process, and not told it yet to go on and to end with its parent.
    child.killGroup();
    child.release();
    throw error;
  }
}

function programOf({ spec, program, words, before, seccomp, group }: Start): Parameters<typeof Child.start>[0] {
  const sandbox = [...before, program, '--args', String(DESCRIPTORS.words), '--', ...WAITING_INSIDE];
  return {
    program: SHELL,
    argv: ['-c', ENTER, 'sh', ...(group?.doors ?? []), '--', ...sandbox],
    // Bubblewrap’s own environment can be read inside, through /proc/1.
    environment: {},
    cwd: '/',
    first: DESCRIPTORS.status,
    outputs: 2,
    inputs: [words.map(word => `${word}\0`).join(''), seccomp, ...madeFiles(spec).map(({ content }) => content)],
  };
}

// Whether the inside said that it waits; false where it ended, or the time was up.
async function untilReady(child: Child, patience: AbortSignal): Promise<boolean> {
  const stream = child.output(READY);
  return new Promise(resolve => {
    const settle = (ready: boolean) => (): void => {
      patience.removeEventListener('abort', late);
      resolve(ready);
    };
    const late = settle(false);
    stream.once('data', settle(true));
    stream.once('close', late);
    patience.addEventListener('abort', late, { once: true });
  });
}

async function processesOf(spec: SandboxSpec, child: Child): Promise<Started> {
  const status = statusSchema.safeParse(parsed(await firstLine(child.output(STATUS))));
  const first = status.success ? identify(status.data['child-pid']) : null;
  const shell = first && (await onlyChild(first.pid));
  if (!first || shell === null) throw failed(spec, 'its first process cannot be found');
  return { child, first, shell };
}

// Written before the inside is set up, so it is there by now. What comes later, the exit status, is known from the process.
function firstLine(stream: Readable): Promise<string> {
  return new Promise(resolve => {
    let text = '';
    stream.on('data', (chunk: Buffer) => {
      if (text.length < MAX_STATUS) text += chunk.toString('utf8');
      if (text.includes('\n')) resolve(text.slice(0, text.indexOf('\n')));
    });
    stream.once('close', () => resolve(''));
  });
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

// Bubblewrap says on its standard error what it could not do; nothing untrusted has run that could say it instead.
async function reasonOf(child: Child): Promise<string> {
  child.kill('SIGKILL');
  let text = '';
  for await (const chunk of child.stderr as AsyncIterable<Buffer>) {
    text += chunk.toString('utf8');
    if (text.length > MAX_REASON) break;
  }
  const said = text.trim().replaceAll(/\s+/g, ' ').slice(0, MAX_REASON);
  return said === '' ? `it was not ready within ${START_MS / 1000} s` : said;
}

function failed(spec: SandboxSpec, reason: string, cause?: unknown): AcodeError {
  return new AcodeError('ACODE-SBX-006', { name: spec.identity.name, reason, ...shortageIn(reason) }, { cause });
}

// The words that bubblewrap is started with, written one by one from the plan of a sandbox. Pure.

/** What only the host at hand decides. */
export interface HostFacts {
  readonly view: HostView;
  readonly limits: ResourceLimits;
  /** What mounts the forks of the plan. */
  readonly forks?: ForkTools | null;
  /** Further variables; only a control of the doctor’s has any. */
  readonly variables?: Readonly<Record<string, string>>;
  /** Whether the network is the host’s own; only in a control of the doctor’s. */
  readonly hostNetwork?: boolean;
  /** Whether what is not a mount of the plan can be written; only in a control of the doctor’s. */
  readonly writableRoot?: boolean;
  /** The size of /dev/shm, where it is not as planned; only in a control of the doctor’s. */
  readonly sharedBytes?: number;
}

/** The descriptors a sandbox is made from: what is written by bubblewrap and by the inside, then what bubblewrap reads. */
const DESCRIPTORS = { status: 8, ready: 9, words: 10, seccomp: 11, files: 12 } as const;

// The name every sandbox has for itself: it says nothing about the host or the task.
const HOSTNAME = 'sandbox';
const SHM_BYTES = 64 * 1024 ** 2;

/**
 * Everything bubblewrap is told, but for the program. Handed over through a descriptor: words of a command line can be read
 * by every user of the host, and inside by the command.
 */
export function bubblewrapArguments(spec: SandboxSpec, ground: HostFacts): string[] {
  return [
    ...namespaces(spec, ground),
    ...identity(spec),
    ...environment(spec, ground),
    ...ground.view.system.flatMap(shown),
    ...kernelFiles(ground.view),
    ...devices(spec, ground),
    ...madeFiles(spec).flatMap(({ path }, index) => [
      '--perms',
      '0644',
      '--file',
      String(DESCRIPTORS.files + index),
      path,
    ]),
    ...spec.tmpfs.flatMap(memoryFileSystem),
    ...spec.mounts.flatMap(mount => mounted(mount, ground)),
    '--chdir',
    spec.workdir,
    // Last: until here, places to mount on were made in it.
    ...(ground.writableRoot ? [] : ['--remount-ro', '/']),
    '--seccomp',
    String(DESCRIPTORS.seccomp),
    '--json-status-fd',
    String(DESCRIPTORS.status),
  ];
}

function namespaces({ network }: SandboxSpec, { hostNetwork = false }: HostFacts): string[] {
  return [
    '--unshare-user',
    '--unshare-pid',
    // With an allow-list, bubblewrap itself was started in a network namespace that nothing else is in (enterCommand).
    ...(hostNetwork || network.kind === 'allow' ? [] : ['--unshare-net']),
    '--unshare-ipc',
    '--unshare-uts',
    '--unshare-cgroup',
    // In a user namespace of its own a sandbox would have capabilities again.
    '--disable-userns',
    '--assert-userns-disabled',
    // Without a terminal nothing can be typed into one.
    '--new-session',
    '--die-with-parent',
    '--cap-drop',
    'ALL',
  ];
}

function identity({ user }: SandboxSpec): string[] {
  return ['--uid', String(user.uid), '--gid', String(user.gid), '--hostname', HOSTNAME];
}

function environment(spec: SandboxSpec, { limits, variables = {} }: HostFacts): string[] {
  const own = spec.image.environment.map(variable => {
    const at = variable.indexOf('=');
    return [variable.slice(0, at), variable.slice(at + 1)] as const;
  });
  const all = [...own, ['HOME', spec.home] as const, ...Object.entries({ ...limitVariables(limits), ...variables })];
  return ['--clearenv', ...all.flatMap(([name, value]) => ['--setenv', name, value])];
}

function shown(place: HostPath): string[] {
  return place.kind === 'link' ? ['--symlink', place.to, place.path] : ['--ro-bind', place.source, place.path];
}

// What is masked is covered: a file by a device that cannot be opened there, a directory by an empty one.
function kernelFiles({ masked }: HostView): string[] {
  const covers = masked.flatMap(({ kind, path }) =>
    kind === 'directory' ? ['--size', '4096', '--tmpfs', path, '--remount-ro', path] : ['--ro-bind', '/dev/null', path],
  );
  return ['--proc', '/proc', ...covers];
}

// The directory itself would be memory without a limit.
function devices({ limits }: SandboxSpec, { writableRoot = false, sharedBytes }: HostFacts): string[] {
  const shm = sharedBytes ?? Math.min(SHM_BYTES, limits.memoryBytes);
  return [
    '--dev',
    '/dev',
    ...memoryFileSystem({ target: '/dev/shm', bytes: shm, mode: '1777' }),
    ...(writableRoot ? [] : ['--remount-ro', '/dev']),
  ];
}

function memoryFileSystem({ target, bytes, mode }: TmpfsSpec): string[] {
  return ['--size', String(bytes), '--perms', mode, '--tmpfs', target];
}

function mounted(mount: MountSpec, { forks }: HostFacts): string[] {
  const { source, target, readOnly } = mount;
  if (isForked(mount)) {
    // Never the workspace itself, writable, in place of its fork.
    if (!forks) throw new TypeError('nothing was found to mount a fork with');
    return forkArguments(forks, mount);
  }
  return [readOnly ? '--ro-bind' : '--bind', source, target];
}

// Small files that a sandbox sees in place of the host’s: who there is, and what names stand for. Pure.

/** A file and what is in it. */
interface MadeFile {
  readonly path: string;
  readonly content: string;
}

const NOBODY = 65_534;

/** The files of a sandbox. The host’s would tell the names of its users and of the machines it knows. */
export function madeFiles({
  user: { uid, gid },
  home,
  network,
  mounts,
}: Pick<SandboxSpec, 'user' | 'home' | 'network' | 'mounts'>): readonly MadeFile[] {
  const hosts = network.kind === 'allow' ? 'hosts: files dns' : 'hosts: files';
  const all = [
    {
      path: '/etc/passwd',
      content: lines([
        'root:x:0:0:root:/root:/bin/sh',
        `sandbox:x:${uid}:${gid}:sandbox:${home}:/bin/sh`,
        // Whoever else owns a file of the host appears as this one.
        `nobody:x:${NOBODY}:${NOBODY}:nobody:/:/bin/sh`,
      ]),
    },
    { path: '/etc/group', content: lines(['root:x:0:', `sandbox:x:${gid}:`, `nogroup:x:${NOBODY}:`]) },
    { path: '/etc/nsswitch.conf', content: lines(['passwd: files', 'group: files', 'shadow: files', hosts]) },
    { path: '/etc/hosts', content: lines(['127.0.0.1 localhost sandbox', '::1 localhost sandbox']) },
  ];
  return all.filter(({ path }) => !mounts.some(({ target }) => target === path));
}

function lines(all: readonly string[]): string {
  return `${all.join('\n')}\n`;
}

// The limits a sandbox’s processes carry themselves, and the shell text that sets them inside. Pure.
//
// Set inside, after the user namespace is made: there the kernel counts only the sandbox’s own processes, and not all those
// of the same user on the host.

/** Limits of each process; null where a control group holds all of them together instead. */
export interface ResourceLimits {
  readonly openFiles: number;
  readonly fileBytes: number;
  readonly coreBytes: 0;
  readonly processes: number | null;
  readonly dataBytes: number | null;
}

// A file with holes costs nothing to make and everything to whoever copies or backs up the workspace.
const FILE_BYTES = 64 * 1024 ** 3;
const BLOCK_BYTES = 512;

// The descriptor on which the inside says that its limits are set. One digit: shells know no others.
const LIMITS_READY = 9;

/** The limits of a plan as the kernel is told them: the forwarder of an allow-list is not one of the command’s processes. */
export function ownLimits({ network, limits }: Pick<SandboxSpec, 'network' | 'limits'>): Limits {
  return network.kind === 'allow' ? { ...limits, pids: limits.pids + 1 } : limits;
}

/** The limits of a sandbox’s processes; `perProcess` where no control group limits memory and processes. */
export function resourceLimits({ openFiles, pids, memoryBytes }: Limits, perProcess: boolean): ResourceLimits {
  return {
    openFiles,
    fileBytes: FILE_BYTES,
    coreBytes: 0,
    processes: perProcess ? pids : null,
    // Not the address space: runtimes reserve far more of it than they ever use, and would not start.
    dataBytes: perProcess ? memoryBytes : null,
  };
}

/** The limits as variables for {@link WAITING_INSIDE}; they are gone before anything else runs. */
export function limitVariables(limits: ResourceLimits): Readonly<Record<string, string>> {
  const kibibytes = limits.dataBytes === null ? '' : String(Math.ceil(limits.dataBytes / 1024));
  return {
    _acode_n: String(limits.openFiles),
    _acode_f: String(Math.floor(limits.fileBytes / BLOCK_BYTES)),
    _acode_u: limits.processes === null ? '' : String(limits.processes),
    _acode_d: kibibytes,
  };
}

// Shells name the limit on processes -u or -p. What became of each limit is read from the kernel afterwards.
const SET_LIMITS = `ulimit -c 0 && ulimit -f "$_acode_f" && ulimit -n "$_acode_n" || exit 125
if [ -n "$_acode_d" ]; then ulimit -d "$_acode_d" || exit 125; fi
if [ -n "$_acode_u" ]; then ulimit -u "$_acode_u" 2>/dev/null || ulimit -p "$_acode_u" || exit 125; fi
unset _acode_n _acode_f _acode_u _acode_d
echo ready >&${LIMITS_READY} && exec ${LIMITS_READY}>&- && exec "$@"`;

/** The first program of a sandbox: sets the limits, says so, and becomes the shell that waits. */
const WAITING_INSIDE: readonly string[] = ['/bin/sh', '-c', SET_LIMITS, 'sh', ...WAITING_COMMAND];

/** Every limit that is not as planned, in words. */
export function limitDifferences(planned: ResourceLimits, content: string): string[] {
  const found = parseLimits(content);
  const wanted: [name: string, value: number | null][] = [
    ['Max open files', planned.openFiles],
    ['Max file size', planned.fileBytes],
    ['Max core file size', planned.coreBytes],
    ['Max processes', planned.processes],
    ['Max data size', planned.dataBytes === null ? null : Math.ceil(planned.dataBytes / 1024) * 1024],
  ];
  return wanted.flatMap(([name, value]) => {
    const limit = found.get(name);
    if (value === null || (limit?.soft === value && limit.hard === value)) return [];
    return [`${name}: planned ${value}, found ${limit?.soft ?? 'none'}`];
  });
}

// The processes of one bubblewrap sandbox, seen from outside: how they are signalled, waited for and counted.

const FIRST_LOOK_MS = 1;
const SLOWEST_LOOK_MS = 20;
const MAX_MS = 5000;

/** The processes of a sandbox. */
export class BubblewrapProcesses implements SandboxProcesses {
  readonly child: Child;
  readonly #first: ProcessIdentity;
  readonly #group: ControlGroup | null;

  constructor({ child, first }: Started, group: ControlGroup | null) {
    this.child = child;
    this.#first = first;
    this.#group = group;
  }

  signal(name: string): void {
    const signal = signalNamed(name);
    if (!signal) throw new AcodeError('ACODE-SBX-017', { field: 'signal', reason: `there is no signal ${name}` });
    if (signal === 'SIGKILL') this.#end();
    // The group of the first process, which ignores what it has no handler for; a session of the command’s own is not in it.
    else this.#send(-this.#first.pid, signal);
  }

  freeze(action: 'pause' | 'resume'): void {
    signalTree(this.#first, action === 'pause' ? 'SIGSTOP' : 'SIGCONT');
  }

  async gone(): Promise<void> {
    const deadline = Date.now() + MAX_MS;
    for (let wait = FIRST_LOOK_MS; isAlive(this.#first); wait = Math.min(wait * 2, SLOWEST_LOOK_MS)) {
      if (Date.now() > deadline)
        throw new AcodeError('ACODE-SBX-018', {
          operation: 'ending the sandbox',
          reason: 'its first process lives on',
        });
      // The command can reach into the first process and make it outlive bubblewrap; from outside it cannot be kept alive.
      if (this.child.ended) this.#send(this.#first.pid, 'SIGKILL');
      await new Promise(resolve => void setTimeout(resolve, wait));
    }
  }

  async observe(): Promise<Observed> {
    if (!this.#group) return { oomKilled: false, pidsRefused: false };
    const { oomKills, pidsRefused, usage } = await this.#group.counters();
    return { oomKilled: oomKills > 0, pidsRefused: pidsRefused > 0, ...(usage ? { usage } : {}) };
  }

  // With the first process the kernel ends every other one of its namespace, whatever session it is in.
  #end(): void {
    this.child.kill('SIGKILL');
    this.#send(this.#first.pid, 'SIGKILL');
  }

  #send(target: number, signal: NodeJS.Signals): void {
    if (!isAlive(this.#first)) return;
    try {
      process.kill(target, signal);
    } catch {
      // It ended between the look and the signal.
    }
  }
}
