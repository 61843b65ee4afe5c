// One pattern of a `.dockerignore`, matched name by name with all places in it followed at once. Pure.

/** One piece of a pattern: a character, a set of them, or a wildcard. Characters are code points. */
type Token =
  | { readonly kind: 'literal'; readonly code: number }
  | { readonly kind: 'class'; readonly negated: boolean; readonly ranges: readonly (readonly [number, number])[] }
  // `?`: one character of a name.
  | { readonly kind: 'one' }
  // `*`: any part of a name.
  | { readonly kind: 'name' }
  // `**/`: any number of directories, or none.
  | { readonly kind: 'directories' }
  // `**`: anything.
  | { readonly kind: 'all' };

/** The places in a pattern that one can be at after a text, in ascending order. */
export type Places = readonly number[];

const SLASH = 0x2f;

/** Where a character leads to from one place: nowhere, to what begins there, to what begins after it, or to itself alone. */
type Way = 'none' | 'here' | 'after' | 'stay';

/** A pattern that was read. */
export class Pattern {
  /** The one text that it means; null for one with a wildcard. */
  readonly exact: string | null;
  /** What one character may cost at most. */
  readonly weight: number;
  /** The places before anything was read. */
  readonly start: Places;
  readonly #tokens: readonly Token[];
  /** For each place the last one that can be gone to at once, over what can be empty. */
  readonly #reach: Int32Array;
  // Used again for every character: made anew, they would cost more than the rest.
  #now: Int32Array;
  #next: Int32Array;

