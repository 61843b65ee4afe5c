// Grants and offers: a worker tells the gates what it has and has room for, a gate tells it which tasks to begin. Notices may be lost.

import * as z from 'zod';
import { PRIORITIES, checkedKey, checkedName } from '../engine/names.ts';
import type { TaskKey } from '../engine/names.ts';

/** One task that a worker has, by the grant with which it came. */
const heldSchema = z.tuple([z.string(), z.string(), z.string()]);

const offerSchema = z.strictObject({
  worker: z.string(),
  slots: z.int().nonnegative(),
  /** Tenant, id and grant of each task that it has. */
  has: z.array(heldSchema),
  /** Those that it has no more, the latest last; with the milliseconds until another worker may begin it, null: it is over. */
  ended: z.array(z.tuple([z.string(), z.string(), z.string(), z.number().nullable()])),
  /** Tenants for which it has a process, and perhaps sandboxes, already. */
  hot: z.array(z.string()),
});

/** What a worker has, and has room for. */
export type Offer = z.infer<typeof offerSchema>;

/** A task that a worker is to begin. */
export interface Grant extends TaskKey {
  readonly pool: string;
  readonly priority: (typeof PRIORITIES)[number];
  /** What tells it from every other grant. */
  readonly grant: string;
}

/** The offer in a notice; null where it is none. */
export function parseOffer(text: string): Offer | null {
  try {
    return offerSchema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}

/** The notice of a grant. */
export function grantText({ tenant, id, pool, priority, grant }: Grant): string {
  return `grant ${tenant} ${id} ${pool} ${priority} ${grant}`;
}

/** The grant in a notice; null where it is none. */
export function parseGrant(text: string): Grant | null {
  const [what, tenant = '', id = '', pool = '', priority = '', grant = ''] = text.split(' ');
  const known = PRIORITIES.find(one => one === priority);
  if (what !== 'grant' || !known || grant === '') return null;
  try {
    return { ...checkedKey({ tenant, id }), pool: checkedName('pool', pool), priority: known, grant };
  } catch {
    return null;
  }
}
