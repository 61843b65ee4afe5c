// An environment variable of the command.

import { InvalidArgumentError } from '@commander-js/extra-typings';

/** The variables so far and one more, written `NAME=value`. */
export function variable(text: string, before: Readonly<Record<string, string>> = {}): Record<string, string> {
  const equals = text.indexOf('=');
  if (equals < 1) {
    const name = text.replace('=', '') || 'NAME';
    throw new InvalidArgumentError(
      `Expected NAME=value. Nothing is taken from your own environment; to pass a value on, write --env ${name}="$${name}".`,
    );
  }
  return { ...before, [text.slice(0, equals)]: text.slice(equals + 1) };
}
