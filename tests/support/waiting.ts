// Waiting in tests. How long something took is a figure and not an assertion: machines that run tests may be busy.

import { expect } from 'vitest';
import { everything } from './targets.ts';

// Only for what never happens, on the slowest machine.
const LATE_MS = 60_000;
const PAUSE_MS = 10;

/** Waits until something holds; says how long that took. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<number> {
  const began = performance.now();
  while (!(await holds())) {
    if (performance.now() - began > LATE_MS) throw new Error(`not within ${LATE_MS} ms: ${holds.toString()}`);
    await new Promise(resolve => void setTimeout(resolve, PAUSE_MS));
  }
  return performance.now() - began;
}

/** Prints how long something took. Only the long test suite, which has its machine for itself, holds it to the limit. */
export function figure(what: string, ms: number, maxMs: number): void {
  process.stdout.write(`FIGURE ${what}: ${Math.round(ms)} ms, at most ${maxMs}\n`);
  if (everything) expect(ms, what).toBeLessThan(maxMs);
}
