// Edits between two texts by lines: the shortest script (Myers 1986) within a bound of work.
//
// Lines are byte strings, so that no encoding is changed.

/** Lines `from` to `to` of the one text are lines `newFrom` to `newTo` of the other; ends are exclusive. */
export interface LineEdit {
  readonly from: number;
  readonly to: number;
  readonly newFrom: number;
  readonly newTo: number;
}

// What is kept of a comparison grows with the square of the edits: 2,000 of them take 16 MB.
const MAX_EDITS = 2000;

/** Lines, each with its line break: a last line without one is another line than the same with one. */
export function linesOf(content: Buffer): string[] {
  return content.toString('latin1').match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

/** Texts with a number for each line, the same for the same line. */
export function numbered(versions: readonly (readonly string[])[]): number[][] {
  const known = new Map<string, number>();
  const idOf = (line: string): number => {
    const id = known.get(line) ?? known.size;
    known.set(line, id);
    return id;
  };
  return versions.map(lines => lines.map(idOf));
}

/** The shortest edits; null where there are more than the limit. */
export function editsBetween(before: readonly number[], after: readonly number[]): LineEdit[] | null {
  const { start, end, newEnd } = middleOf(before, after);
  const trace = traceOf(before.slice(start, end), after.slice(start, newEnd));
  return trace && editsOf(trace, { length: end - start, newLength: newEnd - start, offset: start });
}

/** The same, and one edit over everything between the first and the last difference where there are more than the limit. */
export function editsOrReplacement(before: readonly number[], after: readonly number[]): LineEdit[] {
  const edits = editsBetween(before, after);
  if (edits) return edits;
  const { start, end, newEnd } = middleOf(before, after);
  return [{ from: start, to: end, newFrom: start, newTo: newEnd }];
}

// Without what both have at the beginning and at the end.
function middleOf(
  before: readonly number[],
  after: readonly number[],
): { readonly start: number; readonly end: number; readonly newEnd: number } {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let [end, newEnd] = [before.length, after.length];
  while (end > start && newEnd > start && before[end - 1] === after[newEnd - 1]) {
    end -= 1;
    newEnd -= 1;
  }
  return { start, end, newEnd };
}

type Trace = readonly Int32Array[];

// For each number of edits, how far every diagonal came before the next edit was tried.
function traceOf(before: readonly number[], after: readonly number[]): Trace | null {
  const trace: Int32Array[] = [];
  let reached = new Int32Array(1);
  for (let edits = 0; edits <= MAX_EDITS; edits += 1) {
    const next = new Int32Array(2 * edits + 1);
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      let x = edits === 0 ? 0 : stepFrom(reached, edits, diagonal);
      let y = x - diagonal;
      while (x < before.length && y < after.length && before[x] === after[y]) {
        x += 1;
        y += 1;
      }
      next[diagonal + edits] = x;
      if (x >= before.length && y >= after.length) return [...trace, next];
    }
    trace.push(next);
    reached = next;
  }
  return null;
}

// The furthest way onto a diagonal with one more edit: an insertion comes from the one above, a deletion from the one below.
function stepFrom(reached: Int32Array, edits: number, diagonal: number): number {
  const at = (k: number): number => (Math.abs(k) < edits ? (reached[k + edits - 1] ?? 0) : -1);
  return isInsertion(at, edits, diagonal) ? at(diagonal + 1) : at(diagonal - 1) + 1;
}

function isInsertion(at: (diagonal: number) => number, edits: number, diagonal: number): boolean {
  return diagonal === -edits || (diagonal !== edits && at(diagonal - 1) < at(diagonal + 1));
}

function editsOf(
  trace: Trace,
  { length, newLength, offset }: { readonly length: number; readonly newLength: number; readonly offset: number },
): LineEdit[] {
  const edits: LineEdit[] = [];
  let [x, y] = [length, newLength];
  for (let count = trace.length - 1; count > 0; count -= 1) {
    const reached = trace[count - 1] ?? new Int32Array(1);
    const at = (k: number): number => (Math.abs(k) < count ? (reached[k + count - 1] ?? 0) : -1);
    const diagonal = x - y;
    const from = isInsertion(at, count, diagonal) ? diagonal + 1 : diagonal - 1;
    const fromX = at(from);
    const fromY = fromX - from;
    const [toX, toY] = from > diagonal ? [fromX, fromY + 1] : [fromX + 1, fromY];
    addBefore(edits, { from: fromX + offset, to: toX + offset, newFrom: fromY + offset, newTo: toY + offset });
    [x, y] = [fromX, fromY];
  }
  return edits.reverse();
}

// The list is from the last to the first; neighbours become one.
function addBefore(edits: LineEdit[], edit: LineEdit): void {
  const next = edits.at(-1);
  if (next?.from !== edit.to || next.newFrom !== edit.newTo) edits.push(edit);
  else edits[edits.length - 1] = { ...edit, to: next.to, newTo: next.newTo };
}
