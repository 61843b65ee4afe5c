// Log lines on standard error: JSON for programs, one readable line each for people. Loaded only when logs are asked for.

import type { LogFields, Logger } from '@acode/sandbox';
import { pino } from 'pino';
import type { LogLevel } from './log.ts';
import { oneLine, shortId } from './terminal/text.ts';
import type { Look } from './terminal/look.ts';
import type { Output } from './terminal/output.ts';

/** A logger that writes to an output. */
export function structuredLog(level: LogLevel, output: Output, look: Look): Logger {
  const write = (line: string): void => void output.write(output.isTerminal ? readable(line, look) : line);
  const log = pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: label => ({ level: label }) },
    },
    { write },
  );
  return {
    debug: (fields, message) => log.debug(renamed(fields), message),
    info: (fields, message) => log.info(renamed(fields), message),
    warn: (fields, message) => log.warn(renamed(fields), message),
    error: (fields, message) => log.error(renamed(fields), message),
  };
}

// The line has a level of its own; a sandbox’s would stand in the object a second time, and readers take the last.
function renamed({ level, ...fields }: LogFields): LogFields {
  return level === undefined ? fields : { ...fields, isolation: level };
}

// One log line for a person: `12:03:04.567 DEBUG engine found socket=…`.
function readable(line: string, look: Look): string {
  const parsed: unknown = JSON.parse(line);
  const { level, time, msg, session: _, operation: __, ...rest } = isRecord(parsed) ? parsed : {};
  const { dim } = look.colours;
  const extra = Object.entries(rest).map(([name, value]) => ` ${name}=${shown(value)}`);
  const at = String(time).slice(11, 23);
  return `${dim(at)} ${String(level).toUpperCase().padEnd(5)} ${oneLine(String(msg))}${dim(oneLine(extra.join('')))}\n`;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function shown(value: unknown): string {
  if (typeof value === 'number') return String(Math.round(value * 10) / 10);
  return typeof value === 'string' && /^[\w./:@-]+$/.test(value) ? shortId(value) : JSON.stringify(value);
}
