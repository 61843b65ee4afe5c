// Log level: which log lines are shown, and the warnings that are shown by default.

import type { LogFields, Logger } from '@acode/sandbox';
import { UsageError } from './failure/usage.ts';
import type { Look } from './terminal/look.ts';
import type { Output } from './terminal/output.ts';
import { oneLine } from './terminal/text.ts';
import { fitted } from './terminal/wrap.ts';

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

// What tells a warning about a limit, a denial, a risky change, or anything else that the result says too.
const SAID_AT_THE_END = ['limit', 'rule', 'riskyChanges', 'inResult'];

/** How much is logged. */
export type LogLevel = (typeof LEVELS)[number];

/** The level to log at: `--verbose` before ACODE_LOG_LEVEL; null where no logs were asked for. */
export function logLevel(verbose: boolean, variable: string | undefined): LogLevel | null {
  if (verbose) return 'debug';
  if (variable === undefined || variable === '') return null;
  const level = LEVELS.find(name => name === variable.toLowerCase());
  if (level) return level;
  throw new UsageError(`ACODE_LOG_LEVEL is ${variable}, which is not a level.`, `Use one of ${LEVELS.join(', ')}.`);
}

/** The logger where no logs were asked for: warnings, in one line each. */
export function noticesOnly(output: Output, look: Look): Logger {
  const silent = (): void => undefined;
  const warn = (fields: LogFields, message: string): void => {
    // The closing lines of a run, or the text of a result, say these better.
    if (SAID_AT_THE_END.some(name => name in fields)) return;
    void output.write(fitted(`${look.colours.yellow('acode: warning:')} ${oneLine(message)}\n`, look));
  };
  return { debug: silent, info: silent, error: silent, warn };
}
