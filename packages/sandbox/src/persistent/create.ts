// Creation of a persistent sandbox: the pipeline of a run up to the hand-over, after which the sandbox persists.

import type { Scanned } from '../records/audit/files.ts';
import type { AuditHead, AuditProvision } from '../contract/audit.ts';
import type { RunRequest } from '../contract/command.ts';
import { AcodeError } from '../contract/errors.ts';
import type { Forks } from '../contract/forks.ts';
import { usesEngine } from '../contract/levels.ts';
import { policyFrom } from '../contract/policy.ts';
import type { ScanState } from '../contract/result.ts';
import type { CreateRequest } from '../contract/sandbox.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import { SandboxCommands, commandLimit } from './commands.ts';
import { filesOf } from './files/files.ts';
import { portsOf } from './ports.ts';
import type { Host, Planned } from '../run/host.ts';
import type { OpenSandbox } from '../isolation/backend.ts';
import { Kept } from '../lifecycle/kept.ts';
import { isOwn } from '../lifecycle/labels.ts';
import { LockTimeoutError, Locks } from '../lifecycle/lock.ts';
import { offerSocketPath } from '../lifecycle/ownership.ts';
import type { PreparedSandbox } from '../isolation/pool/pool-kind.ts';
import { abandonFork, endForkOf, releaseFork } from '../run/forking.ts';
import { obtainConnected } from '../run/egress.ts';
import type { RunEgress } from '../run/egress.ts';
import { givenUp, tornDown } from '../run/obtaining.ts';
import { admitted, checkCreateRequest, report } from '../run/run.ts';
import { createdMasks } from '../run/masking.ts';
import { plan } from '../run/planning.ts';
import { removeKeptVolumes } from '../run/removing.ts';
import { CommandsElsewhere } from './relay/elsewhere.ts';
import { releaseState } from '../run/state.ts';
import { recordFindings, recordOutcome, recordRisk, workspaceOf } from '../run/trail.ts';
import type { Recorded } from '../run/trail.ts';
import { Sandbox } from './sandbox.ts';
import { continueScan } from '../run/scanning.ts';
import { takeWarm } from '../run/warm.ts';
import { changesOfRun } from '../workspace/after-run.ts';

const DEFAULT_MS = 3600 * 1000;
// A day: what its labels say is a little more, so that a sandbox is always ended by its lease.
const MAX_MS = 24 * 3600 * 1000;
// As long as another process may take to create a sandbox of the same name, a pull apart.
const NAME_MS = 30_000;
const VOLUMES_MS = 10_000;

/** Creates a persistent sandbox. */
export async function createSandbox(host: Host, request: CreateRequest, forks: Opened['forks']): Promise<Sandbox> {
  const { expiresInMs: _, keep: __, shared: ___, name: ____, ...asked } = request;
  const run = { command: [], request: asked, as: 'create' as const };
  // A signal cancels the creation; a sandbox that exists ends by itself, or with its host.
  const admitting = { name: 'create', signal: request.signal, run, detached: true as const };
  return admitted(host, admitting, async admission => {
    const { operation, signal, release } = admission;
    const recorded = { ...run, host, operation };
    checkCreateRequest(request);
    await admission.takeSlot();
    const sandbox = await underName(host, request.name, signal, async () => {
      const wanted = await planFor(recorded, request, signal);
      try {
        refuse(wanted, request.keep ?? false);
        await admission.takeMemory(wanted, true);
        return await make({ recorded, request, wanted, release, forks }, signal);
      } catch (error) {
        await abandonFork(host, wanted.fork);
        releaseState(host, wanted.spec);
        throw error;
      }
    });
    operation.succeed({ sandboxId: sandbox.id });
    return sandbox;
  });
}

function askedOf({ request }: Recorded, keep: boolean): RunRequest {
  return keep ? withoutCaches(request) : request;
}

