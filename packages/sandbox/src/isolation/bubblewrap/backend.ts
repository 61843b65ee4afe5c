// Level bubblewrap: sandboxes as processes in namespaces of their own, made by an ordinary user without an engine.

import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { lstat, readFile, readlink, realpath, stat } from 'node:fs/promises';
import { availableParallelism, machine, release } from 'node:os';
import { dirname, join } from 'node:path';
import * as z from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import type { Level } from '../../contract/levels.ts';
import { networkName } from '../../contract/network.ts';
import type { UserId } from '../../contract/policy.ts';
import type { Clock } from '../../contract/ports.ts';
import { settingCommand } from '../../contract/setting.ts';
import type { ImageFacts, SandboxSpec } from '../../contract/spec.ts';
import { rendered } from '../../contract/wording.ts';
import { readPrivateFile, writePrivateFile } from '../../lifecycle/directories.ts';
import type { Capability, ForkWay, WaitingSandbox, WeakenedBackend, Weakening } from '../backend.ts';
import { enterCommand, FORWARDER_COMMAND } from '../egress.ts';
import type { EgressMounts } from '../egress.ts';
import { HOST_IMAGE, LEAKED_VARIABLES } from '../process/child.ts';
import { Guard, WaitingProcesses } from '../process/execution.ts';
import { openProgram, seccompProgram } from '../seccomp/bpf.ts';
import { type Architecture, architectureOf } from '../seccomp/profile.ts';
import {
  bubblewrapArguments,
  BubblewrapProcesses,
  type HostFacts,
  ownLimits,
  resourceLimits,
  startBubblewrap,
  type Started,
} from './start.ts';
import { ControlGroup, type Delegation, findDelegation, sweepControlGroups } from './control-group.ts';
import { ASSUMED_TOOLS, assertForks, beforeBubblewrap, findForkTools, type ForkTools } from './forks.ts';
import { DECIDING_FILES, mayJoin, probeSandbox } from './probe.ts';
import { inspectStarted } from './verify.ts';
import { readHostView } from './host-view.ts';

/** How a backend should behave. */
export interface BubblewrapBackendOptions {
  readonly clock: Clock;
  /** Fires when the session ends. */
  readonly closing: AbortSignal;
  /** Keeps work that outlives its caller, so that closing waits for it. */
  readonly keep: (work: Promise<unknown>) => void;
  /** Whether limits that each process carries alone are enough, where no control group was given to this user. */
  readonly acceptProcessLimits: boolean;
  /** What sandboxes with an allow-list mount. */
  readonly egress: EgressMounts;
  /** The user’s own directory in which it is remembered, for a few minutes, that a sandbox was tried and held. */
  readonly memory: string;
  /** What its sandboxes lack, where they are controls of the doctor’s. */
  readonly weakness?: Weakness;
}

interface Weakness {
  readonly weakenings: readonly Weakening[];
  readonly beforeCreate: () => Promise<void>;
}

/** What a host has for this level. */
interface HostSupport {
  readonly program: string;
  readonly architecture: Architecture;
  readonly delegation: Delegation | null;
}

const NONE: Weakness = { weakenings: [], beforeCreate: async () => {} };
const LIMITS_MISSING =
  'no control group was delegated to you, so limits would apply to each process and not to the whole command';
const LIMITS_REMEDY = `Start acode in a control group of its own with \`systemd-run --user --scope -p Delegate=yes acode …\`, or accept limits per process: \`${settingCommand({ key: 'sandbox.bubblewrap.accept_process_limits', value: true })}\`.`;

const FORKS_REMEDY = 'Install bubblewrap 0.11 or newer, or use level docker.';

/** The bubblewrap backend. */
export class BubblewrapBackend implements WeakenedBackend {
  readonly level: Level = 'bubblewrap';
  /** What everybody who uses the level should know. */
  readonly notes: readonly string[] = [
    'The command sees this host’s own programs in /usr, read-only; the kernel is shared with it, as in a container.',
  ];
  readonly #options: BubblewrapBackendOptions;
  readonly #weakness: Weakness;
  #ground: Promise<HostSupport> | null = null;
  #perProcess = true;
  #forks: ForkTools | null = null;

  constructor(options: BubblewrapBackendOptions) {
    this.#options = options;
    this.#weakness = options.weakness ?? NONE;
  }

