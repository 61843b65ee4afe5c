// What a bench is asked for on its command line.
// @ts-check

import { parseArgs } from 'node:util';

/** Every kind of measurement, by the name `--only` takes. */
export const SUITES = /** @type {const} */ ([
  'sequential',
  'staggered',
  'burst',
  'throughput',
  'output',
  'command',
  'memory',
  'growth',
]);

/** @typedef {(typeof SUITES)[number]} Suite */

export const USAGE = `npm run bench -- [options]

  --quick           fewer rounds: a few minutes in place of an hour
  --check           only the cold and warm ratios, within two minutes; status 1 where a limit is not met
  --only NAME       only this measurement (${SUITES.join(', ')})
                    or this place (none, ulimit, bubblewrap, gvisor, or an engine by name); can be repeated
  --growth          with what takes long: a thousand sandboxes at once, workspaces of a million files
  --json FILE       where the figures go (bench/results.json)
  --socket PATH     an engine besides the test engines, with --image REFERENCE of an image that is there`;

/**
 * @typedef {object} Asked
 * @property {boolean} quick
 * @property {boolean} check
 * @property {boolean} growth
 * @property {boolean} help
 * @property {readonly Suite[]} suites
 * @property {readonly string[]} places Those asked for by name; empty for all.
 * @property {string | null} json
 * @property {{ socket: string, image: string } | null} engine
 */

/**
 * @param {readonly string[]} words
 * @returns {Asked}
 */
export function readArguments(words) {
  const { values, positionals } = parseArgs({
    args: [...words],
    allowPositionals: true,
    options: {
      quick: { type: 'boolean', default: false },
      check: { type: 'boolean', default: false },
      growth: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
      only: { type: 'string', multiple: true, default: [] },
      json: { type: 'string' },
      socket: { type: 'string' },
      image: { type: 'string' },
    },
  });
  // `--only burst docker28`: what stands free belongs to it.
  if (positionals.length > 0 && values.only.length === 0) throw new Error(`unexpected: ${positionals.join(' ')}`);
  const names = [...values.only, ...positionals];
  const suites = SUITES.filter(suite => names.includes(suite));
  return {
    quick: values.quick,
    check: values.check,
    growth: values.growth,
    help: values.help,
    suites: suites.length > 0 ? suites : SUITES,
    places: names.filter(name => !suites.some(suite => suite === name)),
    json: values.json ?? null,
    engine: engineOf(values.socket, values.image),
  };
}

/**
 * @param {string | undefined} socket
 * @param {string | undefined} image
 */
function engineOf(socket, image) {
  if (socket === undefined && image === undefined) return null;
  if (socket === undefined || image === undefined) throw new Error('--socket and --image go together');
  return { socket, image };
}