  /** Reads a pattern; throws what `refuse` makes of the reason where it is none. */
  constructor(text: string, refuse: (reason: string) => Error) {
    this.#tokens = tokensOf(text, refuse);
    const { length } = this.#tokens;
    this.exact = exactly(this.#tokens);
    this.weight = this.#tokens.reduce((sum, token) => sum + costOf(token), 0);
    this.#reach = reachOf(this.#tokens);
    this.#now = new Int32Array(length + 1);
    this.#next = new Int32Array(length + 1);
    this.start = this.#placesNow(this.#enter(0, this.#now, 0));
  }

  /** Whether the pattern is at its end. */
  isAtEnd(places: Places): boolean {
    return places.at(-1) === this.#tokens.length;
  }

  /**
   * The places after one more text, and what it cost to find them. All are followed at once, character by character, so
   * that the time is the length of the text times that of the pattern at most; trying one after the other could take for
   * ever.
   */
  advance(from: Places, text: Uint32Array): { readonly places: Places; readonly cost: number } {
    let count = 0;
    let cost = 0;
    for (const place of from) count = push(this.#now, count, place);
    for (let at = 0; at < text.length && count > 0; at += 1) {
      cost += count;
      count = this.#step(count, text[at] ?? 0);
    }
    return { places: this.#placesNow(count), cost };
  }

  #placesNow(count: number): Places {
    const places: number[] = [];
    for (let index = 0; index < count; index += 1) places.push(this.#now[index] ?? 0);
    return places;
  }

  // Places come in ascending order, and those that one place leads to lie side by side: one that is not after the last is
  // there already.
  #step(count: number, code: number): number {
    const now = this.#now;
    const next = this.#next;
    let filled = 0;
    for (let index = 0; index < count; index += 1) {
      const at = now[index] ?? 0;
      const way = wayOf(this.#tokens[at], code);
      if (way === 'none') continue;
      if (way === 'stay') filled = push(next, filled, at);
      else filled = this.#enter(way === 'here' ? at : at + 1, next, filled);
    }
    this.#now = next;
    this.#next = now;
    return filled;
  }

  #enter(at: number, into: Int32Array, filled: number): number {
    let count = filled;
    const last = this.#reach[at] ?? at;
    for (let here = at; here <= last; here += 1) count = push(into, count, here);
    return count;
  }
}

function push(into: Int32Array, filled: number, place: number): number {
  if (filled > 0 && (into[filled - 1] ?? 0) >= place) return filled;
  into[filled] = place;
  return filled + 1;
}

function reachOf(tokens: readonly Token[]): Int32Array {
  const reach = new Int32Array(tokens.length + 1).fill(tokens.length);
  for (let at = tokens.length - 1; at >= 0; at -= 1) reach[at] = isWild(tokens[at]?.kind) ? (reach[at + 1] ?? at) : at;
  return reach;
}

function wayOf(token: Token | undefined, code: number): Way {
  if (token === undefined) return 'none';
  if (token.kind === 'literal') return token.code === code ? 'after' : 'none';
  // The place after it may be gone to at the end of a directory only.
  if (token.kind === 'directories') return code === SLASH ? 'here' : 'stay';
  if (token.kind === 'all') return 'here';
  return code === SLASH ? 'none' : wayInName(token, code);
}

function wayInName(token: Extract<Token, { kind: 'name' | 'one' | 'class' }>, code: number): Way {
  if (token.kind === 'name') return 'here';
  return token.kind === 'one' || isIn(token, code) ? 'after' : 'none';
}

function isIn({ negated, ranges }: Extract<Token, { kind: 'class' }>, code: number): boolean {
  return ranges.some(([from, to]) => from <= code && code <= to) !== negated;
}

function tokensOf(pattern: string, refuse: Refuse): Token[] {
  const characters = Array.from(pattern);
  const tokens: Token[] = [];
  let at = 0;
  while (at < characters.length) {
    const { token, length } = tokenAt(characters, at, refuse);
    append(tokens, token);
    at += length;
  }
  return tokens;
}

function exactly(tokens: readonly Token[]): string | null {
  let text = '';
  for (const token of tokens) {
    if (token.kind !== 'literal') return null;
    text += String.fromCodePoint(token.code);
  }
  return text;
}

type Read<Value> = { readonly length: number } & Value;
type Refuse = (reason: string) => Error;

// Of wildcards that mean the same as one of them there is only that one: `****` is `**`, and `**/**/` is `**/`.
function append(tokens: Token[], token: Token): void {
  const before = tokens.at(-1)?.kind;
  if (before === 'all' && isWild(token.kind)) return;
  if (before === token.kind && isWild(token.kind)) return;
  if (token.kind === 'all') while (isWild(tokens.at(-1)?.kind)) tokens.pop();
  tokens.push(token);
}

function isWild(kind: Token['kind'] | undefined): boolean {
  return kind === 'name' || kind === 'all' || kind === 'directories';
}

function tokenAt(characters: readonly string[], at: number, refuse: Refuse): Read<{ token: Token }> {
  const character = characters[at] ?? '';
  if (character === '*') return starAt(characters, at);
  if (character === '?') return { token: { kind: 'one' }, length: 1 };
  if (character === '[') return classAt(characters, at, refuse);
  if (character !== '\\') return { token: { kind: 'literal', code: codeOf(character) }, length: 1 };
  const escaped = characters[at + 1];
  if (escaped === undefined) throw refuse('the pattern ends in a backslash');
  return { token: { kind: 'literal', code: codeOf(escaped) }, length: 2 };
}

function starAt(characters: readonly string[], at: number): Read<{ token: Token }> {
  if (characters[at + 1] !== '*') return { token: { kind: 'name' }, length: 1 };
  if (characters[at + 2] === '/') return { token: { kind: 'directories' }, length: 3 };
  return { token: { kind: 'all' }, length: 2 };
}

function classAt(characters: readonly string[], at: number, refuse: Refuse): Read<{ token: Token }> {
  const negated = characters[at + 1] === '^';
  const ranges: (readonly [number, number])[] = [];
  let here = at + (negated ? 2 : 1);
  while (characters[here] !== ']' || ranges.length === 0) {
    const first = memberAt(characters, here, refuse);
    here += first.length;
    const isRange = characters[here] === '-' && characters[here + 1] !== ']';
    const last = isRange ? memberAt(characters, here + 1, refuse) : first;
    if (isRange) here += 1 + last.length;
    ranges.push([first.code, last.code]);
  }
  return { token: { kind: 'class', negated, ranges }, length: here + 1 - at };
}

function memberAt(characters: readonly string[], at: number, refuse: Refuse): Read<{ code: number }> {
  const escaped = characters[at] === '\\';
  const text = characters[escaped ? at + 1 : at];
  if (text === undefined || text === '/') throw refuse('a [ in the pattern has no ]');
  return { code: codeOf(text), length: escaped ? 2 : 1 };
}

function codeOf(character: string): number {
  return character.codePointAt(0) ?? 0;
}

function costOf(token: Token): number {
  return token.kind === 'class' ? 1 + token.ranges.length : 1;
}
