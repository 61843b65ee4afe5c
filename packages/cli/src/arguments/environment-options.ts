// Options for variables of a command: --env NAME=value, --env NAME, which takes the caller’s value, and --env-file.

import { InvalidArgumentError, Option } from '@commander-js/extra-typings';
import type { AskedVariables, EnvironmentOptions, VariableSource } from './environment.ts';

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** The options for variables of a command. */
export function environmentOptions() {
  return {
    env: new Option(
      '--env <NAME[=value]>',
      'environment variable; without a value, the one you have; repeatable, nothing else is inherited',
    ).argParser(variable),
    file: new Option('--env-file <file>', 'file of NAME=value lines, as for docker; repeatable').argParser(files),
  };
}

/** The variables so far and one more, written `NAME=value`, or `NAME` for the caller’s own value. */
export function variable(text: string, before: AskedVariables = {}): AskedVariables {
  const equals = text.indexOf('=');
  const name = equals < 0 ? text : text.slice(0, equals);
  if (!NAME.test(name))
    throw new InvalidArgumentError(
      'Expected NAME=value, or NAME for the value that you have; a name has letters, digits and _.',
    );
  return { ...before, [name]: equals < 0 ? null : text.slice(equals + 1) };
}

function files(text: string, before: readonly string[] = []): string[] {
  return [...before, text];
}

/** The variables of a command; undefined where none was asked for. */
export async function environmentOf(
  options: EnvironmentOptions,
  source: VariableSource,
): Promise<Record<string, string> | undefined> {
  if (options.env === undefined && options.envFile === undefined) return undefined;
  return (await import('./environment.ts')).readVariables(options, source);
}
