// Names in the fleet: they become parts of subjects, keys and tables, and nothing else can stand in them.

import { FLEET_ERRORS } from '../errors.ts';

/** Which task: a tenant’s own id for it. No two tenants share a key. */
export interface TaskKey {
  /** The tenant: 1 to 40 small letters, digits and hyphens. */
  readonly tenant: string;
  /** The id that the submitter gave it: 1 to 64 letters, digits, `_` and `-`. */
  readonly id: string;
}

/** How urgent a task is. Workers take `high` before `normal` before `low`. */
export type Priority = 'high' | 'normal' | 'low';

/** Every priority, the most urgent first. */
export const PRIORITIES: readonly Priority[] = ['high', 'normal', 'low'];

const SMALL = { pattern: /^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$/, rule: '1 to 40 small letters, digits and hyphens' };
const MIXED = { pattern: /^[A-Za-z0-9_-]{1,64}$/, rule: '1 to 64 letters, digits, `_` and `-`' };
const HASH = { pattern: /^[0-9a-f]{64}$/, rule: 'a SHA-256 in hexadecimal' };

const RULES = { fleet: SMALL, tenant: SMALL, pool: SMALL, task: MIXED, worker: MIXED, hash: HASH } as const;

/** The name as it is, if it may be one; refuses every other, before it can become part of a subject. */
export function checkedName(what: keyof typeof RULES, value: string): string {
  const { pattern, rule } = RULES[what];
  if (!pattern.test(value))
    throw FLEET_ERRORS.create('ACODE-FLT-004', { what, value: value.slice(0, 80), rule: `it needs ${rule}` });
  return value;
}

/** Under which name a lease is kept: that of a worker, or of a sandbox with its tenant, whose dot no worker’s name has. */
export function leaseName(holder: string | TaskKey): string {
  if (typeof holder === 'string') return checkedName('worker', holder);
  const { tenant, id } = checkedKey(holder);
  return `${tenant}.${id}`;
}

/** The key, if both its parts are names. */
export function checkedKey({ tenant, id }: TaskKey): TaskKey {
  return { tenant: checkedName('tenant', tenant), id: checkedName('task', id) };
}
