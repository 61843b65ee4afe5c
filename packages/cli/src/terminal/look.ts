// Style of one stream: colours, width, and the clock for ages.

import { createColors } from 'picocolors';
import type { Io } from '../io.ts';
import type { Output } from './output.ts';

type Colours = ReturnType<typeof createColors>;

/** How to render for one stream. */
export interface Look {
  readonly colours: Colours;
  /** Columns to stay within; null for no bound. */
  readonly width: number | null;
  /** Whether a person may be looking, so that what untrusted code printed must be made harmless. */
  readonly terminal: boolean;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** The look of a stream. `colour` is what the command line says: false after `--no-color`. */
export function lookOf(output: Output, io: Pick<Io, 'env' | 'now'>, colour: boolean): Look {
  return {
    colours: createColors(colour && wantsColour(output.isTerminal, io.env)),
    width: output.columns ?? columnsOf(io.env['COLUMNS']),
    terminal: output.isTerminal,
    now: io.now(),
  };
}

function wantsColour(terminal: boolean, env: Io['env']): boolean {
  if (env['NO_COLOR']) return false;
  const forced = env['FORCE_COLOR'];
  if (forced !== undefined && forced !== '') return forced !== '0' && forced !== 'false';
  return terminal && env['TERM'] !== 'dumb';
}

function columnsOf(text: string | undefined): number | null {
  const columns = Number(text);
  return Number.isInteger(columns) && columns > 0 ? columns : null;
}