// Held until the sandbox exists, so that two processes cannot take the same name.
async function underName<Value>(
  host: Host,
  name: string | undefined,
  signal: AbortSignal,
  work: () => Promise<Value>,
): Promise<Value> {
  if (name === undefined) return work();
  const { uid, directories, telemetry } = host;
  const locks = new Locks({ directory: directories.runtime, uid, clock: telemetry.clock });
  try {
    return await locks.during(`name ${name}`, { deadlineMs: NAME_MS, signal }, async () => {
      const found = await (await host.engine()).list(signal);
      const taken = found.find(one => one.givenName === name && isOwn(one, uid));
      if (taken) throw nameTaken(name, taken.sandboxId);
      return work();
    });
  } catch (error) {
    throw error instanceof LockTimeoutError ? nameTaken(name, null) : error;
  }
}

function nameTaken(name: string, sandboxId: string | null): AcodeError {
  return new AcodeError('ACODE-SBX-017', {
    field: 'name',
    reason: sandboxId === null ? `${name} is being taken by another process` : `${name} is the name of another sandbox`,
    remedy: `Use that one, choose another name, or end it first: \`acode sandbox kill ${name}\`.`,
  });
}

async function planFor(
  recorded: Recorded,
  { keep = false, shared = false, name }: CreateRequest,
  signal: AbortSignal,
): Promise<Planned> {
  const { host, operation } = recorded;
  const given = name === undefined ? {} : { givenName: name };
  const label = shared && !keep ? ('shared' as const) : keep;
  const of = { correlationId: operation.correlationId, preview: false, keep: label, ...given };
  const request = askedOf(recorded, keep);
  return plan(host, { command: [], request }, of, signal);
}

interface Making extends Pick<Opened, 'recorded' | 'release' | 'forks'> {
  readonly request: CreateRequest;
  readonly wanted: Planned;
}

async function make({ recorded, request, wanted, release, forks }: Making, signal: AbortSignal): Promise<Sandbox> {
  const { host, operation } = recorded;
  const { keep, isReachable } = reachOf(request);
  const asked = askedOf(recorded, keep);
  // One that others can use says so in its labels, from the beginning.
  const askedAt = host.telemetry.clock.monotonic();
  const taken = isReachable || !host.pool ? null : await takeWarm(host.pool, wanted, asked, signal);
  const { planned, sinceMs } = asTaken(wanted, taken);
  report(operation, planned);
  const from = { taken, sinceMs, askedAt };
  const obtained = await obtainConnected(recorded, planned, from, signal);
  const { sandbox: waiting, intent, provision, egress } = obtained;
  try {
    if (!waiting.keepOpen) throw noShell(planned);
    const now = host.telemetry.clock.now();
    const times = timesFrom(now, request.expiresInMs);
    if (isReachable) await keepRecord(host, planned, asked, { ...times, keep });
    const open = await waiting.keepOpen({ outlives: keep }, signal);
    await releaseFork(host, planned.fork);
    const env = request.env ?? {};
    // From the beginning: the shell that waited is the image’s, and may have written before the first command.
    const parts = {
      recorded,
      planned,
      open,
      intent,
      provision,
      release,
      keep,
      isReachable,
      ...times,
      env,
      egress,
      forks,
    };
    return opened({ ...parts, lookedUntilMs: sinceMs });
  } catch (error) {
    host.keep(Promise.resolve(egress?.close()));
    if (isReachable) await new Kept(host).end(planned.spec.identity.sandboxId);
    throw await givenUp(waiting, { ...recorded, planned, signal, sinceMs }, error);
  }
}

function reachOf({ keep = false, shared = false }: CreateRequest): Pick<Opened, 'keep' | 'isReachable'> {
  return { keep, isReachable: keep || shared };
}

function asTaken(
  wanted: Planned,
  taken: PreparedSandbox | null,
): { readonly planned: Planned; readonly sinceMs: number } {
  if (!taken) return { planned: wanted, sinceMs: Date.now() };
  const { spec, requestHash, sinceMs } = taken;
  return { planned: { ...wanted, spec, requestHash }, sinceMs };
}

