// Orphans: whether a sandbox may be removed, decided from its labels and the state of its owner, and the journal of
// the removed.

import { randomUUID } from 'node:crypto';
import { open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import type { SandboxState } from '../contract/host.ts';
import { CACHE, KEEP, LEASES, MANAGED, NAME } from './labels.ts';
import type { OwnerState } from './ownership.ts';

/** What stands in the labels of a container, network or volume. */
export type Labels = Readonly<Record<string, string>>;

/** A thing on the engine. */
export interface Found {
  readonly labels: Labels;
  /** What the engine calls it, where it is a container. */
  readonly containerName?: string;
}

/** Who asks. */
export interface Asking {
  readonly uid: number;
  readonly host: string;
  /** The owner id of the session that asks. */
  readonly owner: string;
  /** Where it finds leases, as labels say it. */
  readonly leases: string;
  readonly now: number;
}

/** What is to be done with a thing on the engine, and why. */
export type Verdict =
  | { readonly remove: true; readonly because: 'orphaned' | 'expired' }
  | {
      readonly remove: false;
      readonly because:
        'not ours' | 'another user' | 'another host' | 'kept' | 'mine' | 'owner lives' | 'owner unknown';
    };

/**
 * Judges one thing. Only what belongs to a dead owner of the same host and user, or is past its hard maximum, may go:
 * whatever is unknown is taken for alive. A persistent sandbox remains until its `lease` ends; one that has none where its
 * maker would have written it down was never kept, since its maker died before that.
 */
export function judge(found: Found, owner: OwnerState, asking: Asking, lease: number | null): Verdict {
  const { labels } = found;
  const left = (because: Spared): Verdict => ({ remove: false, because });
  const spared = sparedForAnyOwner(found, asking);
  if (spared !== null) return left(spared);
  const here = labels['acode.host'] === asking.host;
  if (here && labels['acode.owner'] === asking.owner) return left('mine');
  if (isExpired(labels, asking.now, lease)) return { remove: true, because: 'expired' };
  if (!here) return left('another host');
  if (staysKept(found, asking, lease)) return left('kept');
  if (owner === 'dead') return { remove: true, because: 'orphaned' };
  return left(owner === 'alive' ? 'owner lives' : 'owner unknown');
}

type Spared = (Verdict & { remove: false })['because'];

function sparedForAnyOwner(found: Found, { uid }: Asking): Spared | null {
  if (!isOurs(found)) return 'not ours';
  if (found.labels['acode.uid'] !== String(uid)) return 'another user';
  return isCache(found) ? 'kept' : null;
}

// A cache has no owner to ask: it is for every session of its user, also after the machine was started anew.
function isCache({ labels, containerName }: Found): boolean {
  return containerName === undefined && labels[CACHE] !== undefined;
}

/** What a cleanup by the user removes besides orphans. */
export interface Wanted {
  readonly force?: boolean;
  readonly allSessions?: boolean;
  /** Also what this user has on the engine from another host, whose sessions cannot be asked from here. */
  readonly everyHost?: boolean;
}

/** Whether a cleanup by the user removes a sandbox in some state. It never removes another user’s. */
export function mayGo(verdict: Verdict, state: SandboxState, wanted: Wanted): boolean {
  const { force, allSessions } = wanted;
  if (verdict.remove || isWantedElsewhere(verdict, wanted)) return true;
  if (isForeign(verdict)) return false;
  if (mayLive(verdict) && !allSessions) return false;
  return force === true || (verdict.because !== 'kept' && (state === 'exited' || state === 'dead'));
}

/** Whether a resource belongs to another owner, so that this caller must ignore it. */
export function isForeign({ because }: Verdict): boolean {
  return because === 'not ours' || because === 'another user' || because === 'another host';
}

/** Whether a thing is another host’s, and wanted gone all the same. */
export function isWantedElsewhere({ because }: Verdict, { everyHost }: Pick<Wanted, 'everyHost'>): boolean {
  return because === 'another host' && everyHost === true;
}

/** Whether its owner lives, or cannot be known to be dead, which counts the same. */
export function mayLive({ because }: Verdict): boolean {
  return because === 'owner lives' || because === 'owner unknown';
}

// A container has the labels of its image too: what runs from an image that was made of a sandbox looks like that sandbox.
// Only its name it cannot have.
function isOurs({ labels, containerName }: Found): boolean {
  return labels[MANAGED] === 'true' && (containerName === undefined || labels[NAME] === containerName);
}

// Past its hard maximum, or past the lease of what was kept on this host. A label that cannot be read says nothing.
function isExpired(labels: Labels, now: number, lease: number | null): boolean {
  const expires = Date.parse(labels['acode.expires'] ?? '');
  return (Number.isFinite(expires) && expires < now) || (isKept(labels) && lease !== null && lease < now);
}

function staysKept({ labels }: Found, { leases }: Asking, lease: number | null): boolean {
  return isKept(labels) && (lease !== null || labels[LEASES] !== leases);
}

function isKept(labels: Labels): boolean {
  return labels[KEEP] === 'true';
}

const MAX_BYTES = 1024 * 1024;

const line = z.object({
  kind: z.enum(['container', 'network', 'volume']),
  id: z.string(),
  name: z.string(),
  sandboxId: z.string(),
});

/** One thing that a reaper removed. */
export type Reaped = z.infer<typeof line>;

/** Where reapers write down what they removed. */
export function reapedPath(runtimeDirectory: string): string {
  return join(runtimeDirectory, 'reaped.jsonl');
}

/** Takes the entries written since the last call; each entry is reported once. */
export async function takeReaped(runtimeDirectory: string): Promise<Reaped[]> {
  const taken = join(runtimeDirectory, `reaped.${randomUUID()}`);
  try {
    await rename(reapedPath(runtimeDirectory), taken);
  } catch {
    return [];
  }
  try {
    const text = await readStart(taken);
    return text.split('\n').flatMap(entry => parse(entry));
  } finally {
    await rm(taken, { force: true });
  }
}

async function readStart(path: string): Promise<string> {
  await using file = await open(path);
  const { buffer, bytesRead } = await file.read({ buffer: Buffer.alloc(MAX_BYTES) });
  return buffer.toString('utf8', 0, bytesRead);
}

function parse(entry: string): Reaped[] {
  try {
    const parsed = line.safeParse(JSON.parse(entry));
    return parsed.success ? [parsed.data] : [];
  } catch {
    return [];
  }
}
