// Three-way merge of text by lines: the edits of the workspace and of a fork against the file that both began with.
//
// Lines are compared as bytes, so that no encoding is changed. Edits that overlap or touch are a conflict, as in `git merge-file`,
// unless both sides made the same one.

/** The outcome of a merge. */
export type MergeResult =
  | { readonly merged: Buffer }
  /** `overlap`: both sides changed the same lines, or lines that touch. */
  | { readonly conflict: 'binary' | 'too-large' | 'overlap' };

/** The three versions of a file. */
export interface MergeInput {
  /** The file that both sides began with. */
  readonly base: Buffer;
  /** The workspace’s. */
  readonly host: Buffer;
  /** The fork’s. */
  readonly fork: Buffer;
}

/** A longer file is not merged. */
export const MAX_MERGE_BYTES = 4 * 1024 ** 2;
// What is kept of a comparison grows with the square of the edits: 2,000 of them take 16 MB.
const MAX_EDITS = 2000;
const BINARY_BYTES = 8000;

/** Whether content is taken for binary: a zero byte among the first 8,000, as in git. */
function isBinary(content: Buffer): boolean {
  return content.subarray(0, BINARY_BYTES).includes(0);
}

/** Merges two versions of a file. */
export function mergeThreeWay({ base, host, fork }: MergeInput): MergeResult {
  const versions = [base, host, fork];
  if (versions.some(isBinary)) return { conflict: 'binary' };
  if (versions.some(({ length }) => length > MAX_MERGE_BYTES)) return { conflict: 'too-large' };
  const text = mergedText(versions.map(linesOf));
  if (text === 'too-large' || text === 'overlap') return { conflict: text };
  return { merged: Buffer.from(text.merged, 'latin1') };
}

function mergedText(versions: string[][]): 'too-large' | 'overlap' | { merged: string } {
  const [base = [], host = [], fork = []] = versions;
  const [baseIds = [], hostIds = [], forkIds = []] = numbered(versions);
  const hostEdits = editsBetween(baseIds, hostIds);
  const forkEdits = editsBetween(baseIds, forkIds);
  if (hostEdits === null || forkEdits === null) return 'too-large';
  const text = merged(base, { lines: host, edits: hostEdits }, { lines: fork, edits: forkEdits });
  return text === null ? 'overlap' : { merged: text };
}

// Each with its line break: a last line without one is another line than the same with one.
function linesOf(content: Buffer): string[] {
  return content.toString('latin1').match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

function numbered(versions: readonly string[][]): number[][] {
  const known = new Map<string, number>();
  const idOf = (line: string): number => {
    const id = known.get(line) ?? known.size;
    known.set(line, id);
    return id;
  };
  return versions.map(lines => lines.map(idOf));
}

/** Lines `from` to `to` of the base are lines `newFrom` to `newTo` of the other version; ends are exclusive. */
interface Edit {
  readonly from: number;
  readonly to: number;
  readonly newFrom: number;
  readonly newTo: number;
}

// The shortest edit script (Myers 1986); null where it is longer than the limit.
function editsBetween(before: readonly number[], after: readonly number[]): Edit[] | null {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let [end, newEnd] = [before.length, after.length];
  while (end > start && newEnd > start && before[end - 1] === after[newEnd - 1]) {
    end -= 1;
    newEnd -= 1;
  }
  const trace = traceOf(before.slice(start, end), after.slice(start, newEnd));
  return trace && editsOf(trace, end - start, newEnd - start, start);
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

function editsOf(trace: Trace, length: number, newLength: number, offset: number): Edit[] {
  const edits: Edit[] = [];
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
function addBefore(edits: Edit[], edit: Edit): void {
  const next = edits.at(-1);
  if (next?.from !== edit.to || next.newFrom !== edit.newTo) edits.push(edit);
  else edits[edits.length - 1] = { ...edit, to: next.to, newTo: next.newTo };
}

interface Side {
  readonly lines: readonly string[];
  readonly edits: readonly Edit[];
}

/** Edits of both sides that overlap or touch, as one. */
interface Region {
  readonly from: number;
  readonly to: number;
  readonly host: readonly Edit[];
  readonly fork: readonly Edit[];
}

function merged(base: readonly string[], host: Side, fork: Side): string | null {
  const parts: string[] = [];
  let done = 0;
  for (const region of regionsOf(host.edits, fork.edits)) {
    parts.push(joined(base, done, region.from));
    const ofHost = textOf(base, host, region, region.host);
    const ofFork = textOf(base, fork, region, region.fork);
    if (region.host.length > 0 && region.fork.length > 0 && ofHost !== ofFork) return null;
    parts.push(region.host.length > 0 ? ofHost : ofFork);
    done = region.to;
  }
  return parts.join('') + joined(base, done);
}

function regionsOf(host: readonly Edit[], fork: readonly Edit[]): Region[] {
  const all = [
    ...host.map(edit => ({ edit, side: 'host' as const })),
    ...fork.map(edit => ({ edit, side: 'fork' as const })),
  ].sort((one, other) => one.edit.from - other.edit.from || one.edit.to - other.edit.to);
  const regions: { from: number; to: number; host: Edit[]; fork: Edit[] }[] = [];
  for (const { edit, side } of all) {
    let region = regions.at(-1);
    if (!region || edit.from > region.to) {
      region = { from: edit.from, to: edit.to, host: [], fork: [] };
      regions.push(region);
    }
    region.to = Math.max(region.to, edit.to);
    region[side].push(edit);
  }
  return regions;
}

function textOf(base: readonly string[], { lines }: Side, { from, to }: Region, edits: readonly Edit[]): string {
  const parts: string[] = [];
  let done = from;
  for (const edit of edits) {
    parts.push(joined(base, done, edit.from), joined(lines, edit.newFrom, edit.newTo));
    done = edit.to;
  }
  return parts.join('') + joined(base, done, to);
}

function joined(lines: readonly string[], from: number, to?: number): string {
  return lines.slice(from, to).join('');
}
