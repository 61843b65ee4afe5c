// Forbidden shapes of every configuration and request: keys that reach a prototype, and values nested without end.

/** The largest configuration file that is read. */
export const MAX_BYTES = 256 * 1024;

/** The deepest that anything may be nested. */
export const MAX_DEPTH = 32;

// A value that refers to itself twice on each level would otherwise be checked for ever.
const MAX_VALUES = 20_000;
const PROTOTYPE_KEYS = new Set(['__proto__', 'constructor', 'prototype']);

/** The reason for which a larger file is refused. */
export function tooLarge(): string {
  return `is larger than ${MAX_BYTES / 1024} KiB`;
}

/** What is wrong with the shape of a value, and where in it. */
export interface ShapeFault {
  readonly path: readonly string[];
  readonly reason: string;
}

/** The first thing about a value’s shape that is refused before anything reads it; null where there is none. */
export function shapeFault(value: unknown): ShapeFault | null {
  // A list of what is still to look at, and no recursion: the value may be deeper than the stack.
  let looked = 0;
  const waiting: { readonly value: unknown; readonly path: readonly string[] }[] = [{ value, path: [] }];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const { path } = next;
    looked += 1;
    if (looked > MAX_VALUES) return { path: path.slice(0, 3), reason: `has more than ${MAX_VALUES} values` };
    if (typeof next.value !== 'object' || next.value === null) continue;
    if (path.length >= MAX_DEPTH) return { path: path.slice(0, 3), reason: `is nested more than ${MAX_DEPTH} deep` };
    for (const [key, child] of Object.entries(next.value)) {
      if (PROTOTYPE_KEYS.has(key)) return { path: [...path, key], reason: 'is a name that no key may have' };
      waiting.push({ value: child, path: [...path, key] });
    }
  }
  return null;
}
