// Common options: every command has them, anywhere on the command line.

import { Option } from '@commander-js/extra-typings';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';

/** The values of those options. */
export interface CommonOptions {
  readonly json: boolean;
  readonly verbose: boolean;
  readonly color: boolean;
  readonly config?: string;
  readonly workspace?: string;
  readonly socket?: string;
}

// Where the option is taken and says why it cannot be had, and where it is of use only with another one.
const WITHOUT_JSON = ['acode sandbox shell'];
const JSON_WITH: Readonly<Record<string, string>> = { 'acode mcp': 'with --print-config or --http: ' };

/** Adds them to a command that is called so. */
export function addCommonOptions(command: CommandUnknownOpts, called: string): void {
  const about = `${JSON_WITH[called] ?? ''}print one JSON object on standard output`;
  command
    .optionsGroup('Common options:')
    .addOption(new Option('--json', about).hideHelp(WITHOUT_JSON.includes(called)))
    .option('--verbose', 'log to standard error')
    .option('--config <file>', 'configuration file to use instead of your own')
    .option('--workspace <directory>', 'directory to mount into the sandbox')
    .option('--socket <path>', 'socket of the engine')
    .option('--no-color', 'disable colours');
}

/** Their values for a command; what stands nearest to it counts. */
export function commonOptionsOf(command: CommandUnknownOpts): CommonOptions {
  const told = (name: string): unknown => {
    for (let at: CommandUnknownOpts | null = command; at; at = at.parent) {
      const value: unknown = at.getOptionValue(name);
      // `--no-color` has a default, and a default is nothing that was said.
      if (value !== undefined && at.getOptionValueSource(name) !== 'default') return value;
    }
    return undefined;
  };
  const text = (name: 'config' | 'workspace' | 'socket'): { [key in typeof name]?: string } => {
    const value = told(name);
    return typeof value === 'string' ? { [name]: value } : {};
  };
  return {
    json: told('json') === true,
    verbose: told('verbose') === true,
    color: told('color') !== false,
    ...text('config'),
    ...text('workspace'),
    ...text('socket'),
  };
}
