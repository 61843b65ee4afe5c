// Whose a sandbox is and whether it may be removed: decided from its labels and the state of its owner. Pure.

import type { SandboxState } from '../contract/host.ts';
import type { OwnerState } from './ownership.ts';

/** What stands in the labels of a container, network or volume. */
export type Labels = Readonly<Record<string, string>>;

/** Who asks. */
export interface Asking {
  readonly uid: number;
  readonly host: string;
  /** The owner id of the session that asks. */
  readonly owner: string;
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
 * whatever is unknown is taken for alive. What was kept on purpose stays until its `lease` ends.
 */
export function judge(labels: Labels, owner: OwnerState, asking: Asking, lease: number | null): Verdict {
  const left = (because: (Verdict & { remove: false })['because']): Verdict => ({ remove: false, because });
  if (labels['acode.managed'] !== 'true') return left('not ours');
  if (labels['acode.uid'] !== String(asking.uid)) return left('another user');
  const here = labels['acode.host'] === asking.host;
  if (here && labels['acode.owner'] === asking.owner) return left('mine');
  if (isExpired(labels, asking.now, lease)) return { remove: true, because: 'expired' };
  if (!here) return left('another host');
  if (isKept(labels)) return left('kept');
  if (owner === 'dead') return { remove: true, because: 'orphaned' };
  return left(owner === 'alive' ? 'owner lives' : 'owner unknown');
}

/** What somebody who cleans up by hand wants gone besides what is left behind. */
export interface Wanted {
  readonly force?: boolean;
  readonly allSessions?: boolean;
}

/** Whether a sandbox in some state goes when somebody cleans up by hand. Another user’s or host’s never does. */
export function mayGo(verdict: Verdict, state: SandboxState, { force, allSessions }: Wanted): boolean {
  if (verdict.remove) return true;
  if (isForeign(verdict)) return false;
  if (verdict.because === 'owner lives' && !allSessions) return false;
  return force === true || (verdict.because !== 'kept' && (state === 'exited' || state === 'dead'));
}

/** Whether a thing belongs to somebody who is not asking, and is none of their business. */
export function isForeign({ because }: Verdict): boolean {
  return because === 'not ours' || because === 'another user' || because === 'another host';
}

// Past its hard maximum, or past the lease of what was kept on this host. A label that cannot be read says nothing.
function isExpired(labels: Labels, now: number, lease: number | null): boolean {
  const expires = Date.parse(labels['acode.expires'] ?? '');
  return (Number.isFinite(expires) && expires < now) || (isKept(labels) && lease !== null && lease < now);
}

function isKept(labels: Labels): boolean {
  return labels['acode.keep'] === 'true';
}
