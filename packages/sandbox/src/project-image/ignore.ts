// Which files a project’s `.dockerignore` leaves out: the rules of the engine’s own client, in a time that no pattern can
// blow up, since the file comes with the code. Pure.

import { posix } from 'node:path';
import { AcodeError } from '../contract/errors.ts';

const FILE = '.dockerignore';
const MOST_PATTERNS = 1000;
const LONGEST_PATTERN = 1024;

/** One piece of a pattern: a character, a set of them, or a wildcard. */
type Token =
  | { readonly kind: 'literal'; readonly text: string }
  | { readonly kind: 'class'; readonly negated: boolean; readonly ranges: readonly (readonly [string, string])[] }
  // `?`: one character of a name.
  | { readonly kind: 'one' }
  // `*`: any part of a name.
  | { readonly kind: 'name' }
  // `**/`: any number of directories, or none.
  | { readonly kind: 'directories' }
  // `**`: anything.
  | { readonly kind: 'all' };

interface Rule {
  /** Whether it brings back what an earlier one left out. */
  readonly negated: boolean;
  readonly tokens: readonly Token[];
  /** The path it means where it has no wildcard, which is most of them. */
  readonly exact: string | null;
}

/** What the rules say of one path. Its children are asked with it, since a rule that fits a directory fits all in it. */
export interface Verdict {
  readonly ignored: boolean;
  /** Which rules fit the path or a directory above it. */
  readonly fits: readonly boolean[];
}

/** The rules of one `.dockerignore`. */
export class IgnoreRules {
  readonly #rules: readonly Rule[];

  private constructor(rules: readonly Rule[]) {
    this.#rules = rules;
  }

  /** Reads the file’s text; throws ACODE-IMG-002 with the line of a pattern that is none. */
  static parse(text: string): IgnoreRules {
    const lines = text.replace(/^\uFEFF/, '').split('\n');
    const rules = lines.flatMap((line, index) => ruleOf(line, index + 1) ?? []);
    if (rules.length <= MOST_PATTERNS) return new IgnoreRules(rules);
    throw refused(FILE, `has more than ${MOST_PATTERNS} patterns`);
  }

  /** What the rules say of a path relative to the project; `above` is what they said of the directory it is in. */
  judge(path: string, above: Verdict | null): Verdict {
    let ignored = false;
    const fits = this.#rules.map((rule, index) => {
      const fit = above?.fits[index] === true || matches(rule, path);
      if (fit) ignored = !rule.negated;
      return fit;
    });
    return { ignored, fits };
  }

  /** Whether a rule may bring back something below a directory that is left out. */
  bringsBackBelow(directory: string): boolean {
    return this.#rules.some(({ negated, tokens }) => negated && states(tokens, `${directory}/`).size > 0);
  }
}

function ruleOf(line: string, number: number): Rule | null {
  if (line.startsWith('#')) return null;
  const text = line.trim();
  if (text === '') return null;
  if (text.length > LONGEST_PATTERN || text.includes('\0'))
    throw refused(`${FILE}:${number}`, `the pattern is longer than ${LONGEST_PATTERN} characters, or none`);
  const negated = text.startsWith('!');
  const pattern = negated ? text.slice(1).trim() : text;
  if (pattern === '') throw refused(`${FILE}:${number}`, 'there is no pattern after the !');
  const clean = posix.normalize(pattern).replace(/^\/+/, '').replace(/\/+$/, '');
  // The project itself; the engine’s client takes no notice of it either.
  if (clean === '' || clean === '.') return null;
  const tokens = tokensOf(clean, number);
  const exact = tokens.every(({ kind }) => kind === 'literal') ? tokens.map(textOf).join('') : null;
  return { negated, tokens, exact };
}

function textOf(token: Token): string {
  return token.kind === 'literal' ? token.text : '';
}

function tokensOf(pattern: string, line: number): Token[] {
  const characters = Array.from(pattern);
  const tokens: Token[] = [];
  let at = 0;
  while (at < characters.length) {
    const { token, length } = tokenAt(characters, at, line);
    tokens.push(token);
    at += length;
  }
  return tokens;
}