  async probe(signal: AbortSignal): Promise<Capability> {
    const found = await this.#whyNot(signal);
    return {
      level: this.level,
      available: found === null,
      cpus: availableParallelism(),
      runtimes: {},
      standardRuntime: '',
      ...found,
    };
  }

  // There is no image: what stands for one is the system of this host.
  async resolveImage(): Promise<ImageFacts> {
    return HOST_IMAGE;
  }

  describe(spec: SandboxSpec): unknown {
    const limits = resourceLimits(spec.limits, this.#perProcess);
    const forks = this.#forks ?? ASSUMED_TOOLS;
    return {
      program: 'bwrap',
      arguments: bubblewrapArguments(spec, { view: readHostView(), limits, forks }),
      limits,
      limitsHeldBy: this.#perProcess ? 'each process' : 'a control group',
    };
  }

  async prepare(spec: SandboxSpec, signal: AbortSignal): Promise<WaitingSandbox> {
    refuseUnsupported(spec, { uid: process.getuid?.() ?? -1, gid: process.getgid?.() ?? -1 });
    const ground = await this.#whenReady();
    if (ground.delegation === null && !this.#options.acceptProcessLimits)
      throw new AcodeError('ACODE-SBX-012', {
        required: 'bubblewrap with limits on the whole command',
        available: `bubblewrap without them (${LIMITS_MISSING})`,
        remedy: LIMITS_REMEDY,
      });
    signal.throwIfAborted();
    const { egress, keep } = this.#options;
    try {
      return await this.#make(await egress.planned(spec), ground, signal, this.#forks);
    } catch (error) {
      keep(egress.release(spec));
      throw error;
    }
  }

  async forkWay(directory: string, signal: AbortSignal): Promise<ForkWay> {
    const ground = await this.#whenReady();
    const memory = { directory: this.#options.memory, uid: process.getuid?.() ?? -1 };
    const word = await circumstances(ground.program, { ...ground, forks: directory });
    this.#forks ??= rememberedTools(memory, word);
    if (this.#forks) return { way: this.#forks.way };
    const make = (spec: SandboxSpec, tools: ForkTools, soon: AbortSignal): Promise<WaitingSandbox> =>
      this.#make(spec, ground, soon, tools);
    const found = await findForkTools(make, { directory, whyUnsafe }, signal);
    if ('reason' in found) return { impossible: found.reason, remedy: FORKS_REMEDY };
    this.#forks = found.tools;
    rememberTools(memory, word, found.tools);
    return { way: found.tools.way };
  }

  weakened(weakenings: readonly Weakening[], beforeCreate = NONE.beforeCreate): WeakenedBackend {
    assertPossible(weakenings);
    return new BubblewrapBackend({ ...this.#options, weakness: { weakenings, beforeCreate } });
  }

  // Sandboxes share nothing here, and each takes its own with it.
  async release(): Promise<readonly never[]> {
    return [];
  }

  close(): void {}

  async [Symbol.asyncDispose](): Promise<void> {}

  async #make(
    spec: SandboxSpec,
    ground: HostSupport,
    signal: AbortSignal,
    forks: ForkTools | null = null,
  ): Promise<WaitingSandbox> {
    const { weakenings, beforeCreate } = this.#weakness;
    const own = weakenedSpec(spec, weakenings);
    const view = readHostView();
    const limits = resourceLimits(ownLimits(own), ground.delegation === null);
    if (forks) assertForks(forks, own);
    await beforeCreate();
    const group = ground.delegation && (await ControlGroup.make(ground.delegation, ownLimits(own)));
    try {
      const words = bubblewrapArguments(own, { view, limits, forks, ...weakenedGround(weakenings) });
      const before = [...enterCommand(own), ...(forks ? beforeBubblewrap(forks, own) : [])];
      const filter = { diskLimited: spec.disk !== undefined };
      const seccomp = weakenings.includes('seccomp') ? openProgram() : seccompProgram(ground.architecture, filter);
      const started = await startBubblewrap({ spec, program: ground.program, words, before, seccomp, group }, signal);
      const expected = {
        spec,
        view,
        limits: resourceLimits(ownLimits(spec), ground.delegation === null),
        group,
        forks,
      };
      const verified = !weakenings.includes('verification');
      return this.#waiting(started, spec, group, verified ? () => inspectStarted(started, expected) : null);
    } catch (error) {
      if (group) this.#options.keep(group.remove());
      throw error;
    }
  }

  #waiting(
    started: Started,
    spec: SandboxSpec,
    group: ControlGroup | null,
    verify: (() => Promise<void>) | null,
  ): WaitingSandbox {
    const processes = new BubblewrapProcesses(started, group);
    // Bubblewrap’s own tie to its parent can be cut from inside, by a command that reaches into the first process.
    const guard = Guard.start({ target: started.first.pid, controlGroups: group?.paths ?? [] });
    const remove = async (): Promise<void> => {
      processes.signal('SIGKILL');
      await processes.gone();
      started.child.release();
      await group?.remove();
      guard.dismiss();
      await this.#options.egress.release(spec);
    };
    const first = spec.network.kind === 'allow' ? { first: FORWARDER_COMMAND } : {};
    if (!verify) return new WaitingProcesses({ spec, processes, ...first, verify: async () => {}, remove });
    return new WaitingProcesses({ spec, processes, ...first, verify, remove, inside: started.shell });
  }

  // What is found once stays: a host does not lose bubblewrap in the middle of a session. What fails is tried again.
  #whenReady(): Promise<HostSupport> {
    this.#ground ??= this.#lookAround().catch((error: unknown) => {
      this.#ground = null;
      throw error;
    });
    return this.#ground;
  }

  async #lookAround(): Promise<HostSupport> {
    const found = process.platform === 'linux' ? await findBubblewrap() : { reason: 'it exists on Linux only' };
    if ('reason' in found) throw unavailable(found.reason);
    const architecture = architectureOf(machine());
    if (!architecture) throw unavailable(`there is no system call filter for ${machine()}`);
    const delegation = await findDelegation();
    const usable = delegation && (await mayJoin(delegation)) ? delegation : null;
    if (usable) this.#options.keep(sweepControlGroups(usable));
    this.#perProcess = usable === null;
    return { program: found.path, architecture, delegation: usable };
  }

