// A container that was started and waits: verified, then given its one command, or removed unused.

import { readdirSync, readFileSync } from 'node:fs';
import { Duplex } from 'node:stream';
import { AcodeError } from '../../../contract/errors.ts';
import type { Clock } from '../../../contract/ports.ts';
import type { PublishedPort } from '../../../contract/result.ts';
import type { RestPeriod } from '../../../contract/scan.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { rendered, text } from '../../../contract/wording.ts';
import { clockOffsetMs, setBackMs } from '../../../workspace/directory-look.ts';
import type { CommandIo, Execution, Keeping, OpenSandbox, WaitingSandbox } from '../../backend.ts';
import { FORWARDER_COMMAND, FRAMES_COMMAND } from '../../egress.ts';
import { type Handover, handoverLine, STAYING_LINE } from '../../handover/script.ts';
import { type Held, protection, sameness, identify, type ProcessIdentity } from '../../process/held.ts';
import type { Engine } from '../engine/index.ts';
import { demultiplex, type HijackedStream } from '../engine/streams.ts';
import { asked } from '../failure.ts';
import { podmanVariables } from '../podman/podman.ts';
import type { AttachedFacts } from '../resources/owned.ts';
import {
  type Created,
  type Creation,
  publishedPorts,
  type RequestBuilder,
  startFailure,
} from '../resources/creation.ts';
import { runtimeKind, type RuntimeKind } from '../runtime.ts';
import {
  assertNotNested,
  type Expected,
  inspectCreated,
  inspectRunning,
  inspectStarted,
} from '../verify/inspection.ts';
import { ContainerExecution, type StartedContainer } from './execution.ts';
import { OpenContainer } from './open.ts';
import { processIds } from '../../../lifecycle/processes.ts';

// How many shells wait in one that stays: the next command has one, and whoever has to end a command too.
const READY = 2;

/** A container that waits for its command. */
export class WaitingContainer implements WaitingSandbox {
  readonly id: string;
  readonly specHash: string;
  readonly keeping: Keeping;
  readonly openForwarder?: (signal: AbortSignal) => Promise<Duplex>;
  readonly #spec: SandboxSpec;
  readonly #facts: AttachedFacts;
  readonly #container: StartedContainer;
  readonly #creation: Pick<Creation, 'mountConflicts' | 'remove'>;
  #used = false;
  #ports: readonly PublishedPort[] = [];
  /** Throws where what it has mounted is not what was verified; null before it was. */
  #same: (() => void) | null = null;
  #held: Held | null = null;
  /** What it ends with; null where that cannot be seen from here. */
  #lives: readonly ProcessIdentity[] | null = null;
  #isLost = false;
  /** Null where the kernel of this host does not show what runs in it. */
  #rest: RestWatch | null = null;

