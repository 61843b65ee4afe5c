// How long ago something was, or how long it is until then, for a person.

const UNITS: readonly (readonly [seconds: number, name: string])[] = [
  [86_400, 'day'],
  [3600, 'hour'],
  [60, 'minute'],
  [1, 'second'],
];

/** How long it is until a moment: `in 3 minutes`. Text that is no date is given back. */
export function until(moment: string, now: number): string {
  const then = Date.parse(moment);
  if (Number.isNaN(then)) return moment;
  const span = spanOf(then - now);
  return span === null ? 'now' : `in ${span}`;
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
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  for (const [size, name] of UNITS) {
    const count = Math.floor(seconds / size);
    if (count >= 1) return `${count} ${name}${count === 1 ? '' : 's'}`;
  }
  return null;
}