function tokenAt(characters: readonly string[], at: number, line: number): { token: Token; length: number } {
  const character = characters[at] ?? '';
  if (character === '*') return starAt(characters, at);
  if (character === '?') return { token: { kind: 'one' }, length: 1 };
  if (character === '[') return classAt(characters, at, line);
  if (character !== '\\') return { token: { kind: 'literal', text: character }, length: 1 };
  const escaped = characters[at + 1];
  if (escaped === undefined) throw refused(`${FILE}:${line}`, 'the pattern ends in a backslash');
  return { token: { kind: 'literal', text: escaped }, length: 2 };
}

function starAt(characters: readonly string[], at: number): { token: Token; length: number } {
  if (characters[at + 1] !== '*') return { token: { kind: 'name' }, length: 1 };
  if (characters[at + 2] === '/') return { token: { kind: 'directories' }, length: 3 };
  return { token: { kind: 'all' }, length: 2 };
}

function classAt(characters: readonly string[], at: number, line: number): { token: Token; length: number } {
  const negated = characters[at + 1] === '^';
  const ranges: (readonly [string, string])[] = [];
  let here = at + (negated ? 2 : 1);
  while (characters[here] !== ']' || ranges.length === 0) {
    const first = memberAt(characters, here, line);
    here += first.length;
    const isRange = characters[here] === '-' && characters[here + 1] !== ']';
    const last = isRange ? memberAt(characters, here + 1, line) : first;
    if (isRange) here += 1 + last.length;
    ranges.push([first.text, last.text]);
  }
  return { token: { kind: 'class', negated, ranges }, length: here + 1 - at };
}

function memberAt(characters: readonly string[], at: number, line: number): { text: string; length: number } {
  const escaped = characters[at] === '\\';
  const text = characters[escaped ? at + 1 : at];
  if (text === undefined || text === '/') throw refused(`${FILE}:${line}`, 'a [ in the pattern has no ]');
  return { text, length: escaped ? 2 : 1 };
}

function matches({ tokens, exact }: Rule, path: string): boolean {
  return exact === null ? states(tokens, path).has(tokens.length) : exact === path;
}

/**
 * The places in a pattern that one can be at after a text. All of them are followed at once, character by character, so that
 * the time is the length of the text times that of the pattern at most; trying one after the other could take for ever.
 */
function states(tokens: readonly Token[], text: string): ReadonlySet<number> {
  let now = new Set<number>();
  enter(tokens, 0, now);
  for (const character of text) {
    const next = new Set<number>();
    for (const at of now) step(tokens, at, character, next);
    if (next.size === 0) return next;
    now = next;
  }
  return now;
}

// What can be empty is passed at once as well.
function enter(tokens: readonly Token[], at: number, into: Set<number>): void {
  let here = at;
  while (!into.has(here)) {
    into.add(here);
    const kind = tokens[here]?.kind;
    if (kind !== 'name' && kind !== 'all' && kind !== 'directories') return;
    here += 1;
  }
}

function step(tokens: readonly Token[], at: number, character: string, into: Set<number>): void {
  const token = tokens[at];
  if (!token) return;
  if (token.kind === 'directories') {
    into.add(at);
    // The place after it may be gone to at the end of a directory only.
    if (character === '/') enter(tokens, at + 1, into);
  } else if (token.kind === 'all' || (token.kind === 'name' && character !== '/')) enter(tokens, at, into);
  else if (takes(token, character)) enter(tokens, at + 1, into);
}

function takes(token: Token, character: string): boolean {
  if (token.kind === 'literal') return token.text === character;
  if (character === '/') return false;
  if (token.kind === 'one') return true;
  if (token.kind !== 'class') return false;
  return token.ranges.some(([from, to]) => from <= character && character <= to) !== token.negated;
}

function refused(path: string, reason: string): AcodeError {
  return new AcodeError('ACODE-IMG-002', { path, reason, remedy: `Correct ${FILE}, or remove it.` });
}
