// The table a person reads: one block for each kind of measurement and place, and what came of the limits.
// @ts-check

import { isMeasured, ratio, referenceOf } from './figures.mjs';
import { GROUPS } from './names.mjs';

/** @typedef {import('./figures.mjs').Row} Row */
/** @typedef {import('./figures.mjs').Measured} Measured */
/** @typedef {import('./limits.mjs').Verdict} Verdict */

const NOTHING = '–';

/**
 * Three digits that say something, whatever the size.
 *
 * @param {number | null} value
 */
export function shown(value) {
  if (value === null || !Number.isFinite(value)) return NOTHING;
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

/**
 * Columns as wide as what is in them; the first one to the left, the others to the right.
 *
 * @param {readonly (readonly string[])[]} lines
 */
export function columns(lines) {
  const count = Math.max(0, ...lines.map(line => line.length));
  const widths = Array.from({ length: count }, (_, at) =>
    // What stands alone in its line, such as a reason, does not widen a column.
    Math.max(0, ...lines.filter(line => line.length === count || at === 0).map(line => width(line[at] ?? ''))),
  );
  return lines.map(line =>
    line
      .map((cell, at) => {
        if (line.length < count && at > 0) return cell;
        const space = ' '.repeat(Math.max(0, (widths[at] ?? 0) - width(cell)));
        return at === 0 ? cell + space : space + cell;
      })
      .join('  ')
      .trimEnd(),
  );
}

/** @param {string} text */
const width = text => Array.from(text).length;

/**
 * @param {readonly Row[]} rows
 * @returns {string}
 */
export function renderRows(rows) {
  const blocks = Object.entries(GROUPS).flatMap(([group, title]) => {
    const inGroup = rows.filter(row => row.group === group);
    return [...new Set(inGroup.map(({ place }) => place))].map(place =>
      renderBlock(
        title,
        inGroup.filter(row => row.place === place),
      ),
    );
  });
  return blocks.join('\n\n');
}

/**
 * @param {string} title
 * @param {readonly Row[]} rows
 */
function renderBlock(title, rows) {
  const [first] = rows;
  if (!first) return '';
  const reference = referenceOf(rows, first);
  const unit = rows.find(isMeasured)?.unit;
  const beside = reference ? [`× ${reference.name} p50`, 'p95'] : ['', ''];
  const head = ['', 'n', 'p50', 'p95', 'p99', ...beside, 'warm', 'errors'];
  const lines = columns([head, ...rows.map(row => cells(row, reference))]);
  return [`${first.place}: ${title}${unit === undefined ? '' : ` (${unit})`}`, ...lines.map(line => `  ${line}`)].join(
    '\n',
  );
}

/**
 * @param {Row} row
 * @param {Measured | undefined} reference
 * @returns {string[]}
 */
function cells(row, reference) {
  if (!isMeasured(row)) return [row.name, `not available: ${'unavailable' in row ? row.unavailable : 'no value'}`];
  const { name, n, p50, p95, p99, warm, errors = 0 } = row;
  const isReference = row === reference;
  return [
    name,
    String(n),
    ...[p50, p95, p99].map(shown),
    ...(isReference ? [NOTHING, NOTHING] : [shown(ratio(row, reference, 'p50')), shown(ratio(row, reference, 'p95'))]),
    warm === undefined ? NOTHING : `${Math.round(warm * 100)} %`,
    errors === 0 ? NOTHING : String(errors),
  ];
}

const MARKS = { met: '✓', 'not met': '✗', 'not measured': '?' };

/**
 * @param {readonly Verdict[]} verdicts
 * @returns {string}
 */
export function renderVerdicts(verdicts) {
  if (verdicts.length === 0) return 'No limit holds here: there is no engine they are set for.';
  const lines = columns(
    verdicts.map(({ what, place, bound, measured, verdict, unit }) => [
      `${MARKS[verdict]} ${place}: ${what}`,
      measured === null ? NOTHING : `${shown(measured)} ${unit}`,
      bound,
      verdict,
    ]),
  );
  // Not a column of its own: one long reason would make every line long.
  return lines.map((line, at) => (verdicts[at]?.why === undefined ? line : `${line}: ${verdicts[at].why}`)).join('\n');
}

/**
 * For whoever collects figures from a log.
 *
 * @param {Verdict} verdict
 */
export function figureLine({ id, place, measured, unit, bound, verdict }) {
  const figure = measured === null ? NOTHING : `${measured.toFixed(3)} ${unit}`;
  return `FIGURE ${place} ${id}: ${figure} (${bound}), ${verdict}`;
}
