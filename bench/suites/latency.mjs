// How long one command takes: alone, with others coming regularly, and in a burst.
// @ts-check

import { interleave, pause, reasonOf } from '../rounds.mjs';
import { withEverybody } from './open.mjs';

/** @typedef {import('../context.mjs').Context} Context */
/** @typedef {import('../places.mjs').Place} Place */
/** @typedef {import('../candidates/candidate.mjs').Sample} Sample */
/** @typedef {import('./open.mjs').Opened} Opened */

const TURN_MS = 60_000;
const MANY_MS = 300_000;
const SMALL_POOL = { min: 2, max: 2 };
const STAGGER_POOL = { min: 2, max: 4 };
const BURST = 50;
const BURST_POOL = { min: 16, max: 16 };
const STAGGER_MS = 250;

/**
 * @typedef {{ samples: Sample[], errors: string[] }} Many
 */

/**
 * @param {Context} context
 * @param {Place} place
 */
export async function sequential(context, place) {
  await withEverybody(context, place, { pool: SMALL_POOL, dockerRun: true }, async opened => {
    const contenders = opened.candidates.map(candidate => ({
      name: candidate.name,
      settled: () => candidate.settled(),
      turn: async (/** @type {AbortSignal} */ signal) => ({ samples: [await candidate.echo(signal)], errors: [] }),
    }));
    const rounds = context.asked.quick ? 10 : 50;
    const turns = await interleave(contenders, { ...course(context, rounds), turnMs: TURN_MS });
    report(context, place, opened, 'sequential', turns);
    if (place.engine) reportParts(context, place, opened);
  });
}

/**
 * @param {Context} context
 * @param {Place} place
 */
export async function staggered(context, place) {
  const count = context.asked.quick ? 8 : 20;
  await together(context, place, { group: 'staggered', count, gapMs: STAGGER_MS, pool: STAGGER_POOL });
}

/**
 * @param {Context} context
 * @param {Place} place
 */
export async function burst(context, place) {
  await together(context, place, { group: 'burst', count: BURST, gapMs: 0, pool: BURST_POOL });
}

/**
 * @param {Context} context
 * @param {Place} place
 * @param {{ group: 'staggered' | 'burst', count: number, gapMs: number, pool: import('../candidates/acode.mjs').Pool }} of
 */
async function together(context, place, { group, count, gapMs, pool }) {
  await withEverybody(context, place, { pool, maxConcurrent: 16 }, async opened => {
    const contenders = opened.candidates.map(candidate => ({
      name: candidate.name,
      settled: () => candidate.settled(),
      turn: (/** @type {AbortSignal} */ signal) => many(count, gapMs, () => candidate.echo(signal)),
    }));
    // What the first round of others is for, one run of each does here.
    for (const candidate of opened.candidates) await candidate.echo(context.signal);
    const rounds = { ...course(context, context.asked.quick ? 1 : 3), warmUp: false, turnMs: MANY_MS };
    report(context, place, opened, group, await interleave(contenders, rounds));
  });
}

/**
 * So many runs, each begun so long after the one before, whether that has ended or not.
 *
 * @param {number} count
 * @param {number} gapMs
 * @param {() => Promise<Sample>} run
 * @returns {Promise<Many>}
 */
export async function many(count, gapMs, run) {
  /** @type {Promise<Sample>[]} */
  const all = [];
  for (let begun = 0; begun < count; begun += 1) {
    if (begun > 0 && gapMs > 0) await pause(gapMs);
    const one = run();
    one.catch(() => undefined);
    all.push(one);
  }
  const ended = await Promise.allSettled(all);
  return {
    samples: ended.flatMap(one => (one.status === 'fulfilled' ? [one.value] : [])),
    errors: ended.flatMap(one => (one.status === 'rejected' ? [reasonOf(one.reason)] : [])),
  };
}

/**
 * @param {Context} context
 * @param {number} rounds
 */
function course({ signal }, rounds) {
  return { rounds, signal };
}

/**
 * A row for the first byte and one for the result of each.
 *
 * @param {Context} context
 * @param {Place} place
 * @param {Opened} opened
 * @param {'sequential' | 'staggered' | 'burst'} group
 * @param {Map<string, { values: Many[], errors: string[] }>} turns
 */
export function report(context, place, { absent, reference }, group, turns) {
  for (const what of /** @type {const} */ (['firstByte', 'result'])) {
    for (const [name, { values, errors }] of turns) {
      const samples = values.flatMap(value => value.samples);
      const failed = [...errors, ...values.flatMap(value => value.errors)];
      const key = { group: `${group}.${what}`, place: place.name, name };
      if (samples.length === 0) context.miss(key, failed[0] ?? 'no value');
      else
        context.add(
          {
            ...key,
            unit: 'ms',
            better: 'less',
            reference: name === reference,
            errors: failed.length,
            ...warmShare(samples),
          },
          samples.map(({ firstByteMs, resultMs }) => (what === 'result' ? resultMs : firstByteMs)),
        );
    }
    for (const { name, unavailable } of absent)
      context.miss({ group: `${group}.${what}`, place: place.name, name }, unavailable);
  }
}

/**
 * @param {Context} context
 * @param {Place} place
 * @param {Opened} opened
 */
function reportParts(context, place, { candidates, reference }) {
  for (const part of /** @type {const} */ (['create', 'remove']))
    for (const { name, parts } of candidates) {
      const of = { group: `parts.${part}`, place: place.name, name, unit: 'ms', reference: name === reference };
      if (parts) context.add({ ...of, better: 'less' }, parts[part]);
    }
}

/**
 * @param {readonly Sample[]} samples
 * @returns {{ warm?: number }}
 */
export function warmShare(samples) {
  const known = samples.filter(({ warm }) => warm !== undefined);
  return known.length === 0 ? {} : { warm: known.filter(({ warm }) => warm).length / known.length };
}