  async #whyNot(signal: AbortSignal): Promise<Pick<Capability, 'reason' | 'remedy'> | null> {
    try {
      const ground = await this.#whenReady();
      const refused = await this.#tried(ground, signal);
      if (refused !== null) return { reason: refused };
      if (ground.delegation || this.#options.acceptProcessLimits) return null;
      return { reason: LIMITS_MISSING, remedy: LIMITS_REMEDY };
    } catch (error) {
      if (signal.aborted || !(error instanceof AcodeError && error.is('ACODE-SBX-012'))) throw error;
      return { reason: rendered(error.context.available) };
    }
  }

  async #tried(ground: HostSupport, signal: AbortSignal): Promise<string | null> {
    const { memory: directory, clock } = this.#options;
    const memory = { directory, uid: process.getuid?.() ?? -1, clock };
    const word = await circumstances(ground.program, ground);
    if (this.#weakness === NONE && heldLately(memory, word)) return null;
    const refused = await probeSandbox((spec, soon) => this.#make(spec, ground, soon), signal);
    if (refused !== null) return (await whyTooOld(ground.program)) ?? refused;
    if (this.#weakness === NONE) rememberHeld(memory, word);
    return null;
  }
}

function unavailable(reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-012', { required: 'bubblewrap', available: reason, remedy: reason });
}

// What this level cannot give: refused, never left out in silence.

const LEVEL = 'at level bubblewrap';

/** Refuses a plan that asks for more than the level has. */
function refuseUnsupported(spec: SandboxSpec, caller: UserId): void {
  if (spec.network.kind !== 'none' && spec.network.kind !== 'allow') {
    const name = networkName(spec.network);
    throw refusal(`The network ${name} ${LEVEL}`, 'Leave the network out, or use level docker.');
  }
  if (spec.ports.length > 0) throw refusal(`A published port ${LEVEL}`, 'Leave the ports out, or use level docker.');
  if (spec.runtime !== null)
    throw refusal(`The runtime ${spec.runtime} ${LEVEL}`, 'Leave the runtime out, or use level docker.');
  if (spec.user.uid !== caller.uid || spec.user.gid !== caller.gid)
    throw refusal(
      `Another user than the caller (${spec.user.uid}:${spec.user.gid}) ${LEVEL}`,
      `Leave the user out: the command runs as you, ${caller.uid}:${caller.gid}.`,
    );
}

function refusal(what: string, instead: string): AcodeError {
  return new AcodeError('ACODE-SBX-016', { what, instead });
}

// Finds bubblewrap: at fixed places only, and only a program that nobody but root can have put there.

/** Bubblewrap on this host, or why there is none to use. */
type Found = { readonly path: string } | { readonly reason: string };

// Never by PATH: a directory of a workspace could stand in it.
const PLACES = ['/usr/bin/bwrap', '/usr/local/bin/bwrap', '/bin/bwrap'];

// The first that can keep a sandbox from making user namespaces of its own, and that limits its file systems in memory.
const OLDEST = [0, 8];
const ASK_MS = 2000;
const WRITABLE_BY_OTHERS = 0o022;

const INSTALL =
  'install it from your system’s packages (`apt install bubblewrap`, `dnf install bubblewrap`, `apk add bubblewrap`)';

/** Looks for bubblewrap. */
export async function findBubblewrap(places: readonly string[] = PLACES): Promise<Found> {
  for (const place of places) {
    const path = await realpath(place).catch(() => null);
    if (path === null) continue;
    const unsafe = await whyUnsafe(path);
    return unsafe === null ? { path } : { reason: unsafe };
  }
  return { reason: `bubblewrap is not installed (${places.join(', ')}); ${INSTALL}` };
}

/**
 * Why one that cannot make a sandbox never could: its version; null where that is no reason. Only asked then, since one that is
 * too old does not know what it is told, and so makes none.
 */
export async function whyTooOld(path: string): Promise<string | null> {
  const version = await versionOf(path);
  if (version === null) return `${path} does not say its version; ${INSTALL}`;
  if (isNewEnough(version)) return null;
  return `${path} is version ${version}, and at least ${OLDEST.join('.')} is needed; ${INSTALL}`;
}

// Whoever can exchange the program, or a directory that leads to it, decides what every sandbox is.
async function whyUnsafe(path: string): Promise<string | null> {
  for (let place = path; ; place = dirname(place)) {
    const { uid, mode } = await (place === path ? stat(place) : lstat(place));
    if (uid !== 0) return `${place} belongs to user ${uid} and not to root, so it is not trusted`;
    if ((mode & WRITABLE_BY_OTHERS) !== 0) return `${place} can be written by others than root, so it is not trusted`;
    if (place === '/') return null;
  }
}

/** Whether a version is one that can be used. */
export function isNewEnough(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [oldMajor = 0, oldMinor = 0] = OLDEST;
  return major > oldMajor || (major === oldMajor && minor >= oldMinor);
}

function versionOf(path: string): Promise<string | null> {
  return new Promise(resolve => {
    execFile(path, ['--version'], { env: {}, cwd: '/', timeout: ASK_MS }, (error, stdout) => {
      const match = /^bubblewrap (\d+\.\d+(?:\.\d+)?)/.exec(stdout);
      resolve(error ? null : (match?.[1] ?? null));
    });
  });
}

// That a sandbox was made and held, remembered for a few minutes: trying one takes longer than most of a status, and every
// sandbox that is used is looked at before its command anyway. Failures are never remembered.

const FILE = 'bubblewrap-held';
const MINUTES_MS = 10 * 60_000;
const BOOT = '/proc/sys/kernel/random/boot_id';
const NAMESPACES = ['user', 'mnt', 'pid', 'net'];
const OWN = /^(?:Uid|Gid|Groups|CapBnd|NoNewPrivs|Seccomp(?:_filters)?):/;

/** Where it is remembered, and for whom. */
interface Memory {
  /** The user’s own directory, which may not be there. */
  readonly directory: string;
  readonly uid: number;
  readonly clock: Clock;
}

/**
 * What the outcome depends on, as one word: the program, the kernel and its settings, what this process itself may do and
 * sees, and what the caller knows besides.
 */
export async function circumstances(program: string, others: unknown): Promise<string> {
  const { ino, size, mtimeMs, mode, uid } = await stat(program);
  const [status, ...settings] = await Promise.all(
    ['/proc/self/status', BOOT, ...DECIDING_FILES].map(file => readFile(file, 'utf8').catch(() => '')),
  );
  const spaces = await Promise.all(NAMESPACES.map(name => readlink(`/proc/self/ns/${name}`).catch(() => null)));
  const own = status?.split('\n').filter(line => OWN.test(line));
  const all = [program, ino, size, mtimeMs, mode, uid, release(), settings, spaces, own, others];
  return createHash('sha256').update(JSON.stringify(all)).digest('hex');
}

/** Whether a sandbox held under the same circumstances a moment ago. */
export function heldLately({ directory, uid, clock }: Memory, word: string): boolean {
  const file = readPrivateFile(join(directory, FILE), { maxBytes: word.length, uid });
  // Kernels tell the time of a file more exactly than clocks of programs do, which would be the future.
  const age = file ? clock.now() - Math.floor(file.mtimeMs) : -1;
  return age >= 0 && age <= MINUTES_MS && file?.text === word;
}

/** Remembers that it held. Where there is no directory yet, nothing is remembered. */
export function rememberHeld({ directory }: Memory, word: string): void {
  try {
    writePrivateFile(join(directory, FILE), word, { durable: false });
  } catch {
    // It is tried again next time.
  }
}

// Which way forks are mounted, remembered as long as nothing it depends on changes, a boot at the most: every fork is compared with
// the kernel’s table before its command anyway.

const FORKS_FILE = 'bubblewrap-forks';
const MAX_TOOLS_BYTES = 4096;
const toolsSchema = z.strictObject({
  word: z.string(),
  tools: z.discriminatedUnion('way', [
    z.strictObject({ way: z.literal('bubblewrap') }),
    z.strictObject({ way: z.literal('unshare'), unshare: z.string(), mount: z.string() }),
  ]),
});

function rememberedTools({ directory, uid }: Omit<Memory, 'clock'>, word: string): ForkTools | null {
  const file = readPrivateFile(join(directory, FORKS_FILE), { maxBytes: MAX_TOOLS_BYTES, uid });
  if (!file) return null;
  try {
    const remembered = toolsSchema.parse(JSON.parse(file.text));
    return remembered.word === word ? remembered.tools : null;
  } catch {
    return null;
  }
}

function rememberTools({ directory }: Pick<Memory, 'directory'>, word: string, tools: ForkTools): void {
  try {
    writePrivateFile(join(directory, FORKS_FILE), JSON.stringify({ word, tools }), { durable: false });
  } catch {
    // It is tried again next time.
  }
}

// Takes one protection away from a sandbox, so that a probe can be seen to work where the protection is missing. Pure.
//
// Only the doctor’s controls come here. No policy, request or configuration can name a weakening, and everything else of the
// sandbox stays as it is.

const MEBIBYTE = 1024 ** 2;

// What is raised stays bounded: a control must not be able to hurt the host it runs on.
const LOOSE = {
  pids: 512,
  memoryBytes: 512 * MEBIBYTE,
  tmpBytes: 64 * MEBIBYTE,
  sharedBytes: 160 * MEBIBYTE,
  openFiles: 1024,
} as const;

/** Refuses weakenings that this level cannot make: without them a control would prove nothing. */
export function assertPossible(weakenings: readonly Weakening[]): void {
  if (!weakenings.includes('no-new-privileges')) return;
  throw new AcodeError('ACODE-SBX-016', {
    what: 'A bubblewrap sandbox whose programs may gain privileges',
    instead: 'Nothing: bubblewrap itself always forbids it, so there is no control to be made.',
  });
}

/** The plan without the protections that stand in a plan. */
export function weakenedSpec(spec: SandboxSpec, weakenings: readonly Weakening[]): SandboxSpec {
  const without = (weakening: Weakening): boolean => weakenings.includes(weakening);
  const { limits } = spec;
  return {
    ...spec,
    mounts: spec.mounts.filter(
      ({ purpose }) =>
        !(without('protected-paths') && purpose === 'protected') && !(without('masks') && purpose === 'masked'),
    ),
    tmpfs: without('tmpfs-size') ? spec.tmpfs.map(tmpfs => ({ ...tmpfs, bytes: LOOSE.tmpBytes })) : spec.tmpfs,
    limits: {
      ...limits,
      pids: without('pids') ? LOOSE.pids : limits.pids,
      memoryBytes: without('memory') ? LOOSE.memoryBytes : limits.memoryBytes,
      swapBytes: without('memory') ? 0 : limits.swapBytes,
      openFiles: without('open-files') ? LOOSE.openFiles : limits.openFiles,
    },
  };
}

/** What else is different in a sandbox that lacks something. */
export function weakenedGround(
  weakenings: readonly Weakening[],
): Pick<HostFacts, 'variables' | 'hostNetwork' | 'writableRoot' | 'sharedBytes'> {
  return {
    ...(weakenings.includes('environment') ? { variables: LEAKED_VARIABLES } : {}),
    ...(weakenings.includes('tmpfs-size') ? { sharedBytes: LOOSE.sharedBytes } : {}),
    hostNetwork: weakenings.includes('network'),
    writableRoot: weakenings.includes('read-only-root'),
  };
}
