// Outcome of a task: what its worker signs over task, attempt and claim.

import type { RunResult } from '@acode/sandbox';
import * as z from 'zod';

const errorSchema = z.looseObject({
  code: z.string(),
  message: z.string(),
  hint: z.string(),
  /** Why a sandbox ended. */
  reason: z.string().optional(),
});
// Written by a worker whose signature was verified, with the version of the library that it has.
const resultSchema = z.custom<RunResult>(value => typeof value === 'object' && value !== null && 'exitCode' in value);

const outcomeSchema = z.strictObject({
  tenant: z.string(),
  id: z.string(),
  attempt: z.int().positive(),
  claim: z.string(),
  worker: z.string(),
  result: resultSchema.optional(),
  error: errorSchema.optional(),
  /** How many pieces its log has. */
  logPieces: z.int().nonnegative(),
  /** The SHA-256 of the files that the command left, where they were asked for. */
  files: z.string().optional(),
});

/** What came of a task. */
export type Outcome = z.infer<typeof outcomeSchema>;

/** The outcome in a text; null where it is not one. */
export function parseOutcome(body: string): Outcome | null {
  try {
    return outcomeSchema.parse(JSON.parse(body));
  } catch {
    return null;
  }
}