async function keepRecord(
  host: Host,
  { spec }: Planned,
  { policy, risk }: RunRequest,
  { expiresAt, latest, keep }: { readonly expiresAt: Date; readonly latest: Date; readonly keep: boolean },
): Promise<void> {
  const { socket } = await host.engine();
  // The image that was chosen, and not how: what a command leaves in the workspace may speak for another one.
  const image = policy?.image ?? spec.image.reference;
  const { workspace } = host;
  const masks = createdMasks(spec);
  const record = { policy: policyFrom({ ...policy, image }), ...(risk ? { risk } : {}), workspace, masks, latest };
  const { sandboxId } = spec.identity;
  await new Kept(host).begin(sandboxId, record, expiresAt, keep ? socket : null);
  if (keep) host.memory.keep({ sandboxId, memoryBytes: spec.limits.memoryBytes });
}

function timesFrom(now: number, expiresInMs = DEFAULT_MS): { readonly expiresAt: Date; readonly latest: Date } {
  return { expiresAt: new Date(now + Math.min(expiresInMs, MAX_MS)), latest: new Date(now + MAX_MS) };
}

// Caches belong to the session that lends them; a caller that asks for one by name gets an error.
function withoutCaches(request: RunRequest): RunRequest {
  return { ...request, policy: { ...request.policy, caches: request.policy?.caches ?? false } };
}

/** What an open sandbox becomes for its user. */
export interface Opened {
  readonly recorded: Recorded;
  readonly planned: Planned;
  readonly open: OpenSandbox;
  readonly intent: AuditHead | null;
  readonly provision?: AuditProvision;
  readonly release: () => void;
  /** Whether it goes on where this process lets go of it. */
  readonly keep: boolean;
  /** Whether other processes can use it, so that something is written down about it. */
  readonly isReachable: boolean;
  readonly expiresAt: Date;
  readonly latest: Date;
  readonly env: Readonly<Record<string, string>>;
  /** The forks of the host. */
  readonly forks: Pick<Forks, 'diff' | 'apply' | 'copy'>;
  /** Its network, if it has an allow-list. */
  readonly egress?: RunEgress | undefined;
  /** Time of the last scan of the workspace; now, if absent. */
  readonly lookedUntilMs?: number;
}

/** Puts a sandbox together. */
export function opened(parts: Opened): Sandbox {
  const { recorded, planned, open, keep, isReachable, expiresAt, latest, env } = parts;
  const { host, request } = recorded;
  const { clock } = host.telemetry;
  const { sandboxId } = planned.spec.identity;
  const began = clock.monotonic();
  const { risk, sessionId, taskId } = request;
  const about = {
    ...(risk === undefined ? {} : { risk }),
    ...(sessionId === undefined ? {} : { sessionId }),
    ...(taskId === undefined ? {} : { taskId }),
  };
  // It may be extended while a command runs, from elsewhere too; commands that still run when it expires end with it.
  const leftMs = (): number => Math.max(1, latest.getTime() - clock.now());
  let remembered: Promise<void> = Promise.resolve();
  const here = untilGone(open, host.closing);
  const { runtime } = host.directories;
  const commands = new SandboxCommands({
    host,
    open,
    planned,
    env,
    about,
    leftMs,
    egress: parts.egress,
    elsewhere: isReachable ? new CommandsElsewhere(runtime, sandboxId, here) : null,
    offerAt: offerSocketPath(runtime, sandboxId),
    lookedUntilMs: parts.lookedUntilMs ?? Date.now(),
    looked: untilMs => {
      if (!isReachable) return;
      // If that fails, the next scan covers the same time again.
      remembered = new Kept(host).looked(sandboxId, new Date(untilMs)).catch(() => undefined);
      host.keep(remembered);
    },
  });
  const sandbox: Sandbox = new Sandbox({
    open,
    spec: planned.spec,
    kept: keep,
    commandTimeoutMs: commandLimit(planned.policy),
    clock,
    expiresAt,
    latest,
    commands,
    files: filesOf(open.inside, { workdir: planned.spec.workdir }),
    ports: portsOf(open.inside, here),
    forks: planned.fork === undefined ? null : parts.forks,
    written: async () => (isReachable ? ((await new Kept(host).read(sandboxId))?.until ?? null) : null),
    extended: async until => {
      if (isReachable) await new Kept(host).extend(sandboxId, until);
    },
    over: async (reason, how) => {
      host.closing.removeEventListener('abort', close);
      parts.release();
      await Promise.all([remembered, commands.end(), parts.egress?.close()]);
      if (how === 'left') return [];
      if (isReachable) await new Kept(host).end(sandboxId);
      releaseState(host, planned.spec);
      tornDown(recorded, planned.spec, reason);
      const durationMs = clock.monotonic() - began;
      const scanned = await lastLook(recorded, planned.spec, commands.lookedUntilMs);
      if (planned.fork !== undefined) await endSandboxFork(host, planned.spec);
      if (parts.intent) recordOutcome(recorded, parts.intent, { durationMs, scanned, provision: parts.provision });
      // Made by another process: its outcome is that one’s to write.
      else recordFindings(recorded, LEFT_LATER, { sandboxId, ...workspaceOf(planned.spec) }, scanned);
      return scanned.riskyChanges;
    },
  });
  const close = (): void => host.keep(sandbox.leave());
  host.closing.addEventListener('abort', close, { once: true });
  if (host.closing.aborted) close();
  return sandbox;
}

