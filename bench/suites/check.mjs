// What is checked on every change: the cold and the warm result beside the bare engine’s, as many rounds as there is time for.
// @ts-check

import { interleave } from '../rounds.mjs';
import { report } from './latency.mjs';
import { withEverybody } from './open.mjs';

/** @typedef {import('../context.mjs').Context} Context */
/** @typedef {import('../places.mjs').Place} Place */

const MAX_ROUNDS = 60;
const LEAST_ROUNDS = 9;
const TURN_MS = 20_000;
const POOL = { min: 2, max: 2 };
// For closing everything in the end.
const RESERVE_MS = 10_000;

/**
 * @param {Context} context
 * @param {readonly Place[]} places
 */
export async function check(context, places) {
  for (const [at, place] of places.entries()) {
    const share = (context.leftMs - RESERVE_MS) / (places.length - at);
    const untilMs = performance.now() + share * 0.9;
    await withEverybody(context, place, { pool: POOL }, async opened => {
      const turns = await interleave(
        opened.candidates.map(candidate => ({
          name: candidate.name,
          settled: () => candidate.settled(),
          turn: async (/** @type {AbortSignal} */ signal) => ({ samples: [await candidate.echo(signal)], errors: [] }),
        })),
        { rounds: MAX_ROUNDS, leastRounds: LEAST_ROUNDS, untilMs, signal: context.signal, turnMs: TURN_MS },
      );
      report(context, place, opened, 'sequential', turns);
    });
  }
}
