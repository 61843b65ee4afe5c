// Whose a sandbox is and whether it may be removed: decided from its labels and the state of its owner. Pure.

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
 * whatever is unknown is taken for alive.
 */
export function judge(labels: Labels, owner: OwnerState, asking: Asking): Verdict {
  const left = (because: (Verdict & { remove: false })['because']): Verdict => ({ remove: false, because });
  if (labels['acode.managed'] !== 'true') return left('not ours');
  if (labels['acode.uid'] !== String(asking.uid)) return left('another user');
  const here = labels['acode.host'] === asking.host;
  if (here && labels['acode.owner'] === asking.owner) return left('mine');
  if (isExpired(labels, asking.now)) return { remove: true, because: 'expired' };
  if (!here) return left('another host');
  if (labels['acode.keep'] === 'true') return left('kept');
  if (owner === 'dead') return { remove: true, because: 'orphaned' };
  return left(owner === 'alive' ? 'owner lives' : 'owner unknown');
}

// Past its hard maximum. A label that cannot be read says nothing.
function isExpired(labels: Labels, now: number): boolean {
  const expires = Date.parse(labels['acode.expires'] ?? '');
  return Number.isFinite(expires) && expires < now;
}
