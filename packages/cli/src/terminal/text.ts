// Terminal text: its width, cutting it to fit, making it harmless, and short identifiers.

import { TerminalSanitiser } from '@acode/sandbox';

// East Asian wide and fullwidth characters, and emoji, take two columns.
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const ZERO = /^[\p{Mark}\u200b-\u200d\ufe00-\ufe0f]$/u;

// No line of a terminal is longer; what is cut from a table would be worked on for nothing.
const MAX_LENGTH = 4096;

/** Colours and other styles, which take no column. */
// eslint-disable-next-line no-control-regex
export const STYLE_SEQUENCES = /\u001b\[[0-9;]*m/g;

/** The columns a text takes. */
export function widthOf(text: string): number {
  let width = 0;
  for (const character of text.replaceAll(STYLE_SEQUENCES, '')) width += columnsOf(character);
  return width;
}

/** The text, cut to a width with `…` where it does not fit. */
export function cut(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  let out = '';
  let used = 0;
  for (const character of text) {
    used += columnsOf(character);
    if (used > width - 1) break;
    out += character;
  }
  return width > 0 ? `${out}…` : '';
}

/** The text, filled with spaces up to a width. */
export function pad(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - widthOf(text)));
}

/** One line that drives no terminal, whatever the text holds: names and commands come from untrusted places. */
export function oneLine(text: string): string {
  return harmless(
    text
      .slice(0, MAX_LENGTH)
      .replaceAll(/[\r\n]+/g, '⏎')
      .replaceAll('\t', ' '),
  ).replaceAll(STYLE_SEQUENCES, '');
}

/** Text of several lines that drives no terminal. */
export function harmless(text: string): string {
  const sanitiser = new TerminalSanitiser();
  return sanitiser.push(Buffer.from(text)) + sanitiser.end();
}

function columnsOf(character: string): number {
  if (ZERO.test(character)) return 0;
  return WIDE.test(character) ? 2 : 1;
}

/** A path with the home directory as `~`. */
export function shortPath(path: string, home: string): string {
  if (path === home) return '~';
  return home.length > 1 && path.startsWith(`${home}/`) ? `~${path.slice(home.length)}` : path;
}

/** A number with its noun. */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

const LONG = /^(sha256:)?([0-9a-f]{12})[0-9a-f]+$/;

/** The beginning of a long hexadecimal id or digest; any other name as it is. */
export function shortId(id: string): string {
  const [, algorithm = '', beginning] = LONG.exec(id) ?? [];
  return beginning === undefined ? id : algorithm + beginning;
}