  constructor(
    spec: SandboxSpec,
    facts: AttachedFacts,
    container: StartedContainer,
    creation: Pick<Creation, 'mountConflicts' | 'remove'>,
  ) {
    this.id = container.id;
    this.specHash = spec.hash;
    this.#spec = spec;
    this.#facts = facts;
    this.#container = container;
    this.#creation = creation;
    // Under a kernel of its own, a sandbox reaches no socket of this machine.
    if (this.#isAllowed && !this.#kind.hostKernel)
      this.openForwarder = signal => forwarderStreams(container, spec, signal);
    // An engine that is started anew forgets who waited for an exit, and who was attached.
    const lost = Promise.race([container.exit, container.stream.closed]).finally(() => (this.#isLost = true));
    lost.catch(() => undefined);
    this.keeping = { lost, recheck: signal => this.#recheck(signal), rest: () => this.#rest?.period() ?? null };
  }

  get ports(): readonly PublishedPort[] {
    return this.#ports;
  }

  async verify(signal: AbortSignal): Promise<void> {
    const { engine } = this.#container;
    const { mountConflicts: around } = this.#creation;
    const expected = { spec: this.#spec, facts: this.#facts, around };
    const { details, held } = await inspectRunning(engine, this.id, expected, signal);
    const { State: state } = details;
    if (state.Running) {
      this.#ports = publishedPorts(this.#spec, details);
      this.#look(state.Pid, held);
      return;
    }
    const reason = state.Error ? state.Error : `its first process ended at once with status ${state.ExitCode}`;
    throw new AcodeError('ACODE-SBX-006', { name: this.#spec.identity.name, reason });
  }

  async execute(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<Execution> {
    if (this.#used) throw new AcodeError('ACODE-SBX-019', { operation: 'execute' });
    this.#used = true;
    this.#rest?.stop();
    signal.throwIfAborted();
    await this.#accompany(signal);
    // The last look, with nothing between it and the command: what lies before it took its time.
    if (!this.#isLost) this.#same?.();
    const unset = this.#unset;
    const { network } = this.#facts;
    const counted = { group: this.#kind.hostKernel, traffic: network !== 'none' };
    const first = this.#isAllowed && !this.openForwarder ? { first: FORWARDER_COMMAND } : {};
    const line = handoverLine({ ...handover, ...first, unset, counted });
    const given = { nonce: handover.nonce, line, network };
    const same = this.#same && protection(this.#spec, this.#held);
    const seen = { ...(this.#lives && { lives: this.#lives }), ...(same && { same }) };
    return new ContainerExecution({ ...this.#container, ...seen }, given, io, signal);
  }

  // Its first process goes on waiting for a line that never comes: at the end of its input, which is what a dead client
  // leaves, it ends, and everything inside with it. Only what outlives its maker is told to stay.
  async keepOpen({ outlives }: { readonly outlives: boolean }, signal: AbortSignal): Promise<OpenSandbox> {
    if (this.#used) throw new AcodeError('ACODE-SBX-019', { operation: 'keepOpen' });
    this.#used = true;
    this.#rest?.stop();
    signal.throwIfAborted();
    await this.#accompany(signal);
    const { id, engine, clock, exit, oomWatch, stream } = this.#container;
    if (outlives) await stream.write(STAYING_LINE);
    if (this.#isAllowed && !this.openForwarder) await startForwarder(this.#container, this.#spec, signal);
    return new OpenContainer({
      id,
      spec: this.#spec,
      engine,
      clock,
      ports: this.#ports,
      exit,
      oomWatch,
      ready: READY,
      network: this.#facts.network,
      unset: this.#unset,
      same: this.#same ?? sameness(this.#spec, this.#held),
      hostKernel: this.#kind.hostKernel,
      remove: () => this[Symbol.asyncDispose](),
    });
  }

  // Services take their time to start: someone could meanwhile have exchanged what is mounted.
  async #accompany(signal: AbortSignal): Promise<void> {
    if (!this.#spec.services) return;
    await this.#facts.attachments.accompany(this.#spec, this.id, signal);
    if (this.#held) await assertNotNested(this.id, this.#spec, this.#creation.mountConflicts, signal);
    else await this.verify(signal);
  }

  get #unset(): readonly string[] {
    return this.#facts.podman ? podmanVariables(this.#spec) : [];
  }

  get #isAllowed(): boolean {
    return this.#spec.network.kind === 'allow';
  }

  get #kind(): RuntimeKind {
    return runtimeKind(this.#facts.runtime);
  }

  // Under a kernel of its own the host’s sees the runtime’s processes, and nothing of the sandbox.
  #look(pid: number, held: Held | null): void {
    const { processes } = this.#kind;
    this.#held = held;
    this.#same = sameness(this.#spec, held);
    if (this.#held) this.#lives = [this.#held.process];
    if (this.#held) this.#rest ??= new RestWatch(this.#held.process.pid, this.#container.clock);
    else if (processes) this.#lives ??= runtimeProcesses(pid, this.id, processes);
  }

  // Where the kernel shows nothing of it, everything is asked of the engine again.
  async #recheck(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#isLost || this.#used)
      throw new AcodeError('ACODE-SBX-006', { name: this.#spec.identity.name, reason: 'it ended while it waited' });
    if (!this.#held) return this.verify(signal);
    await assertNotNested(this.id, this.#spec, this.#creation.mountConflicts, signal);
    this.#same?.();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#used = true;
    this.#rest?.stop();
    this.#container.stream.destroy();
    this.#container.oomWatch.forget(this.id);
    await this.#creation.remove(this.#spec, this.id);
    this.#facts.attachments.release(this.#spec);
  }
}

const CALL_MS = 10_000;
// Longer than the forwarder takes to give up by itself.
const START_MS = 15_000;

// The forwarder as a further process, by its standard streams. As the user of the sandbox: an engine would take root otherwise.
async function forwarderStreams(
  { engine, id }: StartedContainer,
  { user }: SandboxSpec,
  signal: AbortSignal,
): Promise<Duplex> {
  const process = { argv: FRAMES_COMMAND, user: `${user.uid}:${user.gid}`, stdin: true };
  const execId = await asked(() => engine.exec.create(id, process, { signal, deadlineMs: CALL_MS }), signal);
  const stream = await asked(() => engine.exec.start(execId, { signal, deadlineMs: CALL_MS }), signal);
  return new ForwarderPipe(stream);
}

// Nothing is handed over to a sandbox that stays open, so the engine starts its forwarder; it goes on in the background.
async function startForwarder(
  { engine, id }: StartedContainer,
  { user, identity }: SandboxSpec,
  signal: AbortSignal,
): Promise<void> {
  const soon = AbortSignal.any([signal, AbortSignal.timeout(START_MS)]);
  const options = { signal: soon, deadlineMs: CALL_MS };
  const process = { argv: FORWARDER_COMMAND, user: `${user.uid}:${user.gid}` };
  const exitCode = await asked(async () => {
    const execId = await engine.exec.create(id, process, options);
    const ignored = (): void => undefined;
    await demultiplex(await engine.exec.start(execId, options), { stdout: ignored, stderr: ignored });
    return (await engine.exec.inspect(execId, options)).exitCode;
  }, signal);
  if (exitCode === 0) return;
  throw new AcodeError('ACODE-SBX-006', {
    name: identity.name,
    reason: 'the forwarder of its allow-list did not start',
  });
}

/** The standard streams of a forwarder. What it says on standard error is a reason that its end tells too. */
class ForwarderPipe extends Duplex {
  readonly #stream: HijackedStream;
  #wanted: () => void = () => undefined;

  constructor(stream: HijackedStream) {
    super();
    this.#stream = stream;
    void this.#receive();
  }

  override _read(): void {
    this.#wanted();
  }

  override _write(chunk: Buffer, _: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#stream.write(chunk).then(done.bind(null, null), done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#stream.destroy();
    this.#wanted();
    done(error);
  }

  async #receive(): Promise<void> {
    const stdout = async (data: Buffer): Promise<void> => {
      if (!this.push(data)) await new Promise<void>(resolve => (this.#wanted = resolve));
    };
    try {
      await demultiplex(this.#stream, { stdout, stderr: () => undefined });
      this.push(null);
    } catch {
      this.destroy();
    }
  }
}

// Whether anything in a warm sandbox has run since it began to wait, as the kernel counts it.
//
// The shell that waits is the image’s own, so what changes in the workspace meanwhile may be its work. It may also be the user’s,
// and mostly is. A process that was asleep at two moments and was not switched in between has not run in between.

const GROUPS = '/sys/fs/cgroup';
// A shell has begun to wait soon after its container was verified; where the machine is busy, later.
const LOOKS_AFTER_MS = [100, 400, 1000, 3000, 10_000];
const COUNTED = /^State:\s+S|^Threads:\s+1$|^(?:non)?voluntary_ctxt_switches:\s+\d+$/;
const START_TIME = 19;

interface Reading {
  readonly processes: string;
  readonly beganMs: number;
  readonly endedMs: number;
  readonly clockOffset: number;
}

/** Watches a sandbox that waits. `init` is its first process: the engine’s own, which wakes up every second and does nothing. */
class RestWatch {
  readonly #init: number;
  readonly #clock: Clock;
  #first: Reading | null = null;
  #cancel: () => void = () => undefined;

  constructor(init: number, clock: Clock) {
    this.#init = init;
    this.#clock = clock;
    this.#lookLater(0);
  }

  /** The time up to now in which nothing has run in it; null where something has, or it cannot be seen from here. */
  period(): RestPeriod | null {
    const first = this.#first;
    const now = first && read(this.#init);
    if (!now || now.processes !== first.processes) return null;
    // Where the clock was set back, times of files say nothing about which came first.
    if (setBackMs(first.clockOffset, now.clockOffset, now.beganMs - first.endedMs) > 0) return null;
    return { fromMs: first.endedMs, toMs: now.beganMs };
  }

  stop(): void {
    this.#cancel();
  }

  #lookLater(at: number): void {
    const ms = LOOKS_AFTER_MS[at];
    if (ms === undefined) return;
    this.#cancel = this.#clock.after(ms, () => {
      const now = read(this.#init);
      if (now?.processes !== this.#first?.processes) this.#first = now;
      this.#lookLater(at + 1);
    });
  }
}

// Null where a process is awake, or not all can be seen.
function read(init: number): Reading | null {
  try {
    const beganMs = Date.now();
    const clockOffset = clockOffsetMs();
    const group = groupOf(init);
    const pids = group && pidsIn(group, init);
    if (!pids || pids.length === 0) return null;
    const processes = pids.map(switchesOf);
    // One that was started meanwhile is in the second list, or has ended.
    if (processes.includes(null) || pidsIn(group, init)?.join() !== pids.join()) return null;
    return { processes: processes.join('\n'), beganMs, endedMs: Date.now(), clockOffset };
  } catch {
    return null;
  }
}

// The directory of a control group: one that holds the process, since this process may see another part of the hierarchy.
function groupOf(pid: number): string | null {
  const lines = readFileSync(`/proc/${pid}/cgroup`, 'utf8').trim().split('\n');
  const places = lines.flatMap(line => {
    const [, controllers = '', path = ''] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
    if (path === '' || path === '/') return [];
    return controllers === '' ? [`${GROUPS}${path}`] : [`${GROUPS}/${controllers}${path}`];
  });
  return places.find(place => listed(place)?.includes(pid)) ?? null;
}

// Every process but the first; null where there is a group below, whose processes would not be listed.
function pidsIn(group: string, init: number): readonly number[] | null {
  if (readdirSync(group, { withFileTypes: true }).some(entry => entry.isDirectory())) return null;
  return listed(group)?.filter(pid => pid !== init) ?? null;
}

function listed(group: string): readonly number[] | null {
  try {
    return readFileSync(`${group}/cgroup.procs`, 'utf8')
      .split('\n')
      .filter(line => line !== '')
      .map(Number)
      .sort((one, other) => one - other);
  } catch {
    return null;
  }
}

// Who a process is and how often it was switched; null where it is awake, or has threads that are counted by themselves.
function switchesOf(pid: number): string | null {
  const lines = readFileSync(`/proc/${pid}/status`, 'utf8')
    .split('\n')
    .filter(line => COUNTED.test(line));
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const started = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[START_TIME];
  return lines.length === 4 && started !== undefined ? [pid, started, ...lines].join(' ') : null;
}

// The processes of a runtime that has a kernel of its own: the sandbox lives as long as they do.

// A runtime starts its processes one after another; who looks further asks thousands for nothing.
const NEAR = 64;

/**
 * The processes of one sandbox: the one that the engine names, and those beside it that name the container. Null where not
 * every name is there exactly once, so that nothing follows from their end.
 */
function runtimeProcesses(
  pid: number,
  containerId: string,
  names: readonly string[],
): readonly ProcessIdentity[] | null {
  if (!names.includes(nameOf(pid, containerId) ?? '')) return null;
  // Listed rather than tried: a thread can be asked for by its number like a process, and is none.
  const around = processIds().filter(other => Math.abs(other - pid) <= NEAR);
  const found = names.map(name => around.filter(near => nameOf(near, containerId) === name));
  const lives = found.flatMap(([only, ...more]) => (only === undefined || more.length > 0 ? [] : [identify(only)]));
  const living = lives.filter(process => process !== null);
  return living.length === names.length ? living : null;
}

// What a process calls itself, where it was started for this container.
function nameOf(pid: number, containerId: string): string | null {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
    return words.some(word => word.includes(containerId)) ? (words[0] ?? null) : null;
  } catch {
    return null;
  }
}

// A sandbox of an image without a shell: nothing can wait in it, so its container is made for the one command it gets.
//
// It is compared with its plan before it starts, by the engine’s account alone; the kernel’s comes only with a process, and
// then the command has begun. That is why no mount source may lie below anything another sandbox can write.

const BEGUN =
  'The image has no shell, so the command had begun when that was seen. Run it again when no other sandbox can write there.';

/** What a direct start needs. */
interface DirectParts {
  readonly spec: SandboxSpec;
  readonly facts: AttachedFacts;
  readonly engine: Engine;
  readonly creation: Creation;
  readonly buildRequest: RequestBuilder;
  /** Gives the user inside what is theirs in the container that was made. */
  readonly own: (created: Created, signal: AbortSignal) => Promise<void>;
  /** Called when it is gone, or will never be made. */
  readonly over: () => void;
}

/** A sandbox whose container is made when its command is known. */
export class DirectContainer implements WaitingSandbox {
  readonly specHash: string;
  readonly #parts: DirectParts;
  #created: Created | null = null;
  #used = false;
  #ports: readonly PublishedPort[] = [];

  constructor(parts: DirectParts) {
    this.specHash = parts.spec.hash;
    this.#parts = parts;
  }

  get id(): string {
    return this.#created?.id ?? '';
  }

  get ports(): readonly PublishedPort[] {
    return this.#ports;
  }

  // There is nothing to look at yet: `execute` compares what it makes before it starts it.
  async verify(): Promise<void> {}

  async execute(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<Execution> {
    if (this.#used) throw new AcodeError('ACODE-SBX-019', { operation: 'execute' });
    this.#used = true;
    const argv = directCommand(this.#parts.spec, handover);
    const { engine, creation, buildRequest, facts } = this.#parts;
    const build: RequestBuilder = own => ({ ...buildRequest(own), Entrypoint: argv });
    this.#created = await creation.create(this.#parts.spec, build, signal);
    const { id, spec } = this.#created;
    try {
      await this.#parts.own(this.#created, signal);
      const expected = { spec, facts, around: creation.mountConflicts, argv };
      await inspectCreated(engine, id, expected, signal);
      const exit = await creation.watch(id, signal);
      const container = await creation.start(spec, id, exit, signal);
      let held: Held | null = null;
      const checked = this.#compare(container, expected, signal).then(found => (held = found));
      const same = (): void => protection(spec, held)();
      const given = { nonce: handover.nonce, line: null, network: facts.network };
      const execution = new ContainerExecution({ ...container, same, checked }, given, io, signal);
      // Why it cannot be used is said by its ending.
      if (spec.ports.length > 0) await checked.catch(() => undefined);
      return execution;
    } catch (error) {
      throw startFailure(spec, error, signal);
    }
  }

  // The command has begun: what is found is its end, and no refusal of it.
  async #compare({ id, engine }: StartedContainer, expected: Expected, signal: AbortSignal): Promise<Held | null> {
    try {
      const { details, held } = await inspectStarted(engine, id, expected, signal);
      this.#ports = publishedPorts(expected.spec, details);
      return held;
    } catch (error) {
      if (!(error instanceof AcodeError && error.is('ACODE-SBX-010'))) throw error;
      const { sandboxId: sandbox } = expected.spec.identity;
      const reason = rendered(error.context.detail);
      throw new AcodeError('ACODE-SBX-025', { sandbox, reason, remedy: BEGUN }, { cause: error });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#used = true;
    if (this.#created) {
      this.#parts.creation.oomWatch.forget(this.#created.id);
      await this.#parts.creation.remove(this.#created.spec, this.#created.id);
    }
    this.#parts.over();
  }
}

function directCommand(spec: SandboxSpec, { command, env, cwd }: Handover): readonly string[] {
  const image = spec.image.reference;
  if (typeof command === 'string')
    throw new AcodeError('ACODE-SBX-015', { command: '/bin/sh', image, reason: 'not found' });
  // The runtime would follow links of the workspace to it before anything is verified, and make what is missing, as root.
  if (cwd !== spec.workdir) {
    throw new AcodeError('ACODE-SBX-016', {
      what: `A working directory for ${image}, which has no shell to change to it,`,
      instead: text`Leave ${{ field: 'cwd' }} out, or use an image with /bin/sh.`,
    });
  }
  if (Object.keys(env).length > 0) {
    throw new AcodeError('ACODE-SBX-016', {
      what: `An environment for ${image}, which has no shell to hand it to,`,
      instead:
        'Leave env out, or use an image with /bin/sh: variables given any other way could be read by everyone who may ask the engine.',
    });
  }
  return command;
}
