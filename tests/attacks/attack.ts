// One attack as one test: what was tried, what was seen, what the control showed; and a line of it in the results.

import { appendFileSync } from 'node:fs';
import { it } from 'vitest';
import { rowOf } from './rows.ts';
import { facesRow } from './targets.ts';
import type { Target } from './targets.ts';
import { onWarmSandboxes } from './warm.ts';

/** What an attack that was stopped has shown. */
export interface Finding {
  /** The effect that was seen: an errno, a refusal, an unchanged file. */
  readonly observed: string;
  /** What the same action does without the protection. */
  readonly control: string;
}

/** One line of the results. */
interface Outcome extends Finding {
  readonly id: string;
  readonly target: string;
  readonly verdict: 'pass' | 'fail';
}

const results = process.env['ACODE_ATTACK_RESULTS'];

/**
 * Registers the test of a row on a target, where the row is to be tried there. Its body makes the attempt, the control
 * and the legitimate thing, throws where one of them is not as it must be, and returns what it saw.
 */
export function attack(
  target: Target,
  id: string,
  what: string,
  body: () => Promise<Finding>,
  { timeoutMs = 150_000 }: { timeoutMs?: number } = {},
): void {
  const row = rowOf(id);
  if (!facesRow(row, target)) return;
  // oxlint-disable-next-line vitest/expect-expect -- the body of each row has its own
  it(`${id} ${row.title}: ${what}`, { timeout: timeoutMs }, async () => {
    try {
      record({ id, target: target.name, verdict: 'pass', ...(await onWarmSandboxes(id, body)) });
    } catch (error) {
      const observed = error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error);
      record({ id, target: target.name, verdict: 'fail', observed, control: '' });
      throw error;
    }
  });
}

function record(outcome: Outcome): void {
  if (results) appendFileSync(results, `${JSON.stringify(outcome)}\n`);
}
