// Wrapping at the width of a terminal: the one place that breaks lines. Words, paths and commands are never split.

import type { Look } from './look.ts';
import { STYLE_SEQUENCES, widthOf } from './text.ts';

// Narrower than this, a column of text is not readable; the terminal breaks its lines then.
const MIN_WIDTH = 16;
// A word; a command between backquotes is one, whatever spaces it has, and so is an option with its value.
const WORDS = /(?:--[a-z-]+ (?=[^-\s(]))?(?:`[^`]*`|[^ ])+/g;
const COMMAND = /^`([^`]+)`[.,;:]?$/;
// What a message begins with: `acode:`, or the branch of a detail, and the spaces around it.
const BEGINNING = new RegExp(`^(?:${STYLE_SEQUENCES.source}|acode:|├▶|╰▶| )*`);

/** The width that prose for a person has to fit; null where no person is at a terminal: scripts read whole lines. */
export function proseWidth({ terminal, width }: Pick<Look, 'terminal' | 'width'>): number | null {
  return terminal ? width : null;
}

/**
 * The text in lines of a width, `first` being the width of the first one. It is broken at spaces only, and not inside a
 * command between backquotes. A command that is longer than a line has a line of its own without backquotes, so that it
 * can be selected and pasted: the terminal breaks it, and a copy of it has no line ends.
 */
export function wrapped(text: string, width: number | null, first = width): string[] {
  return width === null || first === null ? [text] : linesOf(text.match(WORDS) ?? [''], width, first);
}

function linesOf(words: readonly string[], width: number, first: number): string[] {
  const lines: string[] = [];
  let room = first;
  for (const word of words) {
    const last = lines.at(-1);
    if (last !== undefined && fits(last, word, room)) {
      lines[lines.length - 1] = `${last} ${word}`;
      continue;
    }
    const command = longCommand(word, width);
    // Nothing follows on the line of a command that is to be pasted.
    room = command !== null ? 0 : last === undefined ? first : width;
    lines.push(command ?? word);
  }
  return lines;
}

function fits(line: string, word: string, room: number): boolean {
  return widthOf(line) + 1 + widthOf(word) <= room;
}

function longCommand(word: string, width: number): string | null {
  return widthOf(word) > width ? (COMMAND.exec(word)?.[1] ?? null) : null;
}

/** A prefix and a text after it, wrapped together; the lines after the first begin with `rest`. */
export function hanging(
  prefix: string,
  text: string,
  width: number | null,
  rest = ' '.repeat(widthOf(prefix)),
): string {
  if (width === null) return prefix + text;
  const room = Math.max(MIN_WIDTH, width - widthOf(rest));
  return prefix + wrapped(text, room, Math.max(1, width - widthOf(prefix))).join(`\n${rest}`);
}

/**
 * Messages, each on a line, wrapped for a person at a terminal and unchanged for a program. A line that begins with a space
 * is laid out already, or is to be pasted: it is never broken.
 */
export function fitted(text: string, look: Pick<Look, 'terminal' | 'width'>): string {
  const width = proseWidth(look);
  if (width === null) return text;
  return text
    .split('\n')
    .map(line => (line.startsWith(' ') || widthOf(line) <= width ? line : fittedLine(line, width)))
    .join('\n');
}

function fittedLine(line: string, width: number): string {
  const [prefix] = BEGINNING.exec(line) ?? [''];
  const shown = prefix.replaceAll(STYLE_SEQUENCES, '');
  const rest = shown.startsWith('├▶') ? '│  ' : shown.startsWith('╰▶') ? '   ' : ' '.repeat(widthOf(shown));
  return hanging(prefix, line.slice(prefix.length), width, rest);
}
