// Completion vocabulary: read from the commands themselves, so that it is never out of date.

import type { CommandUnknownOpts } from '@commander-js/extra-typings';

/** What the value of an option is. */
export type Value = 'file' | 'directory' | 'text' | readonly string[];

/** One option. */
export interface CompletableOption {
  /** As it is typed: `--memory`. */
  readonly flag: string;
  readonly about: string;
  /** Null where it takes no value. */
  readonly value: Value | null;
}

/** One command and what can follow it. */
export interface Completable {
  /** The command path without the name of the program: `sandbox exec`. */
  readonly path: string;
  readonly commands: readonly { readonly name: string; readonly about: string }[];
  readonly options: readonly CompletableOption[];
  /** What its first argument can be. */
  readonly argument: readonly string[];
}

const PATHS: Readonly<Record<string, Value>> = {
  '--config': 'file',
  '--socket': 'file',
  '--workspace': 'directory',
  '--workdir': 'directory',
  // Its first half.
  '--mount': 'directory',
};
// What else there is only the engine knows.
const SUGGESTED: Readonly<Record<string, Value>> = {
  '--network': ['none', 'allow=npm:install', 'allow=pypi', 'allow=crates', 'allow=go', 'allow=github:read', 'bridge'],
  '--runtime': ['runc', 'runsc'],
  '--for': ['30m', '1h', '8h'],
  '--budget': ['minutes=30', 'requests=200', 'tokens=2m'],
  '--allow': ['npm:install', 'pypi', 'crates', 'go', 'github:read'],
};

/** Every command below a root, the root first. */
export function vocabularyOf(command: CommandUnknownOpts, path: readonly string[] = []): Completable[] {
  const help = command.createHelp();
  const options = help.visibleOptions(command).flatMap(option => {
    const flag = option.long;
    if (flag === undefined) return [];
    return [{ flag, about: option.description, value: valueOf(flag, option) }];
  });
  const commands = help.visibleCommands(command);
  const here: Completable = {
    path: path.join(' '),
    commands: commands.map(child => ({ name: child.name(), about: child.description() })),
    options,
    argument: command.registeredArguments[0]?.argChoices ?? [],
  };
  const below = command.commands.flatMap(child => vocabularyOf(child, [...path, child.name()]));
  return [here, ...below];
}

function valueOf(
  flag: string,
  option: { readonly required: boolean; readonly argChoices?: readonly string[] | undefined },
): Value | null {
  if (!option.required) return null;
  return option.argChoices ?? PATHS[flag] ?? SUGGESTED[flag] ?? 'text';
}
