// How long ago something was, for a person.

const UNITS: readonly (readonly [seconds: number, name: string])[] = [
  [86_400, 'day'],
  [3600, 'hour'],
  [60, 'minute'],
  [1, 'second'],
];

/** The age of a moment: `3 minutes ago`. Text that is no date is given back. */
export function age(moment: string, now: number): string {
  const then = Date.parse(moment);
  if (Number.isNaN(then)) return moment;
  const seconds = Math.max(0, Math.floor((now - then) / 1000));
  for (const [size, name] of UNITS) {
    const count = Math.floor(seconds / size);
    if (count >= 1) return `${count} ${name}${count === 1 ? '' : 's'} ago`;
  }
  return 'just now';
}
