// Excerpt of a long text for a model: its beginning, its end, and how much is left out.

/** A part of a text for a reader with little room. */
export interface Excerpt {
  readonly text: string;
  /** Characters of the text that are not in it. */
  readonly omitted: number;
}

/** The text itself where it fits; else its head and its tail, with a line between them that says what is missing. */
export function excerptOf(text: string, most: number): Excerpt {
  if (text.length <= most) return { text, omitted: 0 };
  const head = text.slice(0, wholeBefore(text, Math.ceil(most / 2)));
  const tail = text.slice(wholeFrom(text, text.length - Math.floor(most / 2)));
  const omitted = text.length - head.length - tail.length;
  return { text: `${head}\n[… ${omitted} characters left out …]\n${tail}`, omitted };
}

/** How much of the room each of two texts gets: what one does not need, the other has. */
export function sharesOf(first: number, second: number, most: number): readonly [number, number] {
  const half = Math.floor(most / 2);
  if (first <= half) return [first, Math.min(second, most - first)];
  if (second <= half) return [Math.min(first, most - second), second];
  return [half, half];
}

/** The nearest place at or before `at` that does not stand in the middle of a character. */
export function wholeBefore(text: string, at: number): number {
  return isInside(text, at) ? at - 1 : at;
}

function wholeFrom(text: string, at: number): number {
  return isInside(text, at) ? at + 1 : at;
}

// Between the two halves of a character beyond the first 65,536.
function isInside(text: string, at: number): boolean {
  const before = text.charCodeAt(at - 1);
  const after = text.charCodeAt(at);
  return before >= 0xd800 && before < 0xdc00 && after >= 0xdc00 && after < 0xe000;
}
