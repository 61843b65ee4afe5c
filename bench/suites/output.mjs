// How fast output comes: all of a large one, and one line at a time.
// @ts-check

import { interleave } from '../rounds.mjs';
import { withEverybody } from './open.mjs';

/** @typedef {import('../context.mjs').Context} Context */
/** @typedef {import('../places.mjs').Place} Place */

const POOL = { min: 2, max: 2 };
const MB = 1e6;
const TURN_MS = 180_000;
const LINES = 100;

/**
 * @param {Context} context
 * @param {Place} place
 */
export async function output(context, place) {
  // A gigabyte, where it does not take minutes.
  const bytes = context.asked.quick || place.level === 'gvisor' ? 100 * MB : 1000 * MB;
  await withEverybody(context, place, { pool: POOL }, async ({ candidates, absent, reference }) => {
    const how = { rounds: context.asked.quick ? 2 : 4, signal: context.signal, turnMs: TURN_MS };
    const bandwidth = await interleave(
      candidates.map(candidate => ({
        name: candidate.name,
        settled: () => candidate.settled(),
        turn: async (/** @type {AbortSignal} */ signal) => [
          bytes / MB / ((await candidate.print(bytes, signal)) / 1000),
        ],
      })),
      { ...how, warmUp: false },
    );
    const lines = await interleave(
      candidates.map(candidate => ({
        name: candidate.name,
        settled: () => candidate.settled(),
        turn: (/** @type {AbortSignal} */ signal) => candidate.lines(LINES, signal),
      })),
      { ...how, warmUp: false },
    );
    const kinds = /** @type {const} */ ([
      ['output.bandwidth', bandwidth, { unit: 'MB/s', better: 'more' }],
      ['output.line', lines, { unit: 'ms', better: 'less' }],
    ]);
    for (const [group, turns, of] of kinds) {
      for (const [name, { values, errors }] of turns) {
        const key = { group, place: place.name, name };
        if (values.length === 0) context.miss(key, errors[0] ?? 'no value');
        else context.add({ ...key, ...of, reference: name === reference, errors: errors.length }, values.flat());
      }
      for (const { name, unavailable } of absent) context.miss({ group, place: place.name, name }, unavailable);
    }
  });
}
