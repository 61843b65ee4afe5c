// The look at the workspace after a run: only when nothing of the sandbox lives any more to write behind its back.

import { basename, dirname } from 'node:path';
import type { Clock } from '../contract/ports.ts';
import type { RiskyChange } from '../contract/result.ts';
import type { MountSpec } from '../contract/spec.ts';
import { isInPlace } from './file-identity.ts';
import { findRiskyChanges, notLookedAt } from './risky.ts';

/** What is known of a run that has ended. */
export interface EndedRun {
  readonly mounts: readonly MountSpec[];
  /** When its sandbox did not exist yet, by the clock of the kernel: a caller’s own clock says nothing about files. */
  readonly sinceMs: number;
  /** Whether something was brought into the workspace for it, whether or not it could write there itself. */
  readonly brought?: boolean;
  /** How long its caller has waited; what is absent is nobody’s wait. */
  readonly tookMs?: number;
  /** Settles when no process of the sandbox is left. */
  readonly dead: Promise<unknown>;
}

// The look makes nobody wait for much longer than they have waited, in however large a workspace.
const SHARE = 0.12;
const SHORTEST_MS = 20;

// A container that was killed is gone within moments; who waits for the result does not wait longer than this.
const DEATH_MS = 2000;

/** The risky changes of a run; none where it could not write the workspace. */
export async function changesOfRun(
  { mounts, sinceMs, dead, tookMs = Infinity, brought = false }: EndedRun,
  clock: Clock,
): Promise<RiskyChange[]> {
  const workspace = brought ? mounts.find(({ purpose }) => purpose === 'workspace') : writableWorkspace(mounts);
  if (!workspace) return [];
  const ended = await settledWithin(dead, clock);
  const patience = Math.max(SHORTEST_MS, tookMs * SHARE);
  const found = await findRiskyChanges(workspace.source, sinceMs, { patience }, protectedNames(mounts, workspace));
  if (ended) return found;
  const late = 'the sandbox was not seen to end, so it may have written after the look';
  return [...found, notLookedAt(late)];
}

/** What stands for the risky changes of a run that was cancelled: its caller has left and waits for no look. */
export function changesOfCancelledRun(mounts: readonly MountSpec[]): RiskyChange[] {
  return writableWorkspace(mounts)
    ? [notLookedAt('the command was cancelled, so the workspace was not looked at')]
    : [];
}

function writableWorkspace(mounts: readonly MountSpec[]): MountSpec | undefined {
  return mounts.find(({ purpose, readOnly }) => purpose === 'workspace' && !readOnly);
}

// Not those that somebody on the host has replaced meanwhile: then nothing lies over them any more.
function protectedNames(mounts: readonly MountSpec[], { source: root }: MountSpec): Set<string> {
  const own = mounts.filter(
    mount => mount.purpose === 'protected' && dirname(mount.source) === root && isInPlace(mount),
  );
  return new Set(own.map(({ source }) => basename(source)));
}

async function settledWithin(dead: Promise<unknown>, clock: Clock): Promise<boolean> {
  let cancel: () => void = () => undefined;
  const late = new Promise<boolean>(resolve => {
    cancel = clock.after(DEATH_MS, () => resolve(false));
  });
  const seen = dead.then(
    () => true,
    () => false,
  );
  try {
    return await Promise.race([seen, late]);
  } finally {
    cancel();
  }
}
