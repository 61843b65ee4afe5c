// Counts of changed files by kind. A browser uses them too: nothing of Node is imported here.

import type { ChangeCounts } from '../contract/result.ts';

/** No file of any kind. */
export const NO_CHANGES: ChangeCounts = { executable: 0, hidden: 0, configuration: 0, source: 0, other: 0 };

/** A kind of file that is counted. */
export type ChangeKind = keyof ChangeCounts;

/** Counts that grow. */
export type Counting = { -readonly [Kind in ChangeKind]: number };

const CONFIGURATION = new Set(
  'cfg cnf conf config csproj env gradle ini json json5 jsonc lock plist properties props service targets toml xml yaml yml'.split(
    ' ',
  ),
);
const SOURCE = new Set(
  'asm astro awk bash bat c cc cjs clj cljs cmd coffee cpp cs css cts cu cxx d dart elm erl ex exs f90 fish fs go groovy h hh hpp hrl hs htm html ipynb java jl js jsx kt kts less lisp lua m mjs ml mli mm mts nim nix pas php pl pm proto ps1 py pyi pyx r rb rs s sass scala scm scss sh sol sql svelte swift tcl tf ts tsx v vb vim vue zig zsh'.split(
    ' ',
  ),
);
const EXECUTABLE = 0o111;

/**
 * The kind of a file.
 *
 * @param path relative to what was scanned.
 * @param mode the permission bits of a regular file; 0 of anything else.
 * @param isKnown whether tools obey it because of its name.
 */
export function changeKindOf(path: string, mode: number, isKnown: boolean): ChangeKind {
  if ((mode & EXECUTABLE) !== 0) return 'executable';
  if (path.startsWith('.') || path.includes('/.')) return 'hidden';
  const ending = path.slice(path.lastIndexOf('.') + 1).toLowerCase();
  if (isKnown || CONFIGURATION.has(ending)) return 'configuration';
  return SOURCE.has(ending) ? 'source' : 'other';
}

/** The sum of two counts. */
export function addCounts(one: ChangeCounts, other: ChangeCounts): ChangeCounts {
  return {
    executable: one.executable + other.executable,
    hidden: one.hidden + other.hidden,
    configuration: one.configuration + other.configuration,
    source: one.source + other.source,
    other: one.other + other.other,
  };
}
