// Forks in the pipeline: the layer that a command writes in place of the workspace, from its plan to its end.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from '../contract/command.ts';
import { AcodeError } from '../contract/errors.ts';
import { usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { ForkResult } from '../contract/result.ts';
import type { MountSpec, OverlayPart, OverlaySpec, SandboxSpec } from '../contract/spec.ts';
import { text } from '../contract/wording.ts';
import type { Backend, ForkWay } from '../isolation/backend.ts';
import { holderText, isProvablyGone, parseHolder, thisHolder } from '../lifecycle/lock.ts';
import { recordBase } from '../workspace/fork/base.ts';
import { LayerStack } from '../workspace/fork/layers.ts';
import type { ForkStore, ForkRecord, ForkWanted } from '../workspace/fork/store.ts';
import type { Workspace } from '../workspace/locate.ts';
import type { Host } from './host.ts';
import { printable } from './trail.ts';

const LOCK_MS = 10_000;
// For a layer of any size; what is not done by then has no base.
const BASE_MS = 60_000;
const UNMOUNT_MS = 5000;
const UNMOUNT_POLL_MS = 20;

/** What a fork is planned for. */
export interface ForkFor {
  readonly level: Level;
  readonly policy: Pick<EffectivePolicy, 'fork' | 'deps' | 'workspace'>;
  readonly workspace: Workspace;
  readonly image: string;
  /** The command, which the history of the fork shows. */
  readonly command: Command;
  /** Whether nothing may be made. */
  readonly preview: boolean;
  readonly backend: Pick<Backend, 'forkWay'>;
}

interface PlannedFork {
  readonly overlay: OverlaySpec;
  readonly way: MountWay;
}

type MountWay = Extract<ForkWay, { way: string }>['way'];

type ForkHost = Pick<Host, 'forks' | 'engine' | 'locks' | 'telemetry'>;

// Begins a layer for a command. A preview only says where the layer would be.
async function planFork(host: ForkHost, wanted: ForkFor, signal: AbortSignal): Promise<PlannedFork> {
  const store = await host.forks();
  const way = await wayOf(store, wanted, signal);
  const { root, identity } = wanted.workspace;
  const which: ForkWanted = { workspace: root, identity, fork: wanted.policy.fork.value ?? undefined };
  return underLock(host, root, signal, async () => {
    const found = await store.find(which);
    if (wanted.preview) return { way, overlay: shown(store, found, WORK[way]) };
    const { id } = found ?? (await store.make(which));
    await refuseBusy(host, store.read(id), signal);
    await settleLayer(host, id);
    const image = way === 'volume' ? wanted.image : null;
    const command = [printable(wanted.command)].flat().join(' ');
    const begun = await store.begin(id, { holder: holderText(thisHolder()), image, command });
    return { way, overlay: store.overlayOf(begun, WORK[way]) };
  });
}

/**
 * Writes down which sandbox of an engine writes the layer, so that no other is given the fork while that one exists. A sandbox without
 * an engine ends with its process, which is written down already.
 */
export async function claimFork(
  host: ForkHost,
  fork: string | undefined,
  { level, identity: { sandboxId } }: Pick<SandboxSpec, 'level' | 'identity'>,
): Promise<void> {
  if (fork !== undefined && usesEngine(level)) (await host.forks()).claim(fork, sandboxId);
}

/** Nothing of a command ran: its layer goes. */
export async function abandonFork(host: ForkHost, fork: string | undefined): Promise<void> {
  if (fork !== undefined) await (await host.forks()).abandon(fork);
}

/** The mounts of a plan, with the workspace as a fork where the policy says so. */
export async function forkMounts(
  host: ForkHost,
  wanted: ForkFor,
  mounts: readonly MountSpec[],
  signal: AbortSignal,
): Promise<{ readonly mounts: readonly MountSpec[]; readonly fork?: string; readonly asides: readonly string[] }> {
  if (wanted.policy.workspace.value !== 'fork') return { mounts, asides: [] };
  const { overlay, way } = await planFork(host, wanted, signal);
  const asFork = (mount: MountSpec): MountSpec =>
    mount.purpose === 'workspace' ? { ...mount, readOnly: false, overlay } : mount;
  // What is only shown is nothing that a command could end or abandon.
  return { mounts: mounts.map(asFork), asides: [WAYS[way]], ...(wanted.preview ? {} : { fork: overlay.fork }) };
}

/** Does work while no other process begins or changes a fork of a workspace. */
export function underLock<Value>(
  { locks }: Pick<Host, 'locks'>,
  workspace: string,
  signal: AbortSignal,
  work: () => Promise<Value>,
): Promise<Value> {
  return locks.during(`fork ${workspace}`, { deadlineMs: LOCK_MS, signal }, work);
}

// The work directory of each way within a fork.
const WORK: Readonly<Record<MountWay, string>> = { volume: 'w', bubblewrap: 'b', unshare: 'b' };

const WAYS: Readonly<Record<MountWay, string>> = {
  volume: 'The fork of the workspace is an overlay that the engine mounts, as a volume.',
  bubblewrap: 'The fork of the workspace is an overlay that bubblewrap mounts.',
  unshare:
    'The fork of the workspace is an overlay that `mount` makes in a user namespace (`unshare`), because this bubblewrap makes none.',
};

function shown(store: ForkStore, found: ForkRecord | null, work: string): OverlaySpec {
  const id = found?.id ?? 'new';
  const part = (path: string): OverlayPart => ({ path, identities: [] });
  const upper = part(join(store.pathOf(id), String(found?.nextLayer ?? 1)));
  const lowers = found ? store.layersOf(found).uppers.toReversed().map(part) : [];
  return { fork: id, upper, work: part(join(store.pathOf(id), work)), lowers };
}

async function wayOf(store: ForkStore, { level, policy, backend }: ForkFor, signal: AbortSignal): Promise<MountWay> {
  const instead = 'Leave it out, or use readonly to keep the host tree untouched.';
  const what = { field: 'policy.workspace', value: 'fork' } as const;
  if (policy.deps.value)
    throw new AcodeError('ACODE-SBX-016', { what: text`${[what]} together with ${{ field: 'policy.deps' }}`, instead });
  if (!backend.forkWay) throw new AcodeError('ACODE-SBX-016', { what: text`${[what]} at level ${level}`, instead });
  const found = await backend.forkWay(store.directory, signal);
  if ('way' in found) return found.way;
  throw new AcodeError('ACODE-SBX-016', {
    what: text`${[what]} at level ${level} (${found.impossible})`,
    instead: found.remedy,
  });
}

/** Refuses a fork that a command writes now: one that is being planned, or whose sandbox exists. */
export async function refuseBusy(host: ForkHost, record: ForkRecord | null, signal: AbortSignal): Promise<void> {
  if (!record?.active) return;
  const { sandboxId, holder } = record.active;
  const owner = parseHolder(holder);
  const isBusy =
    sandboxId === null
      ? owner === null || !isProvablyGone(owner, thisHolder())
      : (await (await host.engine()).inspect(sandboxId, signal)) !== null;
  if (!isBusy) return;
  throw new AcodeError('ACODE-FRK-003', {
    fork: record.name ?? record.id,
    ...(sandboxId === null ? {} : { sandbox: sandboxId }),
  });
}

/** A command whose process was killed left its layer: what it wrote is a part of the fork, and not lost. */
export async function settleLayer(host: ForkHost, id: string): Promise<void> {
  const store = await host.forks();
  await store.sweep(id);
  const record = store.read(id);
  if (!record?.active) return;
  await untilUnmounted(record);
  await endLayer(host, id);
}

// A sandbox without an engine ends moments after the process that made it was killed. Until then it could still write its layer.
async function untilUnmounted({ id, name, active }: ForkRecord): Promise<void> {
  if (active?.sandboxId !== null) return;
  const upper = `/${id}/${active.layer}`;
  const deadline = Date.now() + UNMOUNT_MS;
  while (isMountedAnywhere(upper)) {
    if (Date.now() > deadline) throw new AcodeError('ACODE-FRK-003', { fork: name ?? id });
    await new Promise(resolve => void setTimeout(resolve, UNMOUNT_POLL_MS));
  }
}

function isMountedAnywhere(upper: string): boolean {
  return processes().some(pid => {
    try {
      return readFileSync(`/proc/${pid}/mountinfo`, 'utf8').includes(`${upper},`);
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

/** The command has ended and nothing of its sandbox runs: its layer becomes a part of the fork. */
export async function endFork(host: ForkHost, id: string): Promise<ForkResult | null> {
  return (await endLayer(host, id)) ? { id } : null;
}

// What the workspace has at each path that the command changed is kept now, as long as it is what the command saw. Says whether the
// command wrote anything.
async function endLayer(host: ForkHost, id: string): Promise<boolean> {
  const store = await host.forks();
  const record = store.read(id);
  if (!record?.active) return false;
  const layers = store.layersOf(record);
  const isNothing = isEmpty(layers.uppers.at(-1) ?? '');
  if (!isNothing) await keepBase(host, store, record);
  await store.end(id, isNothing);
  return !isNothing;
}

async function keepBase(host: ForkHost, store: ForkStore, record: ForkRecord): Promise<void> {
  const { id, active } = record;
  if (!active) return;
  const layers = store.layersOf(record);
  const signal = AbortSignal.timeout(BASE_MS);
  try {
    using stack = await LayerStack.open(layers, { scratch: store.pathOf(id), signal });
    const index = layers.uppers.length - 1;
    const directory = store.baseOf(id);
    await recordBase(stack, { index, number: active.layer, startedMs: active.at, directory, signal });
  } catch (error) {
    // Without it, a diff compares with the workspace as it is, and a file that changed there since is a conflict.
    host.telemetry.log('warn', 'what a fork began with could not be kept', { fork: id, reason: String(error) });
  }
}

function isEmpty(directory: string): boolean {
  return readdirSync(directory).length === 0;
}