// What fails here is done by the next command in the fork, and by the sweep.
async function endSandboxFork(host: Host, { identity: { sandboxId } }: SandboxSpec): Promise<void> {
  try {
    await endForkOf(host, sandboxId);
    await removeKeptVolumes(host, sandboxId, AbortSignal.timeout(VOLUMES_MS));
  } catch (error) {
    host.telemetry.log('warn', 'the fork of a sandbox could not be ended', { sandboxId, reason: String(error) });
  }
}

const LEFT_LATER = 'risky changes after the last command of a sandbox';

// What was left behind after the last command, when nothing of the sandbox lives any more.
async function lastLook(recorded: Recorded, spec: SandboxSpec, sinceMs: number): Promise<Scanned> {
  const { host, operation } = recorded;
  const ended = { mounts: spec.mounts, sinceMs, dead: Promise.resolve() };
  const { riskyChanges, changed, complete, rest } = await changesOfRun(ended, host.telemetry.clock);
  const scan: ScanState = complete ? 'complete' : 'incomplete';
  const scanned = { riskyChanges: [...riskyChanges], changed, scan };
  if (rest) continueScan({ ...recorded, planned: { spec } }, scanned, rest);
  recordRisk(operation, spec.identity.sandboxId, scanned.riskyChanges);
  return scanned;
}

// Forwarded ports are closed with their sandbox.
function untilGone({ gone }: OpenSandbox, closing: AbortSignal): AbortSignal {
  const end = new AbortController();
  void gone.then(() => end.abort());
  return AbortSignal.any([closing, end.signal]);
}

function refuse({ spec }: Planned, keep: boolean): void {
  if (!usesEngine(spec.level))
    throw new AcodeError('ACODE-SBX-016', {
      what: `a persistent sandbox at level ${spec.level}`,
      persistent: true,
      instead: 'Run single commands (`acode run`), or create it at level docker or stronger.',
    });
  if (!keep) return;
  // All of them belong to the session that makes them, and go with it.
  const lent = lentTo(spec);
  if (lent === null) return;
  throw new AcodeError('ACODE-SBX-016', {
    what: `${lent} in a sandbox that outlives its session`,
    instead: 'Leave it out, name a network of the engine, or create the sandbox without keeping it (`shared`).',
    outlives: true,
  });
}

function lentTo({ network, caches, dependencies }: SandboxSpec): string | null {
  if (network.kind === 'bridge') return 'the network bridge';
  if (network.kind === 'allow') return 'an allow-list';
  if (caches.length > 0) return 'caches';
  return dependencies ? 'dependencies of the project image' : null;
}

function noShell({ spec }: Planned): AcodeError {
  return new AcodeError('ACODE-SBX-016', {
    what: `a persistent sandbox of the image ${spec.image.reference}, which has no /bin/sh,`,
    persistent: true,
    instead: 'Run single commands with it (`acode run`), or use an image with a shell.',
  });
}
