// What a persistent sandbox is called by: its id, the beginning of one, or its name.

import { InvalidArgumentError } from '@commander-js/extra-typings';

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
