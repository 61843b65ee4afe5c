// What the figures are held to, and what came of it.
// @ts-check

import { isMeasured, ratio, referenceOf } from './figures.mjs';
import { NAMES } from './names.mjs';

/** @typedef {import('./figures.mjs').Row} Row */

/**
 * A place with what a limit may depend on.
 *
 * @typedef {{ name: string, level: string, onEngine: boolean, isHeld: boolean }} Place
 */

/**
 * @typedef {object} Limit
 * @property {string} id
 * @property {string} what
 * @property {(place: Place) => boolean} holds Where it holds.
 * @property {string} group
 * @property {string} name
 * @property {'p50' | 'p95'} at
 * @property {{ most: number } | { least: number }} bound
 * @property {string} unit
 * @property {number} [tolerance] Where it is checked on every change, how much worse it may be there: other work shares that machine.
 * @property {boolean} [withoutErrors]
 */

/**
 * @typedef {object} Verdict
 * @property {string} id
 * @property {string} what
 * @property {string} place
 * @property {string} bound
 * @property {number | null} measured
 * @property {'met' | 'not met' | 'not measured'} verdict
 * @property {string} unit
 * @property {string} [why]
 */

const onDocker = (/** @type {Place} */ { level, isHeld }) => isHeld && level === 'docker';
const onGvisor = (/** @type {Place} */ { level, isHeld }) => isHeld && level === 'gvisor';

/**
 * @param {string} id
 * @param {string} what
 * @param {readonly [group: string, name: string, at?: 'p50' | 'p95']} of
 * @param {string} bound `≤` or `≥`, a number, and its unit; `×` means in proportion to the reference of the group.
 * @param {Partial<Pick<Limit, 'holds' | 'tolerance' | 'withoutErrors'>>} [more]
 * @returns {Limit}
 */
function limit(id, what, [group, name, at = 'p50'], bound, more = {}) {
  const [sign, number, unit = ''] = bound.split(' ');
  const value = Number(number);
  return {
    id,
    what,
    group,
    name,
    at,
    unit,
    bound: sign === '≤' ? { most: value } : { least: value },
    holds: onDocker,
    ...more,
  };
}

const RESULT = 'sequential.result';

/** @type {readonly Limit[]} */
export const LIMITS = [
  limit('cold.p50', 'cold result', [RESULT, NAMES.cold], '≤ 0.97 ×', { tolerance: 0.08 }),
  // Of which the command itself, without a sandbox, takes a millisecond.
  limit('cold.whole', 'cold result, all of it', [RESULT, NAMES.cold], '≤ 500 ms'),
  limit('cold.p95', 'cold result', [RESULT, NAMES.cold, 'p95'], '≤ 1.05 ×'),
  limit('warm.p50', 'warm result', [RESULT, NAMES.warm], '≤ 5 ms'),
  limit('warm.p95', 'warm result', [RESULT, NAMES.warm, 'p95'], '≤ 15 ms'),
  limit('warm.ratio', 'warm result', [RESULT, NAMES.warm], '≤ 0.04 ×', { tolerance: 0.08 }),
  limit('warm.ratio.gvisor', 'warm result', [RESULT, NAMES.warm], '≤ 0.06 ×', { holds: onGvisor, tolerance: 0.12 }),
  limit('warm.firstByte', 'warm first byte', ['sequential.firstByte', NAMES.warm], '≤ 3 ms'),
  limit('create', 'creating a container', ['parts.create', NAMES.cold, 'p95'], '≤ 2000 ms'),
  limit('remove', 'removing a container', ['parts.remove', NAMES.cold, 'p95'], '≤ 1000 ms'),
  limit('throughput', 'throughput with refill, 8 at once', ['throughput.8', NAMES.warm], '≥ 0.95 ×', {
    withoutErrors: true,
  }),
  limit('burst', 'burst of 50 with 16 waiting, no error', ['burst.result', NAMES.warm, 'p95'], '≤ 1 ×', {
    withoutErrors: true,
  }),
  limit('command.cold', 'command less node, beside docker run', ['command.true', NAMES.commandCold], '≤ 1.15 ×'),
  limit('command.served', 'command less node, with acode serve', ['command.true', NAMES.commandServed], '≤ 60 ms'),
  limit(
    'command.background',
    'acode run, third and later',
    ['command.background', NAMES.commandBackground],
    '≤ 0.35 ×',
  ),
  limit('command.srt', 'acode run, third and later, beside srt', ['command.srt', NAMES.commandBackground], '≤ 0.35 ×'),
  limit('output', 'output beside the bare attach', ['output.bandwidth', NAMES.cold], '≥ 0.8 ×'),
  limit('line', 'a streamed line, there and back', ['output.line', NAMES.cold], '≤ 10 ms'),
  limit('memory', 'client memory of a tracked sandbox', ['memory.tracked', NAMES.resident], '≤ 1 MB'),
  limit('growth.tracked', 'a run beside 200 or more', ['growth.tracked', NAMES.mostTracked], '≤ 1.2 ×'),
  limit('growth.files', 'a run in a million files', ['growth.files', NAMES.mostFiles], '≤ 1.2 ×'),
];

