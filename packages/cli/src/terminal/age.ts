// Ages and remaining times, for a person.

import { plural } from './text.ts';

const UNITS: readonly (readonly [seconds: number, name: string])[] = [
  [86_400, 'day'],
  [3600, 'hour'],
  [60, 'minute'],
  [1, 'second'],
];

// Below this, seconds are said; above it they are what the way to the engine took.
const SECONDS_UNTIL_MS = 90_000;

/** How a time span is written: in words, or in letters where there is little room. */
export type SpanStyle = 'words' | 'letters';

/**
 * How long it is until a moment: `in 1 hour 30 minutes`, or in letters `in 1h 30m`. It is rounded, since some of the time
 * is over by the time it is said. Text that is no date is given back.
 */
export function until(moment: string, now: number, style: SpanStyle = 'words'): string {
  const then = Date.parse(moment);
  if (Number.isNaN(then)) return moment;
  const parts = roundedParts(then - now).map(([count, name]) =>
    style === 'letters' ? `${count}${name.charAt(0)}` : plural(count, name),
  );
  return parts.length === 0 ? 'now' : `in ${parts.join(' ')}`;
}

/** The age of a moment: `3 minutes ago`. Text that is no date is given back. */
export function age(moment: string, now: number): string {
  const then = Date.parse(moment);
  if (Number.isNaN(then)) return moment;
  const span = spanOf(now - then);
  return span === null ? 'just now' : `${span} ago`;
}

/** A time span in its largest unit: `3 minutes`; null below a second. */
function spanOf(milliseconds: number): string | null {
  const [largest] = partsOf(Math.floor(milliseconds / 1000));
  return largest ? plural(...largest) : null;
}

type Part = readonly [count: number, name: string];

function roundedParts(milliseconds: number): Part[] {
  const unit = milliseconds < SECONDS_UNTIL_MS ? 1 : 60;
  const seconds = Math.round(milliseconds / 1000 / unit) * unit;
  return partsOf(seconds);
}

function partsOf(seconds: number): Part[] {
  let left = Math.max(0, seconds);
  const parts = UNITS.map(([size, name]): Part => {
    const count = Math.floor(left / size);
    left -= count * size;
    return [count, name];
  });
  const first = parts.findIndex(([count]) => count > 0);
  // Units that are next to each other: a day and three minutes are a day.
  return first < 0 ? [] : parts.slice(first, first + 2).filter(([count]) => count > 0);
}
