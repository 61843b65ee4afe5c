// Sandboxes that are processes of this host without a wall around them: what levels ulimit and none have in common.

import { readFileSync } from 'node:fs';
import { chmod, mkdtemp, readdir, realpath, rm } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { AcodeError } from '../../contract/errors.ts';
import type { Level } from '../../contract/levels.ts';
import type { MountSpec, SandboxSpec } from '../../contract/spec.ts';
import { shortageIn } from '../../contract/system-error.ts';
import type { Capability, WaitingSandbox, Weakening } from '../backend.ts';
import type { Handover } from '../handover/script.ts';
import { WORKSPACE_TARGET } from '../plan.ts';
import { Child, signalNamed } from './child.ts';
import { Guard, type Observed, type SandboxProcesses, WaitingProcesses } from './execution.ts';
import { assertInPlace, groupLives, identify, isAlive, type ProcessIdentity } from './held.ts';
import { processIds } from '../../lifecycle/processes.ts';

/** What a sandbox on the host is started from. */
export interface HostStart {
  readonly spec: SandboxSpec;
  /** The program, by its absolute path, and its words; it becomes the shell that waits. */
  readonly argv: readonly [program: string, ...words: string[]];
  /** Further variables; only a control of the doctor’s has any. */
  readonly variables?: Readonly<Record<string, string>>;
  /** Looks at the shell that waits; throws at the first difference from the plan. */
  readonly verify: (child: Child) => Promise<void>;
  /** Called when everything was validated and nothing is made yet. */
  readonly beforeCreate: () => Promise<void>;
}

/** Starts one, waiting. */
export async function prepareOnHost(start: HostStart, signal: AbortSignal): Promise<WaitingSandbox> {
  const { spec } = start;
  const workspace = workspaceOf(spec);
  await start.beforeCreate();
  // The command’s own home: the caller’s has settings and keys that no command should find by chance.
  const directory = await mkdtemp(join(tmpdir(), 'acode-home-'));
  const child = await started(start, directory, workspace.source).catch(async (error: unknown) => {
    await rm(directory, { recursive: true, force: true });
    const reason = error instanceof Error ? error.message : String(error);
    throw new AcodeError(
      'ACODE-SBX-006',
      { name: spec.identity.name, reason, ...shortageIn(reason) },
      { cause: error },
    );
  });
  const guard = Guard.start({ target: -child.pid, directory });
  const processes = new GroupProcesses(child, spec.identity.sandboxId);
  const remove = async (): Promise<void> => {
    processes.signal('SIGKILL');
    await processes.gone();
    child.release();
    // From here on the number may be somebody else’s group.
    guard.dismiss();
    await removeTree(directory);
  };
  const verify = async (): Promise<void> => {
    assertInPlace({ mounts: [workspace] });
    await start.verify(child);
  };
  if (signal.aborted) await remove();
  signal.throwIfAborted();
  return new WaitingProcesses({ spec, processes, verify, remove, translate: handover => onHost(handover, workspace) });
}

// A command can take the right to write from its own directories, as caches of modules do.
async function removeTree(directory: string): Promise<void> {
  const options = { recursive: true, force: true, maxRetries: 5, retryDelay: 20 } as const;
  try {
    await rm(directory, options);
  } catch {
    await makeWritable(directory);
    await rm(directory, options);
  }
}

async function makeWritable(directory: string): Promise<void> {
  await chmod(directory, 0o700);
  for (const entry of await readdir(directory, { withFileTypes: true }))
    if (entry.isDirectory()) await makeWritable(join(directory, entry.name));
}

function started({ spec, argv, variables = {} }: HostStart, directory: string, cwd: string): Promise<Child> {
  const [program, ...words] = argv;
  const own = spec.image.environment.map(variable => {
    const at = variable.indexOf('=');
    return [variable.slice(0, at), variable.slice(at + 1)] as const;
  });
  const environment = {
    ...Object.fromEntries(own),
    HOME: directory,
    TMPDIR: directory,
    [MARK]: spec.identity.sandboxId,
    ...variables,
  };
  return Child.start({ program, argv: words, environment, cwd });
}

function workspaceOf({ mounts }: SandboxSpec): MountSpec {
  const workspace = mounts.find(({ purpose }) => purpose === 'workspace');
  if (workspace) return workspace;
  throw new AcodeError('ACODE-SBX-017', { field: 'workspace', reason: 'there is none to run the command in' });
}

// A directory that is not there, or cannot be entered, the shell finds out itself.
async function onHost(handover: Handover, workspace: MountSpec): Promise<Handover> {
  const cwd = join(workspace.source, relative(workspace.target, handover.cwd));
  const real = await realpath(cwd).catch(() => cwd);
  const root = await realpath(workspace.source);
  if (real === root || real.startsWith(`${root}/`)) return { ...handover, cwd: real };
  throw new AcodeError('ACODE-SBX-017', { field: 'cwd', reason: `${handover.cwd} leads out of the workspace` });
}

// The processes of a sandbox that is a process group of this host and nothing more: how they are signalled and waited for.

const LOOK_MS = 5;
const MAX_MS = 5000;

/** A process group. */
class GroupProcesses implements SandboxProcesses {
  readonly child: Child;
  readonly #sandboxId: string;
  #escaped = 0;
  #isGone = false;

