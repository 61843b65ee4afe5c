// Forks in the pipeline: the layer that a command writes in place of the workspace, from its plan to its end.

import { lstatSync, readdirSync, readFileSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from '../contract/command.ts';
import { AcodeError } from '../contract/errors.ts';
import { isAtLeast, usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { MaskedPath } from '../contract/masks.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { ForkResult } from '../contract/result.ts';
import type { MountSpec, OverlayPart, OverlaySpec, SandboxSpec } from '../contract/spec.ts';
import { formatBytes } from '../contract/units.ts';
import { text } from '../contract/wording.ts';
import type { Backend, ForkWay } from '../isolation/backend.ts';
import { holderText, isProvablyGone, parseHolder, thisHolder } from '../lifecycle/lock.ts';
import { inTime } from '../lifecycle/clock.ts';
import { identityOf } from '../workspace/file-identity.ts';
import { recordBase } from '../workspace/fork/base.ts';
import { LayerStack } from '../workspace/fork/layers.ts';
import { hasLeftover, mayBeInterrupted } from '../workspace/fork/leftover.ts';
import type { ForkRecord, LinkedRepository } from '../workspace/fork/record.ts';
import type { ForkStore, ForkWanted } from '../workspace/fork/store.ts';
import type { Workspace } from '../workspace/locate.ts';
import { sourceOf } from '../policy/layers.ts';
import { availableOf, directoriesOf, diskUse, floorOf } from './disk.ts';
import type { Host } from './host.ts';
import { printable } from './trail.ts';

const LOCK_MS = 10_000;
// For the lock that the end of a command needs: a diff of a large fork may hold it.
const END_LOCK_MS = 60_000;
const SQUASH_MS = 60_000;
// How long to wait for the removal of the sandbox after its command ended.
const SANDBOX_END_MS = 2000;
// How long to wait until the reaper has removed the sandbox of a killed process.
const REAPER_WAIT_MS = 3000;
const REAPED_PAUSE_MS = 100;
// How long before its end the expiry of a fork with changes is announced.
const EXPIRES_SOON_MS = 24 * 3600 * 1000;
// For a layer of any size. Paths that are not recorded by then have no base.
const BASE_MS = 60_000;
// What the history of a fork shows for the layer of a persistent sandbox.
const PERSISTENT = 'acode sandbox create';
// For the layer of a copy of any size.
const COLLECT_MS = 120_000;
const UNMOUNT_MS = 5000;
const UNMOUNT_POLL_MS = 20;
const PAGE_BYTES = 4096;

/** What a fork is planned from. */
export interface ForkFor {
  readonly level: Level;
  readonly policy: Pick<
    EffectivePolicy,
    'fork' | 'deps' | 'workspace' | 'diskBytes' | 'diskHard' | 'forkCopy' | 'limits' | 'user'
  >;
  readonly workspace: Workspace;
  readonly image: string;
  /** The command, which the history of the fork shows. */
  readonly command: Command;
  /** Whether this is a preview, which creates nothing. */
  readonly preview: boolean;
  readonly backend: Pick<Backend, 'forkWay'>;
  /** Masked paths, which are empty in the fork. */
  readonly masked: readonly Pick<MaskedPath, 'path' | 'kind'>[];
  /** The repository of the linked worktree that the workspace is, where it is mounted. */
  readonly repository?: LinkedRepository | undefined;
  /** The persistent sandbox whose plan this is: it has its layer already. */
  readonly reopens?: string | undefined;
}

interface PlannedFork {
  readonly id: string;
  /** What is mounted in place of the workspace: an overlay over it, or a copy of it. */
  readonly mounted: Pick<MountSpec, 'overlay'> | Pick<MountSpec, 'source' | 'identity' | 'copyOf'>;
  /** Over the repository of a linked worktree. */
  readonly repository: OverlaySpec | null;
  /** What layers of earlier commands take; 0 where nothing limits it. */
  readonly earlierBytes: number;
  readonly way: MountWay;
}

type OverlayWay = Extract<ForkWay, { way: string }>['way'];
type MountWay = OverlayWay | 'copy';

/** What forks need of a host. */
export type ForkHost = Pick<Host, 'forks' | 'engine' | 'locks' | 'telemetry' | 'directories' | 'closing' | 'uid'>;

// Begins a layer for a command. A preview only says where the layer would be.
async function planFork(host: ForkHost, wanted: ForkFor, signal: AbortSignal): Promise<PlannedFork> {
  const store = await host.forks();
  const { way, inMemory } = await wayOf(store, wanted, signal);
  const { root, identity } = wanted.workspace;
  const isPersistent = wanted.command.length === 0;
  const which: ForkWanted = { workspace: root, identity, fork: wanted.policy.fork.value ?? undefined };
  if (way === 'copy') refuseCopy(wanted, isPersistent);
  const own = await ofSandbox(store, wanted.reopens);
  if (own && way !== 'copy') return { way, ...overlaysOf(store, own, way), earlierBytes: 0 };
  refuseHard(host, wanted, { isPersistent, inMemory });
  if (isPersistent) refuseWatching(wanted.policy.diskBytes);
  if (wanted.preview) return { way, ...shown(store, await store.find(which), way, wanted), earlierBytes: 0 };
  await settleKilled(host, root, signal);
  // Two processes must not make two forks where one is meant.
  const { id } = await underLock(
    host,
    root,
    signal,
    async () => (await store.find(which)) ?? (await store.make(which, isPersistent)),
  );
  return underLock(host, id, signal, async () => {
    await refuseBusy(host, store.read(id), signal);
    await settleLayer(host, id);
    await squashOld(host, store, id, signal);
    const image = way === 'volume' ? wanted.image : null;
    const command = isPersistent ? PERSISTENT : [printable(wanted.command)].flat().join(' ');
    const masked = await makeMasks(store, id, wanted, signal);
    const limitBytes = wanted.policy.diskBytes.value;
    const limit = limitBytes === null ? {} : { limitBytes };
    const repository = way === 'copy' ? undefined : wanted.repository;
    const holder = holderText(thisHolder());
    const copy = way === 'copy';
    const begun = await store.begin(id, { holder, image, command, masked, repository, copy, ...limit });
    try {
      if (way === 'copy') return { way, ...(await copied(store, begun, wanted, signal)), earlierBytes: 0 };
      const overlays = overlaysOf(store, begun, way);
      return { way, ...overlays, earlierBytes: await refuseWithoutRoom(store, overlays, limitBytes) };
    } catch (error) {
      await store.abandon(id);
      throw error;
    }
  });
}

type Overlays = Pick<PlannedFork, 'id' | 'repository'> & { readonly mounted: { readonly overlay: OverlaySpec } };

function overlaysOf(store: ForkStore, record: ForkRecord, way: OverlayWay): Overlays {
  const work = WORK[way];
  return {
    id: record.id,
    mounted: { overlay: store.overlayOf(record, work) },
    repository: store.repositoryOverlayOf(record, work),
  };
}

const COPY_INSTEAD = 'Run without a fork, or on a machine that can mount one: see docs/forks.md.';

// What the kernel does for an overlay, nobody does for a copy.
function refuseCopy({ policy }: ForkFor, isPersistent: boolean): void {
  const [what] = [
    ...(isPersistent ? [text`A fork that is a copy for a persistent sandbox`] : []),
    ...(policy.diskBytes.value === null ? [] : [text`${[{ field: 'policy.disk' }]} for a fork that is a copy`]),
  ];
  if (what) throw new AcodeError('ACODE-SBX-016', { what, instead: COPY_INSTEAD });
}

// Copies what the command is to see. Its layer is made of the copy when it has ended.
async function copied(
  store: ForkStore,
  record: ForkRecord,
  { policy }: ForkFor,
  signal: AbortSignal,
): Promise<Pick<PlannedFork, 'id' | 'mounted' | 'repository'>> {
  const { COPY_LIMITS, CopyTooLargeError, makeCopy } = await import('../workspace/fork/copy.ts');
  const { layers, copy, list } = store.copyFor(record);
  const space = statfsSync(store.directory);
  const room = availableOf(space) - floorOf(space);
  const limits = policy.forkCopy.value
    ? { entries: Infinity, bytes: room }
    : { ...COPY_LIMITS, bytes: Math.min(room, COPY_LIMITS.bytes) };
  try {
    using stack = await LayerStack.open(layers, { scratch: store.pathOf(record.id), signal });
    await makeCopy(stack, { copy, list, limits, scratch: store.pathOf(record.id), signal });
  } catch (error) {
    if (!(error instanceof CopyTooLargeError)) throw error;
    throw new AcodeError('ACODE-FRK-004', {
      fork: record.name ?? record.id,
      reason: `no overlay can be mounted here, and a copy of the workspace would have more than ${limits.entries.toLocaleString('en')} entries or ${formatBytes(limits.bytes)}; --fork-copy copies it whatever its size`,
    });
  }
  const mounted = {
    source: copy,
    identity: identityOf(lstatSync(copy)),
    copyOf: { path: record.workspace, masked: record.active?.masked ?? [] },
  };
  return { id: record.id, mounted, repository: null };
}

// Before the layer is begun: if this fails, the next sweep removes what it left.
async function makeMasks(
  store: ForkStore,
  id: string,
  { masked, workspace }: ForkFor,
  signal: AbortSignal,
): Promise<string[]> {
  const record = store.read(id);
  if (!record || masked.length === 0) return [];
  const directory = store.maskOf(id, record.nextLayer);
  const { makeMaskLayer } = await import('../workspace/fork/mask-layer.ts');
  await makeMaskLayer(directory, workspace.root, masked, { scratch: store.pathOf(id), signal });
  return masked.map(({ path }) => path);
}

// Squashes the oldest layers before there are too many to mount.
async function squashOld(host: ForkHost, store: ForkStore, id: string, signal: AbortSignal): Promise<void> {
  const ranges = store.squashable(id);
  if (ranges.length === 0) return;
  const { squashLayers } = await import('../workspace/fork/squash.ts');
  const soon = AbortSignal.any([signal, AbortSignal.timeout(SQUASH_MS)]);
  try {
    for (const range of ranges)
      await store.squash(id, range, (layers, within, target) =>
        squashLayers(layers, { ...within, target, scratch: store.pathOf(id), signal: soon }),
      );
  } catch (error) {
    signal.throwIfAborted();
    // The command can still run. Once the layers no longer fit into the mount options, commands are refused.
    host.telemetry.log('warn', 'layers of a fork could not be squashed', { fork: id, reason: String(error) });
  }
}

/**
 * Writes down which sandbox of an engine writes the layer, so that no other is given the fork while that one exists. A sandbox without
 * an engine ends with its process, which is written down already.
 */
export async function claimFork(
  host: ForkHost,
  fork: string,
  { level, identity: { sandboxId } }: Pick<SandboxSpec, 'level' | 'identity'>,
): Promise<void> {
  if (!usesEngine(level)) return;
  const store = await host.forks();
  // The plan of a sandbox that has it already may be made again.
  if (store.read(fork)?.active?.sandboxId === null) store.claim(fork, sandboxId);
}

/** Removes the layer of a command that never ran. */
export async function abandonFork(host: ForkHost, fork: string | undefined): Promise<void> {
  if (fork !== undefined) await (await host.forks()).abandon(fork);
}

/** The mounts of a plan, with the workspace as a fork where the policy says so, and what to say about an interrupted apply. */
export async function forkMounts(
  host: ForkHost,
  wanted: ForkFor,
  mounts: readonly MountSpec[],
  signal: AbortSignal,
): Promise<ForkedMounts> {
  const { root } = wanted.workspace;
  const pending = await pendingNotes(host, root);
  if (wanted.policy.workspace.value !== 'fork') return { mounts, notes: pending, asides: [] };
  const worktree = mounts.find(({ purpose }) => purpose === 'worktree');
  const linked = worktree && { path: worktree.source, identity: worktree.identity };
  const planned = await planFork(host, { ...wanted, repository: linked }, signal);
  const { id, mounted, repository, way, earlierBytes } = planned;
  const asFork = (mount: MountSpec): MountSpec => {
    if (mount.purpose === 'workspace') return { ...mount, readOnly: false, ...mounted };
    return mount === worktree && repository ? { ...mount, readOnly: false, overlay: repository } : mount;
  };
  // A preview has no layer to end or abandon.
  const isReal = !wanted.preview || wanted.reopens !== undefined;
  return {
    mounts: mounts.map(asFork),
    notes: [...pending, ...(await expiryNotes(host, root, id)), ...(way === 'copy' ? [WAYS.copy] : [])],
    asides: [
      ...(way === 'copy' ? [] : [WAYS[way]]),
      ...(repository && linked ? [linkedNote(linked.path)] : []),
      ...diskNotes(wanted),
    ],
    ...(isReal ? { fork: id, earlierBytes } : {}),
    ...memoryFor(wanted, earlierBytes),
  };
}

// What earlier commands wrote counts. In pages, as the kernel counts memory.
function memoryFor(
  { policy: { diskHard, diskBytes } }: ForkFor,
  earlierBytes: number,
): Pick<ForkedMounts, 'memoryBytes'> {
  if (!diskHard.value || diskBytes.value === null) return {};
  return { memoryBytes: Math.max(1, Math.floor((diskBytes.value - earlierBytes) / PAGE_BYTES)) * PAGE_BYTES };
}

/** The mounts of a plan, and what to say about the fork among them. */
export interface ForkedMounts {
  readonly mounts: readonly MountSpec[];
  /** The id of the fork that the command writes. */
  readonly fork?: string;
  /** What layers of earlier commands take of the fork’s disk limit. */
  readonly earlierBytes?: number;
  /** The size of the memory that takes what the command writes; absent where that goes to a directory. */
  readonly memoryBytes?: number;
  readonly notes: readonly string[];
  /** Notes that only `explain` prints. */
  readonly asides: readonly string[];
}

// Notes about an interrupted apply, of which a command may see half. It is rare, so the journal is loaded only if there is one.
async function pendingNotes({ directories: { state } }: ForkHost, workspace: string): Promise<string[]> {
  if (!mayBeInterrupted(workspace, state)) return [];
  const { ApplyPlace } = await import('../workspace/fork/journal.ts');
  const place = new ApplyPlace(state, workspace);
  const pending = place.pending();
  const left = hasLeftover(workspace) && !pending ? place.leftover() : null;
  if (left) return [`${left.message} ${left.hint}`];
  if (!pending) return [];
  return [
    `An apply of fork ${pending.forkId} to this workspace was interrupted, and commands may see some of its changes: finish it with \`acode fork apply --resume\`, or undo it with \`acode fork apply --rollback\`.`,
  ];
}

// The fork that is used now expires later; the others of the workspace may hold forgotten work.
async function expiryNotes(host: ForkHost, workspace: string, used: string): Promise<string[]> {
  const expiring = (await host.forks()).expiring(workspace, EXPIRES_SOON_MS).filter(({ id }) => id !== used);
  const [first] = expiring;
  if (!first) return [];
  const which = first.name ?? first.id;
  const others = expiring.length > 1 ? ` (and ${expiring.length - 1} more)` : '';
  return [
    `Fork ${which} of this workspace${others} has changes and expires at ${new Date(first.expiresAt).toISOString()}: \`acode fork diff ${which}\` shows them and keeps the fork for 7 more days.`,
  ];
}

/** The fork that a sandbox writes; null if there is none. */
export async function ofSandbox(store: ForkStore, sandboxId: string | undefined): Promise<ForkRecord | null> {
  if (sandboxId === undefined) return null;
  return (await store.list()).find(({ active }) => active?.sandboxId === sandboxId) ?? null;
}

/** A persistent sandbox was removed: what its commands wrote becomes a part of its fork, where it has one. */
export async function endForkOf(host: ForkHost, sandboxId: string): Promise<void> {
  const store = await host.forks();
  const found = await ofSandbox(store, sandboxId);
  if (!found) return;
  const end = async (): Promise<void> => {
    if (store.read(found.id)?.active?.sandboxId === sandboxId) await endLayer(host, found.id, false);
  };
  await underLock(host, found.id, new AbortController().signal, end, END_LOCK_MS);
}

// Background processes in a persistent sandbox can write while no acode process enforces the disk limit.
function refuseWatching(diskBytes: EffectivePolicy['diskBytes']): void {
  if (diskBytes.value === null) return;
  throw new AcodeError('ACODE-SBX-016', {
    what: text`${[{ field: 'policy.disk' }]} for the fork of a persistent sandbox (set by ${sourceOf(diskBytes)})`,
    instead: 'Leave it out, or run each command in the fork: `acode run --fork --disk …`.',
  });
}

function diskNotes({ level, policy: { diskBytes, diskHard } }: ForkFor): string[] {
  if (diskBytes.value === null) return [];
  if (diskHard.value)
    return [
      `The disk limit of ${formatBytes(diskBytes.value)} is hard: what the command writes is in memory, within its memory limit, and at the limit it gets “no space left on device”. When the command has ended, acode copies it to the fork. It is lost if acode is killed before.`,
    ];
  const watched = `The disk limit of ${formatBytes(diskBytes.value)} is watched: a command that reaches it is paused and ended. What it writes until then, and one file that it copies up, may exceed the limit.`;
  return isAtLeast(level, 'gvisor')
    ? [`${watched} gVisor applies no system call filter, so \`fallocate\` can exceed it by much more.`]
    : [`${watched} \`fallocate\` fails with EOPNOTSUPP.`];
}

// Running commands of other forks may still write what their limits allow.
async function refuseWithoutRoom(
  store: ForkStore,
  { mounted: { overlay }, repository }: Overlays,
  limitBytes: number | null,
): Promise<number> {
  const space = statfsSync(store.directory);
  const bytes = availableOf(space);
  const { fork } = overlay;
  if (limitBytes === null) {
    const keptBytes = floorOf(space);
    if (bytes < keptBytes)
      throw new AcodeError('ACODE-FRK-020', { fork, problem: 'free-space', bytes, limitBytes: 0, keptBytes });
    return 0;
  }
  const all = directoriesOf([overlay, ...(repository ? [repository] : [])]);
  const earlier = await diskUse(all.earlier, { enough: limitBytes });
  if (earlier.bytes >= limitBytes)
    throw new AcodeError('ACODE-FRK-020', {
      fork,
      problem: 'limit',
      bytes: earlier.bytes,
      limitBytes,
      keptBytes: 0,
    });
  const others = (await store.list()).filter(
    ({ id, active }) => id !== fork && active !== null && mayLive(active.holder),
  );
  const keptBytes = others.reduce((sum, { active }) => sum + (active?.limitBytes ?? 0), floorOf(space));
  if (bytes - keptBytes < limitBytes - earlier.bytes)
    throw new AcodeError('ACODE-FRK-020', { fork, problem: 'free-space', bytes, limitBytes, keptBytes });
  return earlier.bytes;
}

/** Does work while no other process begins or changes a fork, given by its id, or makes one of a workspace, given by its path. */
export function underLock<Value>(
  { locks }: Pick<Host, 'locks'>,
  key: string,
  signal: AbortSignal,
  work: () => Promise<Value>,
  deadlineMs = LOCK_MS,
): Promise<Value> {
  return locks.during(`fork ${key}`, { deadlineMs, signal }, work);
}

// The work directory of each way within a fork.
const WORK: Readonly<Record<OverlayWay, string>> = { volume: 'w', bubblewrap: 'b', unshare: 'b' };

const WAYS: Readonly<Record<MountWay, string>> = {
  volume: 'The fork of the workspace is an overlay that the engine mounts, as a volume.',
  bubblewrap: 'The fork of the workspace is an overlay that bubblewrap mounts.',
  unshare:
    'The fork of the workspace is an overlay that `mount` makes in a user namespace (`unshare`), because this bubblewrap makes none.',
  copy: 'The fork of the workspace is a copy, made before each command: it takes as long as copying all files.',
};

function linkedNote(path: string): string {
  return `The workspace is a linked worktree: its repository, ${path}, is an overlay too, and commits stay in the fork.`;
}

function shown(
  store: ForkStore,
  found: ForkRecord | null,
  way: MountWay,
  { repository, workspace }: ForkFor,
): Pick<PlannedFork, 'id' | 'mounted' | 'repository'> {
  const id = found?.id ?? 'new';
  if (way === 'copy') {
    const { root, identity } = workspace;
    return {
      id,
      mounted: { source: join(store.pathOf(id), 'c'), identity, copyOf: { path: root, masked: [] } },
      repository: null,
    };
  }
  const work = WORK[way];
  const part = (path: string): OverlayPart => ({ path, identities: [] });
  const over = (layers: readonly string[], suffix: string): OverlaySpec => ({
    fork: id,
    upper: part(join(store.pathOf(id), `${found?.nextLayer ?? 1}${suffix}`)),
    work: part(join(store.pathOf(id), `${work}${suffix}`)),
    lowers: layers.toReversed().map(part),
  });
  const git = (found && store.repositoryLayersOf(found)?.uppers) ?? [];
  return {
    id,
    mounted: { overlay: over(found ? store.layersOf(found).uppers : [], '') },
    repository: repository ? over(git, 'g') : null,
  };
}

async function wayOf(
  store: ForkStore,
  { level, policy, backend }: ForkFor,
  signal: AbortSignal,
): Promise<{ readonly way: MountWay; readonly inMemory: boolean }> {
  const instead = 'Run without a fork, or mount the workspace read-only to protect your files.';
  const what = { field: 'policy.workspace', value: 'fork' } as const;
  if (policy.deps.value)
    throw new AcodeError('ACODE-SBX-016', { what: text`${[what]} together with ${{ field: 'policy.deps' }}`, instead });
  if (backend.forkWay && policy.forkCopy.value) return { way: 'copy', inMemory: false };
  if (!backend.forkWay) throw new AcodeError('ACODE-SBX-016', { what: text`${[what]} at level ${level}`, instead });
  const found = await backend.forkWay(store.directory, signal);
  // No overlay can be mounted: a copy is made, if it is small enough.
  return 'way' in found
    ? { way: found.way, inMemory: found.inMemory === true && level === 'docker' }
    : { way: 'copy', inMemory: false };
}

// Why what a command writes cannot go to memory. It is copied from there by this process, which the kernel lets do so for processes of
// the same user.
function withoutMemory(
  { uid }: Pick<ForkHost, 'uid'>,
  { level, policy: { user }, repository }: ForkFor,
  { isPersistent, inMemory }: { readonly isPersistent: boolean; readonly inMemory: boolean },
): string | null {
  if (!inMemory) return level === 'docker' ? 'on this engine' : `at level ${level}`;
  if (isPersistent) return 'for the fork of a persistent sandbox';
  if (repository) return 'for the fork of a linked worktree';
  return user.value.uid === uid ? null : 'for another user than you';
}

function refuseHard(host: Pick<ForkHost, 'uid'>, of: ForkFor, found: Parameters<typeof withoutMemory>[2]): void {
  const { diskHard, diskBytes, limits } = of.policy;
  if (!diskHard.value || diskBytes.value === null) return;
  const where = withoutMemory(host, of, found);
  if (where !== null)
    throw new AcodeError('ACODE-SBX-016', {
      what: text`${{ field: 'policy.disk.hard' }} ${where}`,
      instead: 'Leave it out: acode then watches the limit, and ends a command that reaches it.',
    });
  const most = Math.floor(limits.memoryBytes.value / 2);
  if (diskBytes.value > most)
    throw new AcodeError('ACODE-SBX-017', {
      field: 'policy.disk',
      reason: `is ${formatBytes(diskBytes.value)}, and a hard limit is at most half of the memory limit (${formatBytes(most)}): what the command writes is in memory, and counts there`,
      remedy: text`Lower it, or raise ${{ field: 'policy.limits.memoryBytes' }}.`,
    });
}

/** Refuses a fork that a command writes now: one whose process lives, or whose sandbox exists. */
export async function refuseBusy(host: ForkHost, record: ForkRecord | null, signal: AbortSignal): Promise<void> {
  if (!record?.active || !(await isBusy(host, record.active, signal))) return;
  const { sandboxId } = record.active;
  throw new AcodeError('ACODE-FRK-003', {
    fork: record.name ?? record.id,
    ...(sandboxId === null ? {} : { sandbox: sandboxId }),
  });
}

// A process records its sandbox before the engine creates it, and ends the layer after the sandbox is gone. If the process is
// killed, the reaper soon removes its sandbox.
async function isBusy(
  host: ForkHost,
  { sandboxId, holder }: NonNullable<ForkRecord['active']>,
  signal: AbortSignal,
): Promise<boolean> {
  if (mayLive(holder)) return true;
  if (sandboxId === null) return false;
  const { clock } = host.telemetry;
  const engine = await host.engine();
  const until = clock.monotonic() + (holder === null ? 0 : REAPER_WAIT_MS);
  for (;;) {
    const found = await engine.list(signal);
    if (!found.some(sandbox => sandbox.sandboxId === sandboxId)) return false;
    if (clock.monotonic() >= until) return true;
    await new Promise<void>(resolve => void clock.after(REAPED_PAUSE_MS, resolve));
  }
}

function mayLive(holder: string | null): boolean {
  if (holder === null) return false;
  const owner = parseHolder(holder);
  return owner === null || !isProvablyGone(owner, thisHolder());
}

/** Adds the layers of killed commands to their forks, in one workspace or in all. */
export async function settleKilled(host: ForkHost, workspace: string | undefined, signal: AbortSignal): Promise<void> {
  const store = await host.forks();
  const isLeft = ({ active }: ForkRecord): boolean => active !== null && !mayLive(active.holder);
  for (const { id } of (await store.list(workspace)).filter(isLeft))
    try {
      await underLock(host, id, signal, async () => {
        const active = store.read(id)?.active;
        if (active && !(await isBusy(host, active, signal))) await settleLayer(host, id);
      });
    } catch (error) {
      signal.throwIfAborted();
      host.telemetry.log('info', 'the layer of a killed command was left', { fork: id, reason: String(error) });
    }
}

/** A persistent sandbox exists: from here on its fork is in use for as long as it does, whichever process uses it. */
export async function releaseFork(host: ForkHost, fork: string | undefined): Promise<void> {
  if (fork !== undefined) (await host.forks()).release(fork);
}

/** Adds the layer of a killed command to its fork, so that its changes are not lost. */
export async function settleLayer(host: ForkHost, id: string): Promise<void> {
  const store = await host.forks();
  await store.sweep(id);
  const record = store.read(id);
  if (!record?.active) return;
  await untilUnmounted(record);
  await endLayer(host, id, record.active.holder !== null);
}

// A sandbox without an engine ends moments after the process that made it was killed. Until then it could still write its layer.
async function untilUnmounted({ id, name, active }: ForkRecord): Promise<void> {
  if (active?.sandboxId !== null) return;
  const upper = active.copy ? `/${id}/c ` : `/${id}/${active.layer},`;
  const deadline = Date.now() + UNMOUNT_MS;
  while (isMountedAnywhere(upper)) {
    if (Date.now() > deadline) throw new AcodeError('ACODE-FRK-003', { fork: name ?? id });
    await new Promise(resolve => void setTimeout(resolve, UNMOUNT_POLL_MS));
  }
}

function isMountedAnywhere(upper: string): boolean {
  return processes().some(pid => {
    try {
      return readFileSync(`/proc/${pid}/mountinfo`, 'utf8').includes(upper);
    } catch {
      // It has ended, or is another user’s, who cannot mount this.
      return false;
    }
  });
}

function processes(): string[] {
  try {
    return readdirSync('/proc').filter(name => /^\d+$/.test(name));
  } catch {
    return [];
  }
}

/**
 * The command has ended. Once nothing of its sandbox runs, its layer becomes a part of the fork. Where that takes too long, or fails,
 * the next to use the fork does it. Null where the command wrote nothing.
 */
export async function endFork(
  host: ForkHost,
  id: string,
  over: Promise<unknown>,
  collect: () => Promise<void> = async () => undefined,
): Promise<ForkResult | null> {
  const store = await host.forks();
  const end = async (): Promise<boolean> => {
    const late = (): Error => new Error('the sandbox is still being removed');
    await inTime(host.telemetry.clock, SANDBOX_END_MS, over, late);
    await collect();
    return underLock(host, id, new AbortController().signal, () => endLayer(host, id, false), END_LOCK_MS);
  };
  try {
    return (await end()) ? { id } : null;
  } catch (error) {
    host.telemetry.log('warn', 'the layer of a command was left for the next one', { fork: id, reason: String(error) });
    store.release(id);
    return { id };
  }
}

// Ends the layer. First records the base: the workspace’s version of every path that the command changed, if it has not changed since
// the command began. Returns whether the command wrote anything.
async function endLayer(host: ForkHost, id: string, isInterrupted: boolean): Promise<boolean> {
  const store = await host.forks();
  const record = store.read(id);
  if (!record?.active) return false;
  const layers = store.layersOf(record);
  if (record.active.copy) {
    const { collectCopy } = await import('../workspace/fork/copy.ts');
    const options = { scratch: store.pathOf(id), signal: AbortSignal.timeout(COLLECT_MS) };
    await store.takeCopy(record, (copy, list, target) => collectCopy({ copy, list, target, ...options }));
  }
  const isNothing = isEmpty(layers.uppers.at(-1) ?? '');
  if (!isNothing) await keepBase(host, store, record);
  const git = record.active.git ? store.repositoryLayersOf(record)?.uppers.at(-1) : undefined;
  const isGitEmpty = git === undefined || isEmpty(git);
  await store.end(id, { isEmpty: isNothing, isGitEmpty, isInterrupted });
  return !isNothing || !isGitEmpty;
}

/** Records the base of the layer that is being written: what the workspace had at the paths that its command changed. */
export async function keepBase(host: ForkHost, store: ForkStore, record: ForkRecord, isLive = false): Promise<void> {
  const { id, active } = record;
  if (!active) return;
  const layers = store.layersOf(record);
  const signal = AbortSignal.timeout(BASE_MS);
  try {
    using stack = await LayerStack.open(layers, { scratch: store.pathOf(id), signal });
    const index = layers.uppers.length - 1;
    const directory = store.baseOf(id);
    await recordBase(stack, { index, number: active.layer, startedMs: active.at, directory, signal, isLive });
  } catch (error) {
    // Without it, a diff compares with the workspace as it is, and a file that changed there since is a conflict.
    host.telemetry.log('warn', 'what a fork began with could not be kept', { fork: id, reason: String(error) });
  }
}

function isEmpty(directory: string): boolean {
  return readdirSync(directory).length === 0;
}
