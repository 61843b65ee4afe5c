// Patterns of a `.dockerignore`: parsed, and matched name by name with all positions in a pattern followed at once.
// Pure.

import { posix } from 'node:path';
import { AcodeError } from '../../contract/errors.ts';

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
class Pattern {
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

const FILE = '.dockerignore';
const MAX_PATTERNS = 1000;
const MAX_PATTERN = 1024;
// Of all patterns with wildcards together. One name costs its length times this at most: less than a tenth of a second.
const MAX_WEIGHT = 32_768;
// For all names of a project together: half a minute of a slow machine. 200,000 files under a hundred patterns take less.
const MAX_STEPS = 1_000_000_000;
const CHEAPER = `Use fewer and shorter patterns in ${FILE}: paths without a wildcard cost nothing.`;

interface Rule {
  /** Its place among all: the last one that fits has the last word. */
  readonly index: number;
  /** Whether it brings back what an earlier one left out. */
  readonly negated: boolean;
  readonly pattern: Pattern;
}

/** A rule with wildcards, and where in its pattern one is. */
interface Live {
  readonly rule: Rule;
  readonly places: Places;
}

/** What the rules say of one path. What lies in it is asked for with it: a rule that fits a directory fits all in it. */
export interface Verdict {
  readonly path: string;
  readonly ignored: boolean;
  /** The last rule that fits the path or a directory above it; -1 where none does. */
  readonly fit: number;
  /** The rules after it that may still fit what lies below, last first. */
  readonly live: readonly Live[];
}

/** The rules of one `.dockerignore`. */
export class IgnoreRules {
  readonly #rules: readonly Rule[];
  /** The last rule without wildcards for a path. */
  readonly #exact = new Map<string, number>();
  /** The last rule without wildcards that brings something back from somewhere below a directory. */
  readonly #backBelow = new Map<string, number>();
  readonly #wild: readonly Rule[];
  readonly #mostSteps: number;
  #steps = 0;

  private constructor(rules: readonly Rule[], mostSteps: number) {
    this.#rules = rules;
    this.#mostSteps = mostSteps;
    const wild: Rule[] = [];
    for (const rule of rules) {
      if (rule.pattern.exact === null) wild.push(rule);
      else this.#remember(rule.pattern.exact, rule);
    }
    this.#wild = wild.reverse();
  }

  /** Reads the file’s text; throws ACODE-IMG-002 with the line of a pattern that is none. */
  static parse(text: string, mostSteps = MAX_STEPS): IgnoreRules {
    const rules: Rule[] = [];
    for (const [at, line] of text
      .replace(/^\uFEFF/, '')
      .split('\n')
      .entries()) {
      const rule = ruleOf(line, at + 1, rules.length);
      if (rule) rules.push(rule);
      if (rules.length > MAX_PATTERNS) throw refused(FILE, `it has more than ${MAX_PATTERNS} patterns`, CHEAPER);
    }
    const wild = rules.filter(({ pattern }) => pattern.exact === null);
    if (wild.reduce((sum, { pattern }) => sum + pattern.weight, 0) > MAX_WEIGHT)
      throw refused(FILE, `its patterns with wildcards have more than ${MAX_WEIGHT} characters together`, CHEAPER);
    return new IgnoreRules(rules, mostSteps);
  }

  /** The verdict on the project itself, which is never left out. */
  get top(): Verdict {
    const live = this.#wild.map(rule => ({ rule, places: rule.pattern.start }));
    return { path: '', ignored: false, fit: -1, live };
  }

  /**
   * What the rules say of a name in a directory; `above` is what they said of that. Throws ACODE-IMG-002 once everything
   * that was asked has taken more than any project needs.
   */
  judge(name: string, above: Verdict): Verdict {
    const path = above.path === '' ? name : `${above.path}/${name}`;
    const text = Uint32Array.from(above.path === '' ? name : `/${name}`, character => character.codePointAt(0) ?? 0);
    let fit = Math.max(above.fit, this.#exact.get(path) ?? -1);
    const live: Live[] = [];
    for (const { rule, places: before } of above.live) {
      // Those that come before one that fits have nothing to say, neither here nor below.
      if (rule.index < fit) break;
      const { places, cost } = rule.pattern.advance(before, text);
      this.#count(cost);
      if (rule.pattern.isAtEnd(places)) fit = rule.index;
      else if (places.length > 0) live.push({ rule, places });
    }
    return { path, ignored: fit >= 0 && this.#rules[fit]?.negated === false, fit, live };
  }

  /** Whether a rule may bring back something below a directory that is left out. */
  bringsBackBelow({ path, fit, live }: Verdict): boolean {
    return (this.#backBelow.get(path) ?? -1) > fit || live.some(({ rule }) => rule.negated && rule.index > fit);
  }

  #remember(path: string, { index, negated }: Rule): void {
    this.#exact.set(path, index);
    if (!negated) return;
    for (let at = path.indexOf('/'); at > 0; at = path.indexOf('/', at + 1))
      this.#backBelow.set(path.slice(0, at), index);
  }

  #count(cost: number): void {
    this.#steps += cost + 1;
    if (this.#steps > this.#mostSteps) throw refused(FILE, 'its patterns take too long on this many files', CHEAPER);
  }
}

function ruleOf(line: string, number: number, index: number): Rule | null {
  if (line.startsWith('#')) return null;
  const text = line.trim();
  if (text === '') return null;
  if (text.length > MAX_PATTERN || text.includes('\0'))
    throw refused(`${FILE}:${number}`, `the pattern is longer than ${MAX_PATTERN} characters, or none`);
  const negated = text.startsWith('!');
  const pattern = negated ? text.slice(1).trim() : text;
  if (pattern === '') throw refused(`${FILE}:${number}`, 'there is no pattern after the !');
  const clean = posix.normalize(pattern).replace(/^\/+/, '').replace(/\/+$/, '');
  // The project itself; the engine’s client takes no notice of it either.
  if (clean === '' || clean === '.') return null;
  return { index, negated, pattern: new Pattern(clean, reason => refused(`${FILE}:${number}`, reason)) };
}

function refused(path: string, reason: string, remedy = `Correct ${FILE}, or remove it.`): AcodeError {
  return new AcodeError('ACODE-IMG-002', { path, reason, remedy });
}