/** Those that are held on every change. */
export const CHECKED = LIMITS.filter(({ tolerance }) => tolerance !== undefined);

/**
 * What came of the limits, one verdict for each place they hold at. With `tolerant`, each may be worse by its tolerance.
 *
 * @param {readonly Limit[]} limits
 * @param {readonly Row[]} rows
 * @param {readonly Place[]} places
 * @param {{ tolerant?: boolean }} [how]
 * @returns {Verdict[]}
 */
export function judge(limits, rows, places, { tolerant = false } = {}) {
  return limits.flatMap(of =>
    places.filter(of.holds).map(place => verdictOf(of, rows, place, tolerant ? (of.tolerance ?? 0) : 0)),
  );
}

/**
 * @param {Limit} of
 * @param {readonly Row[]} rows
 * @param {Place} place
 * @param {number} tolerance
 * @returns {Verdict}
 */
function verdictOf(of, rows, place, tolerance) {
  const row = rows.find(
    ({ group, name, place: where }) => group === of.group && name === of.name && where === place.name,
  );
  const { id, unit, bound } = of;
  const common = {
    id,
    what: `${of.what}, ${of.at}`,
    place: place.name,
    bound: boundText(bound, unit, tolerance),
    unit,
  };
  const measured = figureOf(of, row, rows);
  if (measured === null) return { ...common, measured, verdict: 'not measured', ...whyNot(row) };
  const errors = of.withoutErrors && isMeasured(row) ? (row.errors ?? 0) : 0;
  if (errors > 0) return { ...common, measured, verdict: 'not met', why: `${errors} errors` };
  return { ...common, measured, verdict: isWithin(measured, bound, tolerance) ? 'met' : 'not met' };
}

/** @param {Row | undefined} row */
function whyNot(row) {
  return row && 'unavailable' in row ? { why: row.unavailable } : {};
}

/**
 * @param {Limit} of
 * @param {Row | undefined} row
 * @param {readonly Row[]} rows
 */
function figureOf({ at, unit }, row, rows) {
  if (!isMeasured(row)) return null;
  return unit === '×' ? ratio(row, referenceOf(rows, row), at) : row[at];
}

/**
 * @param {number} measured
 * @param {Limit['bound']} bound
 * @param {number} tolerance
 */
function isWithin(measured, bound, tolerance) {
  return 'most' in bound ? measured <= bound.most + tolerance : measured >= bound.least - tolerance;
}

/**
 * @param {Limit['bound']} bound
 * @param {string} unit
 * @param {number} tolerance
 */
function boundText(bound, unit, tolerance) {
  const text = 'most' in bound ? `≤ ${bound.most} ${unit}` : `≥ ${bound.least} ${unit}`;
  return tolerance === 0 ? text : `${text}, ${'most' in bound ? '+' : '−'}${tolerance}`;
}
