// From single measurements to the figures of a row: percentiles, and how one row stands beside another.
// @ts-check

/**
 * @typedef {object} Summary
 * @property {number} n
 * @property {number} p50
 * @property {number} p95
 * @property {number} p99
 */

/**
 * What a row is of: `group` is the kind of measurement, `place` the engine and level, `name` who was measured.
 *
 * @typedef {{ group: string, place: string, name: string }} Key
 */

/**
 * @typedef {object} Details
 * @property {string} unit
 * @property {'less' | 'more'} better
 * @property {boolean} [reference] Whether the others of its group and place are set in proportion to it.
 * @property {number} [errors] Attempts that failed; they are not in the figures.
 * @property {number} [warm] The share of runs that were handed a sandbox that waited.
 */

/** @typedef {Key & Details & Summary} Measured */
/** @typedef {Key & { unavailable: string }} Missing */
/** @typedef {Measured | Missing} Row */

// 0.07 of a hundred is a little more than seven in binary.
const ROUNDING = 1e-9;

/**
 * The smallest value that is not below this share of all values: always one that was measured.
 *
 * @param {readonly number[]} values
 * @param {number} share From 0 to 1.
 */
export function percentile(values, share) {
  const sorted = values.toSorted((one, other) => one - other);
  const rank = Math.max(1, Math.ceil(share * sorted.length - ROUNDING));
  return sorted[rank - 1] ?? Number.NaN;
}

/**
 * @param {readonly number[]} values
 * @param {'less' | 'more'} [better] Where more is better, the 95th percentile is what 95 of 100 reached.
 * @returns {Summary}
 */
export function summarise(values, better = 'less') {
  const sign = better === 'less' ? 1 : -1;
  const signed = values.map(value => sign * value);
  const at = (/** @type {number} */ share) => sign * percentile(signed, share);
  return { n: values.length, p50: percentile(values, 0.5), p95: at(0.95), p99: at(0.99) };
}

/**
 * @param {Row | undefined} row
 * @returns {row is Measured}
 */
export function isMeasured(row) {
  return row !== undefined && !('unavailable' in row) && row.n > 0;
}

/**
 * The row the others of its group and place are set in proportion to.
 *
 * @param {readonly Row[]} rows
 * @param {Pick<Key, 'group' | 'place'>} key
 */
export function referenceOf(rows, { group, place }) {
  return rows.filter(isMeasured).find(row => row.group === group && row.place === place && row.reference === true);
}

/**
 * @param {Measured | undefined} row
 * @param {Measured | undefined} reference
 * @param {'p50' | 'p95' | 'p99'} at
 * @returns {number | null} Null where one of them was not measured.
 */
export function ratio(row, reference, at) {
  if (!isMeasured(row) || !isMeasured(reference)) return null;
  const value = row[at] / reference[at];
  return Number.isFinite(value) ? value : null;
}
