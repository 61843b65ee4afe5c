// Interleaving: in each round everybody has a turn, in an order that goes on from round to round, so that a busy moment of the
// machine is everybody’s and nobody is always the one after the slowest.
// @ts-check

import { setMaxListeners } from 'node:events';

/**
 * Somebody who takes turns. What `settled` waits for is what a turn left to be done off the path, such as removing a sandbox.
 *
 * @template Value
 * @typedef {{ name: string, turn: (signal: AbortSignal) => Promise<Value>, settled: () => Promise<void> }} Contender
 */

/**
 * @template Value
 * @typedef {{ values: Value[], errors: string[] }} Turns
 */

/**
 * @typedef {object} Course
 * @property {number} rounds
 * @property {AbortSignal} signal
 * @property {number} turnMs The longest a turn may take.
 * @property {boolean} [warmUp] Whether a round goes before them that does not count; it does unless told otherwise.
 * @property {number} [untilMs] No round begins after this time of `now`, once there are as many as `leastRounds`.
 * @property {number} [leastRounds]
 * @property {() => number} [now]
 */

// Somebody who fails again and again keeps the others waiting.
const MAX_ERRORS = 3;

/**
 * @template Value
 * @param {readonly Value[]} all
 * @param {number} round
 * @returns {Value[]}
 */
export function orderOf(all, round) {
  const first = all.length === 0 ? 0 : ((round % all.length) + all.length) % all.length;
  return [...all.slice(first), ...all.slice(0, first)];
}

/**
 * Every contender’s values, by name. A first round, which reads everything from the disk, is not among them. Nobody has a turn
 * before what the others left to be done is done.
 *
 * @template Value
 * @param {readonly Contender<Value>[]} contenders
 * @param {Course} course
 * @returns {Promise<Map<string, Turns<Value>>>}
 */
export async function interleave(contenders, course) {
  const { rounds, signal, warmUp = true } = course;
  /** @type {Map<string, Turns<Value>>} */
  const all = new Map(contenders.map(({ name }) => [name, { values: [], errors: [] }]));
  for (let round = warmUp ? -1 : 0; round < rounds && !isOver(round, course); round += 1)
    for (const contender of orderOf(contenders, round + 1)) {
      const turns = all.get(contender.name);
      if (!turns || turns.errors.length >= MAX_ERRORS) continue;
      signal.throwIfAborted();
      await Promise.all(contenders.map(({ settled }) => settled()));
      await takeTurn(contender, turns, round >= 0, turnSignal(course));
    }
  return all;
}

/** @param {Course} course */
function turnSignal({ signal, turnMs }) {
  const both = AbortSignal.any([signal, AbortSignal.timeout(turnMs)]);
  // A turn of fifty at once has as many listeners.
  setMaxListeners(0, both);
  return both;
}

/**
 * @param {number} round
 * @param {Course} course
 */
function isOver(round, { untilMs = Infinity, leastRounds = 0, now = () => performance.now() }) {
  return round >= leastRounds && now() >= untilMs;
}

/**
 * @template Value
 * @param {Contender<Value>} contender
 * @param {Turns<Value>} turns
 * @param {boolean} counts
 * @param {AbortSignal} signal
 */
async function takeTurn({ turn }, turns, counts, signal) {
  try {
    const value = await turn(signal);
    if (counts) turns.values.push(value);
  } catch (error) {
    turns.errors.push(reasonOf(error));
  }
}

/**
 * One line that says why.
 *
 * @param {unknown} error
 */
export function reasonOf(error) {
  const text = error instanceof Error ? error.message : String(error);
  return text.split('\n')[0] ?? '';
}

/** @param {number} ms */
export const pause = ms => new Promise(resolve => void setTimeout(resolve, ms));
