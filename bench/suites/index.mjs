// Every measurement at every place, one after another: two at a time would measure each other.
// @ts-check

import { reasonOf } from '../rounds.mjs';
import { check } from './check.mjs';
import { command } from './command.mjs';
import { growth } from './growth.mjs';
import { burst, sequential, staggered } from './latency.mjs';
import { memory } from './memory.mjs';
import { output } from './output.mjs';
import { throughput } from './throughput.mjs';

/** @typedef {import('../context.mjs').Context} Context */
/** @typedef {import('../places.mjs').Place} Place */

const SUITES = { sequential, staggered, burst, throughput, output, command, memory, growth };

// What of a suite is shown where it could not be had at all.
const FIRST_GROUP = /** @type {const} */ ({
  sequential: 'sequential.result',
  staggered: 'staggered.result',
  burst: 'burst.result',
  throughput: 'throughput.8',
  output: 'output.bandwidth',
  command: 'command.true',
  memory: 'memory.tracked',
  growth: 'growth.files',
});

/**
 * @param {Context} context
 * @param {readonly Place[]} places
 */
export async function measurements(context, places) {
  if (context.asked.check) return check(context, places);
  for (const place of places)
    for (const suite of context.asked.suites) {
      context.signal.throwIfAborted();
      context.say(`${place.name}: ${suite}`);
      try {
        await SUITES[suite](context, place);
      } catch (error) {
        context.signal.throwIfAborted();
        // One that is not to be had here is no reason to know nothing of the others.
        context.miss({ group: FIRST_GROUP[suite], place: place.name, name: 'everybody' }, reasonOf(error));
      }
    }
}