  constructor(child: Child, sandboxId: string) {
    this.child = child;
    this.#sandboxId = sandboxId;
    // With the shell the command is over; what it left in its group goes with it. At once: a number is used again only much later.
    child.exit.then(() => this.#send('SIGKILL')).catch(() => undefined);
  }

  /** How many processes had left the group and were found and ended all the same. */
  get escaped(): number {
    return this.#escaped;
  }

  signal(name: string): void {
    const signal = signalNamed(name);
    if (!signal) throw new AcodeError('ACODE-SBX-017', { field: 'signal', reason: `there is no signal ${name}` });
    this.#send(signal);
  }

  async gone(): Promise<void> {
    const deadline = Date.now() + MAX_MS;
    while (groupLives(this.child.pid)) {
      if (Date.now() > deadline)
        throw new AcodeError('ACODE-SBX-018', { operation: 'ending the command', reason: 'its processes live on' });
      await new Promise(resolve => void setTimeout(resolve, LOOK_MS));
    }
    this.#isGone = true;
    this.#escaped += endMarked(this.#sandboxId);
  }

  // Nothing counts what a process group uses.
  async observe(): Promise<Observed> {
    return { oomKilled: false, pidsRefused: false };
  }

  // The number of a group that is gone may be given to another.
  #send(signal: NodeJS.Signals): void {
    if (this.#isGone) return;
    try {
      process.kill(-this.child.pid, signal);
    } catch {
      // None is left.
    }
  }
}

// Finds processes of a sandbox that left its process group: by a variable that every process inherits and few take away.
//
// A process in a session of its own cannot be followed in any other way without a namespace. One that also clears its
// environment is not found; levels with namespaces have no such gap.

/** The variable that marks every process of a sandbox. */
const MARK = 'ACODE_SANDBOX_ID';

const MAX_ROUNDS = 20;

// The living processes that carry the mark of a sandbox; none where the system does not show environments.
function markedProcesses(sandboxId: string): ProcessIdentity[] {
  return processIds().flatMap(pid => {
    const found = hasMark(pid, sandboxId) ? identify(pid) : null;
    return found ? [found] : [];
  });
}

/** Ends the processes that carry the mark, and what they start meanwhile; says how many there were. */
function endMarked(sandboxId: string): number {
  const ended = new Set<string>();
  // A process that forks faster than it is found is given up after some rounds: this level is no boundary.
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const found = markedProcesses(sandboxId);
    if (found.length === 0) break;
    for (const one of found) {
      ended.add(`${one.pid} ${one.startTime}`);
      end(one);
    }
  }
  return ended.size;
}

function end(found: ProcessIdentity): void {
  try {
    if (isAlive(found)) process.kill(found.pid, 'SIGKILL');
  } catch {
    // It ended meanwhile.
  }
}

function hasMark(pid: number, sandboxId: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(`${MARK}=${sandboxId}`);
  } catch {
    // Another user’s, or gone.
    return false;
  }
}

// What a level without walls cannot give or hold: refused, never left out in silence.

/** What everybody who uses such a level should know. */
export const NO_BOUNDARY: readonly string[] = [
  'This level is no security boundary: the command can do on this host whatever you can.',
  'The network is the host’s own, also where the policy says none; .git and other protected paths can be written.',
];

/** Refuses a plan that asks for what only a stronger level can hold. */
export function refuseOnHost(spec: SandboxSpec, level: Level): void {
  const uid = process.getuid?.() ?? -1;
  if (uid === 0) throw new AcodeError('ACODE-SBX-011', { uid });
  const refuse = (what: string, instead: string): never => {
    throw new AcodeError('ACODE-SBX-016', { what: `${what} at level ${level}`, instead });
  };
  if (spec.network.kind !== 'none') refuse('A network of its own', 'Leave the network out, or use level docker.');
  if (spec.ports.length > 0)
    refuse('A published port', 'Leave the ports out: a server of the command is on this host.');
  if (spec.runtime !== null) refuse(`The runtime ${spec.runtime}`, 'Leave the runtime out, or use level docker.');
  if (spec.user.uid !== uid) refuse('Another user than the caller', 'Leave the user out: the command runs as you.');
  refuseMounts(spec, refuse);
}

function refuseMounts(spec: SandboxSpec, refuse: (what: string, instead: string) => never): void {
  const stronger = 'or use level docker or bubblewrap';
  if (spec.mounts.some(({ purpose }) => purpose === 'additional'))
    refuse('A mount', `Leave the mounts out, ${stronger}.`);
  if (isElsewhere(spec))
    refuse('Another path of the workspace', `Leave it out, ${stronger}: the command has the directory itself.`);
  if (spec.mounts.some(({ purpose, readOnly }) => purpose === 'workspace' && readOnly))
    refuse('A read-only workspace', `Leave it out, ${stronger}: nothing here could keep the command from writing.`);
}

// Of the path that is not asked for and of its own, the command’s directory is the host’s.
function isElsewhere({ mounts, workdir }: SandboxSpec): boolean {
  const own = mounts.find(({ purpose }) => purpose === 'workspace')?.source;
  return workdir !== WORKSPACE_TARGET && workdir !== own;
}

/** Refuses weakenings of protections that such a level does not have. */
export function assertWeakenable(weakenings: readonly Weakening[], possible: readonly Weakening[], level: Level): void {
  const missing = weakenings.find(weakening => weakening !== 'verification' && !possible.includes(weakening));
  if (missing === undefined) return;
  throw new AcodeError('ACODE-SBX-016', {
    what: `A control without ${missing} at level ${level}`,
    instead: 'Nothing: the level does not have that protection, so there is none to take away.',
  });
}

/** What such a level can do here. */
export function capabilityOnHost(level: Level): Capability {
  const reason = whyNot();
  return {
    level,
    available: reason === null,
    cpus: availableParallelism(),
    runtimes: {},
    standardRuntime: '',
    ...(reason === null ? {} : { reason }),
  };
}

function whyNot(): string | null {
  if (process.platform === 'win32') return 'it needs a POSIX system; use WSL or Docker';
  return process.getuid?.() === 0
    ? 'without walls a command of root’s could do anything; use an ordinary user, or level docker'
    : null;
}
