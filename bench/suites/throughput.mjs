// How many commands come through, with a number of them under way at any time.
// @ts-check

import { interleave, reasonOf } from '../rounds.mjs';
import { withEverybody } from './open.mjs';

/** @typedef {import('../context.mjs').Context} Context */
/** @typedef {import('../places.mjs').Place} Place */
/** @typedef {import('../candidates/candidate.mjs').Candidate} Candidate */

const CONCURRENCIES = [1, 4, 8, 16];
const POOL = { min: 16, max: 16 };
const MAX_ERRORS = 10;

/**
 * @typedef {object} Sustained
 * @property {number} perSecond
 * @property {number} warm
 * @property {string[]} errors
 */

/**
 * @param {Context} context
 * @param {Place} place
 */
export async function throughput(context, place) {
  // What is waiting at first is used up in the lead: what counts is what goes on for ever.
  const times = context.asked.quick ? { leadMs: 3000, windowMs: 5000 } : { leadMs: 5000, windowMs: 15_000 };
  await withEverybody(context, place, { pool: POOL, maxConcurrent: 16 }, async ({ candidates, absent, reference }) => {
    for (const concurrency of CONCURRENCIES) {
      const contenders = candidates.map(candidate => ({
        name: candidate.name,
        settled: () => candidate.settled(),
        turn: (/** @type {AbortSignal} */ signal) => sustained(candidate, concurrency, { ...times, signal }),
      }));
      const rounds = context.asked.quick ? 1 : 2;
      const turns = await interleave(contenders, { rounds, signal: context.signal, turnMs: 180_000, warmUp: false });
      const group = `throughput.${concurrency}`;
      for (const [name, { values, errors }] of turns) {
        const key = { group, place: place.name, name };
        const failed = [...errors, ...values.flatMap(value => value.errors)];
        const warm = values.reduce((sum, value) => sum + value.warm, 0) / values.length;
        if (values.length === 0) context.miss(key, failed[0] ?? 'no value');
        else
          context.add(
            {
              ...key,
              unit: 'runs/s',
              better: 'more',
              reference: name === reference,
              errors: failed.length,
              ...(Number.isNaN(warm) ? {} : { warm }),
            },
            values.map(({ perSecond }) => perSecond),
          );
      }
      for (const { name, unavailable } of absent) context.miss({ group, place: place.name, name }, unavailable);
    }
  });
}

/**
 * Keeps so many under way until the window has passed, and counts those that end in it.
 *
 * @param {Pick<Candidate, 'echo' | 'caughtUp'>} candidate
 * @param {number} concurrency
 * @param {{ leadMs: number, windowMs: number, signal: AbortSignal, now?: () => number }} of
 * @returns {Promise<Sustained>}
 */
export async function sustained(candidate, concurrency, { leadMs, windowMs, signal, now = () => performance.now() }) {
  const from = now() + leadMs;
  const until = from + windowMs;
  /** @type {{ at: number, warm: boolean | undefined }[]} */
  const ends = [];
  /** @type {string[]} */
  const errors = [];
  const worker = async () => {
    while (now() < until && errors.length < MAX_ERRORS) {
      // Whoever lets removals pile up is fast for a while and not for ever.
      await candidate.caughtUp(concurrency);
      try {
        const { warm } = await candidate.echo(signal);
        ends.push({ at: now(), warm });
      } catch (error) {
        errors.push(reasonOf(error));
      }
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  const counted = ends.filter(({ at }) => at >= from);
  return {
    perSecond: rateOf(counted.map(({ at }) => at)),
    warm: counted.every(({ warm }) => warm === undefined)
      ? Number.NaN
      : counted.filter(({ warm }) => warm).length / counted.length,
    errors,
  };
}

/**
 * Ends in a second, from the first to the last: the window’s own ends fall at no particular moment.
 *
 * @param {readonly number[]} times In milliseconds.
 */
export function rateOf(times) {
  if (times.length < 2) return Number.NaN;
  const sorted = times.toSorted((one, other) => one - other);
  const span = (sorted.at(-1) ?? 0) - (sorted[0] ?? 0);
  return ((times.length - 1) * 1000) / span;
}
