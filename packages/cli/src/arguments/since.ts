// From when on: a moment, a time span that ends now, or the number of a record of the audit log.

import { InvalidArgumentError } from '@commander-js/extra-typings';
import { spanOf } from './duration.ts';

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
