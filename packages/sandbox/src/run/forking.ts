// Forks in the pipeline: the layer that a command writes in place of the workspace, from its plan to its end.

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from '../contract/command.ts';
import { AcodeError } from '../contract/errors.ts';
import { usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { ForkResult } from '../contract/result.ts';
import type { MountSpec, OverlayPart, OverlaySpec } from '../contract/spec.ts';
import { text } from '../contract/wording.ts';
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
}

type ForkHost = Pick<Host, 'forks' | 'engine' | 'locks' | 'telemetry'>;

// Begins a layer for a command. A preview only says where the layer would be.
async function planFork(host: ForkHost, wanted: ForkFor, signal: AbortSignal): Promise<OverlaySpec> {
  await refuseFork(host, wanted);
  const store = await host.forks();
  const { root, identity } = wanted.workspace;
  const which: ForkWanted = { workspace: root, identity, fork: wanted.policy.fork.value ?? undefined };
  return underLock(host, root, signal, async () => {
    const found = await store.find(which);
    if (wanted.preview) return shown(store, found);
    const { id } = found ?? (await store.make(which));
    await refuseBusy(host, store.read(id), signal);
    await settleLayer(host, id);
    const { image } = wanted;
    const command = [printable(wanted.command)].flat().join(' ');
    const begun = await store.begin(id, { holder: holderText(thisHolder()), image, command });
    return store.overlayOf(begun);
  });
}

/** Writes down which sandbox writes the layer, so that no other is given the fork while that one exists. */
export async function claimFork(host: ForkHost, fork: string | undefined, sandboxId: string): Promise<void> {
  if (fork !== undefined) (await host.forks()).claim(fork, sandboxId);
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
): Promise<{ readonly mounts: readonly MountSpec[]; readonly fork?: string }> {
  if (wanted.policy.workspace.value !== 'fork') return { mounts };
  const overlay = await planFork(host, wanted, signal);
  const asFork = (mount: MountSpec): MountSpec =>
    mount.purpose === 'workspace' ? { ...mount, readOnly: false, overlay } : mount;
  // What is only shown is nothing that a command could end or abandon.
  return { mounts: mounts.map(asFork), ...(wanted.preview ? {} : { fork: overlay.fork }) };
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

function shown(store: ForkStore, found: ForkRecord | null): OverlaySpec {
  const id = found?.id ?? 'new';
  const part = (path: string): OverlayPart => ({ path, identities: [] });
  const upper = part(join(store.pathOf(id), String(found?.nextLayer ?? 1)));
  const lowers = found ? store.layersOf(found).uppers.toReversed().map(part) : [];
  return { fork: id, upper, work: part(join(store.pathOf(id), 'w')), lowers };
}

async function refuseFork(host: ForkHost, { level, policy }: ForkFor): Promise<void> {
  const instead = 'Leave it out, or use readonly to keep the host tree untouched.';
  const what = { field: 'policy.workspace', value: 'fork' } as const;
  if (!usesEngine(level)) throw new AcodeError('ACODE-SBX-016', { what: text`${[what]} at level ${level}`, instead });
  if ((await host.engine()).builds.impossible !== null)
    throw new AcodeError('ACODE-SBX-016', { what: text`${[what]} on Podman`, instead });
  if (policy.deps.value)
    throw new AcodeError('ACODE-SBX-016', { what: text`${[what]} together with ${{ field: 'policy.deps' }}`, instead });
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
  if (store.read(id)?.active) await endLayer(host, id);
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
