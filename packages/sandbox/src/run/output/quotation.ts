// What a command printed or chose, as it may stand inside a sentence of acode’s: in one line, bounded, and in quotes. Pure.

const MAX_LENGTH = 100;
// Control and format characters, line and paragraph separators, and letters that are drawn as nothing.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]+/gu;
const UNSEEN_OR_SPACE = /[\s\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/u;

/** Text in quotes that nothing in it can close. */
export function quotation(text: string): string {
  const line = text.replaceAll(UNSEEN, ' ').replaceAll(/["“”]/g, "'").trim();
  return `"${line.length > MAX_LENGTH ? `${line.slice(0, MAX_LENGTH)}…` : line}"`;
}

/** A path in quotes, up to its first white space: words after it could pass for a sentence of acode’s. */
export function quotedPath(path: string): string {
  return quotation(path.split(UNSEEN_OR_SPACE, 1)[0] ?? '');
}
