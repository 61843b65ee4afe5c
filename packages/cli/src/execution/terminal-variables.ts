// Terminal variables: TERM, colours and locale that a command gets by default at a terminal.

import type { Call } from '../call.ts';

// What terminals and locales are called. Anything else is left out: the value comes from outside and goes to every program.
const SAFE = /^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$/;

// Terminals that images know. Others have a name of their own, which programs inside refuse, and draw as xterm does.
const KNOWN_TERMINAL = /^(?:ansi|dumb|linux|vt\d+|(?:xterm|screen|tmux|rxvt)(?:-256color|-color|-unicode-256color)?)$/;

interface Surroundings {
  readonly stdout: Pick<Call['stdout'], 'isTerminal'>;
  readonly io: Pick<Call['io'], 'env'>;
}

/** The variables of a command whose output is shown on a terminal; none where standard output is not one. */
export function terminalVariables({ stdout, io: { env } }: Surroundings): Readonly<Record<string, string>> {
  if (!stdout.isTerminal) return {};
  const { TERM, COLORTERM } = env;
  const quiet = (env['NO_COLOR'] ?? '') !== '';
  return {
    ...(TERM !== undefined && SAFE.test(TERM) ? { TERM } : {}),
    ...(COLORTERM !== undefined && SAFE.test(COLORTERM) ? { COLORTERM } : {}),
    ...(quiet ? { NO_COLOR: '1' } : { FORCE_COLOR: '1' }),
    // The one locale that every C library has; the caller’s own is hardly ever in an image.
    ...(isUtf8(env) ? { LANG: 'C.UTF-8' } : {}),
  };
}

/** The variables of a program that has a terminal: it asks that terminal for colours, and FORCE_COLOR would mean 16 of them. */
export function variablesOfTerminal(call: Surroundings): Readonly<Record<string, string>> {
  const { TERM, FORCE_COLOR: _, ...others } = terminalVariables(call);
  return { TERM: TERM !== undefined && KNOWN_TERMINAL.test(TERM) ? TERM : 'xterm-256color', ...others };
}

// In the order in which a C library looks for the character set.
function isUtf8({ LC_ALL, LC_CTYPE, LANG }: Call['io']['env']): boolean {
  const locale = [LC_ALL, LC_CTYPE, LANG].find(value => value !== undefined && value !== '') ?? '';
  return /\.utf-?8(?:@|$)/i.test(locale);
}
