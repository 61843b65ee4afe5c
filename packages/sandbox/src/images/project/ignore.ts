// Which files a project’s `.dockerignore` leaves out: the rules of the engine’s own client, in a time that no pattern can
// blow up, since the file comes with the code. Pure.

import { posix } from 'node:path';
import { AcodeError } from '../../contract/errors.ts';
import { Pattern } from './pattern.ts';
import type { Places } from './pattern.ts';

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
