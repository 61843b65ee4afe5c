// Tables and lists of fields, readable in a narrow terminal and in a pipe.

import type { Look } from './look.ts';
import { cut, oneLine, pad, widthOf } from './text.ts';
import { hanging, proseWidth } from './wrap.ts';

const GAP = '  ';
const BELOW = '      ';
const LEAST = 4;
// What of a wide column tells its cells apart, mostly.
const ENOUGH = 32;

/**
 * A table. Where the style has a width that is too small, the columns of `giveWay` are left out, one after the other; then
 * cells are cut with `…`, the widest column first.
 */
export function table(
  titles: readonly string[],
  rows: readonly (readonly string[])[],
  look: Look,
  giveWay: readonly string[] = [],
): string {
  const [least, ...next] = giveWay;
  const lines = [titles, ...rows].map(row => row.map(oneLine));
  if (least !== undefined && !fits(lines, look.width)) {
    const kept = (cells: readonly string[]): string[] => cells.filter((_, column) => titles[column] !== least);
    return table(kept(titles), rows.map(kept), look, next);
  }
  const wanted = titles.map((_, column) => Math.max(...lines.map(line => widthOf(line[column] ?? ''))));
  const widths = fitted(wanted, look.width);
  return lines
    .map((line, index) => {
      const cells = line.map((cell, column) => pad(cut(cell, widths[column] ?? 0), widths[column] ?? 0));
      const text = cells.join(GAP).trimEnd();
      const shown = look.width === null ? text : cut(text, look.width);
      return index === 0 ? look.colours.bold(shown) : shown;
    })
    .join('\n')
    .concat('\n');
}

function fits(lines: readonly (readonly string[])[], width: number | null): boolean {
  const wanted = (lines[0] ?? []).map((_, column) =>
    Math.min(ENOUGH, Math.max(...lines.map(line => widthOf(line[column] ?? '')))),
  );
  return width === null || wanted.reduce((sum, one) => sum + one + GAP.length, -GAP.length) <= width;
}

/**
 * Lines of `label  value`, values aligned and wrapped. Values are never cut: a path that is half shown is of no use. One
 * that has a word too long for its column stands below its label.
 */
export function fields(pairs: readonly (readonly [label: string, value: string])[], look: Look): string {
  const labels = Math.max(0, ...pairs.map(([label]) => widthOf(label)));
  const width = proseWidth(look);
  return pairs
    .map(([label, value]) => {
      const text = oneLine(value);
      const prefix = `  ${look.colours.dim(pad(label, labels))}  `;
      const isBeside = width === null || longestWord(text) <= width - widthOf(prefix);
      const lines = isBeside
        ? hanging(prefix, text, width)
        : `  ${look.colours.dim(label)}\n${hanging(BELOW, text, width, BELOW)}`;
      return `${lines}\n`;
    })
    .join('');
}

function longestWord(text: string): number {
  return Math.max(0, ...text.split(' ').map(widthOf));
}

// Takes from the widest column until all fit; a table of many columns stops at a few characters each.
function fitted(wanted: readonly number[], total: number | null): number[] {
  const widths = [...wanted];
  if (total === null) return widths;
  const room = total - GAP.length * (widths.length - 1);
  while (widths.reduce((sum, width) => sum + width, 0) > room) {
    const widest = widths.indexOf(Math.max(...widths));
    if ((widths[widest] ?? 0) <= LEAST) break;
    widths[widest] = (widths[widest] ?? 0) - 1;
  }
  return widths;
}
