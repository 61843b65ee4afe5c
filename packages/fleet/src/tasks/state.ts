// State of a task: where it stands, and which step leads to which. Every step is a write that compares the revision.

import * as z from 'zod';
import { FLEET_ERRORS } from '../errors.ts';

/** Where a task stands. `claimed`: a worker prepares or runs it. The last six are final. */
export type TaskStateName = 'queued' | 'claimed' | FinalState;

/** How a task ended. `failed`: its command had another status than 0, or the task was refused. `lost`: no worker could end it. */
export type FinalState = 'succeeded' | 'failed' | 'timed_out' | 'cancelled' | 'lost' | 'refused';

const FINAL = ['succeeded', 'failed', 'timed_out', 'cancelled', 'lost', 'refused'] as const;

const stateSchema = z.strictObject({
  schema: z.literal('acode.fleet.state/1'),
  state: z.enum(['queued', 'claimed', ...FINAL]),
  /** How many workers have begun it. */
  attempt: z.int().nonnegative(),
  /** The worker that has it, or had it last. */
  worker: z.string().nullable(),
  /** A number that only the holder of the claim knows to be its own: a lost answer does not leave it in doubt. */
  claim: z.string().nullable(),
  at: z.iso.datetime(),
  cancelRequested: z.literal(true).optional(),
  /** The outcome, signed by the worker. */
  outcome: z.string().optional(),
});

/** The state of a task as it is stored. */
export type TaskState = z.infer<typeof stateSchema>;

/** The state in a text. */
export function parseState(text: string): TaskState {
  try {
    return stateSchema.parse(JSON.parse(text));
  } catch (cause) {
    const about = { name: 'The state of a task', setting: 'form', found: 'another', needed: 'acode.fleet.state/1' };
    throw FLEET_ERRORS.create('ACODE-FLT-003', about, { cause });
  }
}

/** Whether a task in this state is done. */
export function isFinal({ state }: Pick<TaskState, 'state'>): boolean {
  return FINAL.some(one => one === state);
}

/** What a worker may do with a task that it was handed. */
export type ClaimStep =
  | { readonly step: 'claim'; readonly next: TaskState }
  /** Too many workers began it: it is lost. */
  | { readonly step: 'lose'; readonly next: TaskState }
  /** It is final: it leaves the queue. */
  | { readonly step: 'remove' }
  /** Another worker has it, and lives. */
  | { readonly step: 'wait' };

/** Who would claim, and how the holder of the present claim fares. */
export interface Claimant {
  readonly worker: string;
  readonly claim: string;
  readonly at: string;
  readonly maxAttempts: number;
  /** Whether the worker that holds the claim has a lease. */
  readonly holderLives: boolean;
}

/** The step of a worker that was handed a task in this state; null: it has none yet. */
export function claimStep(found: TaskState | null, claimant: Claimant): ClaimStep {
  const { worker, claim, at, maxAttempts, holderLives } = claimant;
  if (!found) return claimFirst(claimant);
  if (isFinal(found)) return { step: 'remove' };
  if (found.state === 'claimed' && holderLives) return { step: 'wait' };
  const nobody = { ...withoutRequest(found), at, claim: null };
  if (found.cancelRequested) return { step: 'lose', next: { ...nobody, state: 'cancelled', worker: null } };
  if (found.attempt >= maxAttempts) return { step: 'lose', next: { ...nobody, state: 'lost' } };
  return { step: 'claim', next: { ...nobody, state: 'claimed', attempt: found.attempt + 1, worker, claim } };
}

function claimFirst({ worker, claim, at }: Claimant): ClaimStep {
  return { step: 'claim', next: { schema: 'acode.fleet.state/1', state: 'claimed', attempt: 1, worker, claim, at } };
}

/** The state without the request to cancel: it is answered. */
export function withoutRequest(state: TaskState): TaskState {
  const { cancelRequested: _answered, ...rest } = state;
  return rest;
}

/** The state after a request to cancel; null where it changes nothing. */
export function cancelled(found: TaskState | null, at: string): TaskState | null {
  const base = { schema: 'acode.fleet.state/1', at } as const;
  if (!found) return { ...base, state: 'cancelled', attempt: 0, worker: null, claim: null };
  if (isFinal(found) || found.cancelRequested) return null;
  if (found.state === 'queued')
    return { ...base, state: 'cancelled', attempt: found.attempt, worker: null, claim: null };
  return { ...found, cancelRequested: true };
}
