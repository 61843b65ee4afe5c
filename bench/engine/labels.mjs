// The labels of the bench’s own containers, by which it finds and removes them, also those of a bench that was killed.
// @ts-check

import { pause } from '../rounds.mjs';

/** @typedef {import('./client.mjs').EngineClient} EngineClient */

// A bench that still runs after so long has passed its own deadline.
const MAX_RUN_S = 3 * 3600;
// What was being created when a bench was interrupted appears a little later.
const AGAIN_MS = 400;

/** What the id of every session of a bench begins with. */
export const SESSION = 'bench-';

/** @param {string} run */
export function labelsOf(run) {
  return { 'acode-bench.run': run, 'acode-bench.uid': String(process.getuid?.()) };
}

/**
 * Removes what this run left, and what one that was killed left long ago.
 *
 * @param {EngineClient} client
 * @param {string} run
 * @param {AbortSignal} signal
 * @returns {Promise<number>} How many this run left.
 */
export async function sweep(client, run, signal) {
  let removed = 0;
  for (let again = 0; again < 2; again += 1) {
    if (again > 0) await pause(AGAIN_MS);
    const left = await client.list([`acode-bench.run=${run}`], signal);
    const old = await abandoned(client, signal);
    await Promise.all([...left, ...old].map(({ Id }) => client.remove(Id, signal)));
    removed += left.length;
  }
  return removed;
}

/**
 * Waits until no sandbox of a bench is there, as long as that may take.
 *
 * @param {EngineClient} client
 * @param {number} longestMs
 * @param {AbortSignal} signal
 * @returns {Promise<number>} How many there still are.
 */
export async function sandboxesLeft(client, longestMs, signal) {
  const until = performance.now() + longestMs;
  for (;;) {
    const mine = await client.list(['acode.managed', `acode.uid=${process.getuid?.()}`], signal);
    const left = mine.filter(({ Labels }) => Labels['acode.session']?.startsWith(SESSION)).length;
    if (left === 0 || performance.now() > until) return left;
    await pause(AGAIN_MS);
  }
}

/**
 * @param {EngineClient} client
 * @param {AbortSignal} signal
 */
async function abandoned(client, signal) {
  const all = await client.list([`acode-bench.uid=${process.getuid?.()}`], signal);
  const before = Date.now() / 1000 - MAX_RUN_S;
  return all.filter(({ Created }) => Created < before);
}
