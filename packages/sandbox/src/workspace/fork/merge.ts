// Three-way merge of text by lines: the edits of the workspace and of a fork against the file that both began with.
//
// Lines are compared as bytes, so that no encoding is changed. Edits that overlap or touch are a conflict, as in `git merge-file`,
// unless both sides made the same one.

import { editsBetween, linesOf, numbered } from './line-edits.ts';
import type { LineEdit } from './line-edits.ts';

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
const BINARY_BYTES = 8000;

/** Whether content is taken for binary: a zero byte among the first 8,000, as in git. */
export function isBinary(content: Buffer): boolean {
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

interface Side {
  readonly lines: readonly string[];
  readonly edits: readonly LineEdit[];
}

/** Edits of both sides that overlap or touch, as one. */
interface Region {
  readonly from: number;
  readonly to: number;
  readonly host: readonly LineEdit[];
  readonly fork: readonly LineEdit[];
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

function regionsOf(host: readonly LineEdit[], fork: readonly LineEdit[]): Region[] {
  const all = [
    ...host.map(edit => ({ edit, side: 'host' as const })),
    ...fork.map(edit => ({ edit, side: 'fork' as const })),
  ].sort((one, other) => one.edit.from - other.edit.from || one.edit.to - other.edit.to);
  const regions: { from: number; to: number; host: LineEdit[]; fork: LineEdit[] }[] = [];
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

function textOf(base: readonly string[], { lines }: Side, { from, to }: Region, edits: readonly LineEdit[]): string {
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
