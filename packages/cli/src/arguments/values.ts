// Values of options: time spans, counts, moments, and references to sandboxes.

import { InvalidArgumentError } from '@commander-js/extra-typings';

const UNITS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** The longest time span that anything is given, in milliseconds. */
const MAX_DURATION_MS = 365 * 86_400_000;

/** Milliseconds of a time span such as `90s`, `30m`, `2h` or `1h30m`. */
export function duration(text: string): number {
  const milliseconds = spanOf(text);
  // A bare number is refused: it could mean seconds or minutes.
  if (!(milliseconds >= 1000 && milliseconds <= MAX_DURATION_MS))
    throw new InvalidArgumentError('Expected a time with its unit, such as 30m, 2h or 1h30m.');
  return Math.round(milliseconds);
}

/** Milliseconds of what is written with units; NaN for anything else. */
function spanOf(text: string): number {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)([smhd])/g)];
  if (text === '' || parts.map(([part]) => part).join('') !== text) return NaN;
  return parts.reduce((sum, [, amount, unit = '']) => sum + Number(amount) * (UNITS[unit] ?? NaN), 0);
}

/** Milliseconds of a number of seconds such as `30` or `0.5`, or of a time span such as `5m`. */
export function seconds(text: string): number {
  const plain = /^\d+(?:\.\d+)?$|^\.\d+$/.test(text);
  const milliseconds = Math.round(plain ? Number(text) * 1000 : spanOf(text));
  if (!(milliseconds >= 1 && milliseconds <= MAX_DURATION_MS))
    throw new InvalidArgumentError(
      'Every command has a time limit. Expected seconds above zero, such as 30 or 0.5, or a time with its unit, such as 5m or 24h.',
    );
  return milliseconds;
}

/** A moment, a number of milliseconds before now, or a record after which to begin. */
export type Since = { readonly moment: Date } | { readonly agoMs: number } | { readonly record: number };

// A date, and a time with it where one is given. Other texts that the language reads as dates are not what they seem.
const MOMENT = /^\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2})?)?$/;

/** What was meant. */
export function since(text: string): Since {
  if (/^\d{1,15}$/.test(text)) return { record: Number(text) };
  const agoMs = spanOf(text);
  if (!Number.isNaN(agoMs)) return { agoMs };
  const moment = new Date(MOMENT.test(text) ? localTime(text) : NaN);
  if (Number.isNaN(moment.getTime()))
    throw new InvalidArgumentError(
      'Expected a time span (2h, 7d), a date or time (2026-05-31, 2026-05-31T14:00), or the number of a record.',
    );
  return { moment };
}

// A date alone is midnight here and not in Greenwich, as a person means it.
function localTime(text: string): string {
  return /^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00` : text;
}

/** The moment, or the number of a record, from which a report begins. */
export function momentOf(asked: Since, now: number): Date | number {
  if ('record' in asked) return asked.record;
  return 'moment' in asked ? asked.moment : new Date(now - asked.agoMs);
}

/** The number. */
export function count(text: string): number {
  const value = /^\d+$/.test(text) ? Number(text) : NaN;
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('Expected a whole number from 1 on.');
  return value;
}

const MIN_LENGTH = 4;

/** A sandbox as it was named; fewer characters could be anybody’s. */
export function reference(text: string): string {
  if (text.length >= MIN_LENGTH) return text;
  throw new InvalidArgumentError(
    'Expected at least four characters of its id, or its name; `acode sandbox list` shows both.',
  );
}

/** The sandboxes so far and one more. */
export function references(text: string, before: readonly string[] = []): string[] {
  return [...before, reference(text)];
}
