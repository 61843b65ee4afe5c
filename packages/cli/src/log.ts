// Log lines on standard error: JSON for programs, one readable line each for people. The logging library loads only when asked for.

import type { LogFields, Logger } from '@acode/sandbox';
import { UsageError } from './failure/usage.ts';
import type { Look } from './terminal/look.ts';
import type { Output } from './terminal/output.ts';
import { oneLine } from './terminal/text.ts';

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

type LogLevel = (typeof LEVELS)[number];

/** The level to log at: `--verbose` before ACODE_LOG_LEVEL; null where nobody asked for logs. */
export function logLevel(verbose: boolean, variable: string | undefined): LogLevel | null {
  if (verbose) return 'debug';
  if (variable === undefined || variable === '') return null;
  const level = LEVELS.find(name => name === variable.toLowerCase());
  if (level) return level;
  throw new UsageError(`ACODE_LOG_LEVEL is ${variable}, which is not a level.`, `Use one of ${LEVELS.join(', ')}.`);
}

/** A logger that writes to an output. */
export async function openLogger(level: LogLevel, output: Output, look: Look): Promise<Logger> {
  const { pino } = await import('pino');
  const write = (line: string): void => void output.write(output.isTerminal ? readable(line, look) : line);
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: label => ({ level: label }) },
    },
    { write },
  );
}

/** What is said where nobody asked for logs: warnings, in one line each. */
export function noticesOnly(output: Output, look: Look): Logger {
  const silent = (): void => undefined;
  const warn = (fields: LogFields, message: string): void => {
    // The closing lines of a run say this one better.
    if ('limit' in fields) return;
    void output.write(`${look.colours.yellow('acode: warning:')} ${oneLine(message)}\n`);
  };
  return { debug: silent, info: silent, error: silent, warn };
}

/** One log line for a person: `12:03:04.567 DEBUG engine found socket=…`. */
export function readable(line: string, look: Look): string {
  const { level, time, msg, ...rest } = JSON.parse(line) as Record<string, unknown>;
  const at = String(time).slice(11, 23);
  const extra = Object.entries(rest).map(([name, value]) => ` ${name}=${shown(value)}`);
  return `${look.colours.dim(at)} ${String(level).toUpperCase().padEnd(5)} ${oneLine(String(msg))}${look.colours.dim(oneLine(extra.join('')))}\n`;
}

function shown(value: unknown): string {
  return typeof value === 'string' && /^[\w./:@-]+$/.test(value) ? value : JSON.stringify(value);
}
