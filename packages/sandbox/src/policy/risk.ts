// How dangerous a command is: what the caller said, raised by rules. A rule can only raise, so a wrong guess costs isolation nothing.

import type { Command } from '../contract/command.ts';
import { RISKS } from '../contract/levels.ts';
import type { Risk } from '../contract/levels.ts';

/** A rule of a configuration: a text with `*` for anything, and the risk of what it matches. */
export interface RiskRule {
  readonly match: string;
  readonly risk: Risk;
}

/** What was found out about a command. */
export interface Assessment {
  readonly risk: Risk;
  /** Why it is not lower: the rules that matched, worst first. */
  readonly reasons: readonly string[];
}

// As much of a command as is looked at; one of megabytes has said what it is by then.
const LONGEST = 256 * 1024;

const SHELLS = /^(?:(?:ba|da|z|k|fi|a)?sh|python[\d.]*|node|perl|ruby|php)$/;
const FETCHERS = /^(?:curl|wget|aria2c|fetch)$/;
const EVALUATORS = /^(?:eval|source|\.)$/;
const DELETERS = /^(?:rm|rmdir|shred|truncate|unlink)$/;
const INSTALLERS =
  /^(?:npm|pnpm|yarn|bun|pip[\d.]*|uv|poetry|conda|gem|cargo|go|brew|apt|apt-get|apk|dnf|yum|pacman|dotnet)$/;
const INSTALLS = /^(?:install|i|ci|add|create|exec|dlx|sync|get|restore|-S)$/;
const RUNNERS = /^(?:npx|bunx|uvx|pipx)$/;
const PREFIXES = /^(?:sudo|env|command|exec|nice|nohup|time|xargs|doas|\w+=.*)$/s;
const SECRETS =
  /\.(?:ssh|aws|kube|netrc|npmrc|pypirc|git-credentials|gnupg)\b|\.docker\/config|\.config\/gcloud\b|\/etc\/shadow\b|\bid_(?:rsa|ed25519|ecdsa)\b/;
// Where a sandbox’s own files are, and nobody else’s.
const OWN = /^\/(?:workspace|tmp|home\/sandbox|dev\/null)(?:\/|$)/;

/** One program with its words, as far as text can be read without a shell. */
interface Call {
  readonly program: string;
  readonly words: readonly string[];
  /** Whether the output of the call before is its input. */
  readonly piped: boolean;
}

const BUILT_IN: readonly {
  readonly why: string;
  readonly risk: Risk;
  readonly applies: (calls: readonly Call[], text: string) => boolean;
}[] = [
  {
    why: 'deletes the root or the home directory',
    risk: 'critical',
    applies: calls => calls.some(call => call.program === 'rm' && call.words.some(isEverything)),
  },
  { why: 'runs what it fetches from the network', risk: 'high', applies: runsWhatItFetches },
  { why: 'reads credentials', risk: 'high', applies: (_, text) => SECRETS.test(text) },
  {
    why: 'deletes outside the workspace',
    risk: 'high',
    applies: calls => calls.some(({ program, words }) => DELETERS.test(program) && words.some(isOutside)),
  },
  {
    why: 'writes to a disk or makes a file system',
    risk: 'high',
    applies: calls =>
      calls.some(
        ({ program, words }) =>
          program.startsWith('mkfs') || (program === 'dd' && words.some(word => word.startsWith('of=/dev/'))),
      ),
  },
  {
    why: 'installs packages, which run scripts of strangers',
    risk: 'medium',
    applies: calls =>
      calls.some(
        ({ program, words }) =>
          RUNNERS.test(program) || (INSTALLERS.test(program) && words.slice(0, 2).some(word => INSTALLS.test(word))),
      ),
  },
];

/** Assesses a command. `rules` come from the layers, and count beside the built-in ones. */
export function assess(command: Command, given: Risk | undefined, rules: readonly RiskRule[]): Assessment {
  const text = textOf(command);
  const calls = callsOf(text);
  const matched = [
    ...BUILT_IN.filter(({ applies }) => applies(calls, text)),
    ...rules
      .filter(({ match }) => matchesText(text, match))
      .map(({ match, risk }) => ({ risk, why: `matches ${JSON.stringify(match)}` })),
  ];
  const least = given ?? 'low';
  const risk = matched.reduce((worst, found) => (isWorse(found.risk, worst) ? found.risk : worst), least);
  const reasons = matched
    .filter(found => isWorse(found.risk, least))
    .sort((one, other) => RISKS.indexOf(other.risk) - RISKS.indexOf(one.risk))
    .map(found => `${found.risk}: ${found.why}`);
  return { risk, reasons: [...new Set(reasons)] };
}

function isWorse(one: Risk, other: Risk): boolean {
  return RISKS.indexOf(one) > RISKS.indexOf(other);
}

const SEPARATOR = /(\|\||&&|[;&|\n(){}`])/;

// Not a parser: quotes are left out, so that what is in them counts as if it stood there. That reads too much and never too little.
function callsOf(text: string): Call[] {
  const calls: Call[] = [];
  // Separators stand between the parts, at every second place.
  const parts = text.split(SEPARATOR);
  for (const [index, part] of parts.entries()) {
    if (index % 2 === 1) continue;
    const piped = parts[index - 1] === '|';
    calls.push(
      ...callsOfWords(
        part
          .replaceAll(/["'\\]/g, ' ')
          .split(/\s+/)
          .filter(Boolean),
        piped,
      ),
    );
  }
  return calls;
}

// `sudo …` and `sh -c …` are what they run: the words behind them are looked at too.
function callsOfWords(words: readonly string[], piped: boolean): Call[] {
  const calls: Call[] = [];
  for (const [at, word] of words.entries()) {
    const program = word.replace(/^.*\//s, '');
    calls.push({ program, words: words.slice(at + 1), piped: piped && at === 0 });
    if (!runsTheRest(program, words[at + 1] ?? '')) break;
  }
  return calls;
}

function runsTheRest(program: string, next: string): boolean {
  if (program.startsWith('-') || PREFIXES.test(program)) return true;
  return SHELLS.test(program) && /^-\w*c$/.test(next);
}

function runsWhatItFetches(calls: readonly Call[]): boolean {
  const fetch = calls.findIndex(({ program }) => FETCHERS.test(program));
  if (fetch < 0) return false;
  const runs = ({ program }: Call): boolean => SHELLS.test(program);
  // `… | sh` behind it, or `sh -c "$(…"` and `eval …` before it.
  const behind = calls
    .slice(fetch + 1)
    .some((call, index, rest) => runs(call) && rest.slice(0, index + 1).some(({ piped }) => piped));
  return behind || calls.slice(0, fetch).some(call => runs(call) || EVALUATORS.test(call.program));
}

function isEverything(word: string): boolean {
  return /^(?:\/|~\/?|\$HOME\/?|\$\{HOME)\*?$/.test(word);
}

function isOutside(word: string): boolean {
  if (word.startsWith('~') || word.startsWith('$HOME')) return true;
  return word.startsWith('/') ? !OWN.test(word) || word.includes('/../') : word === '..' || word.startsWith('../');
}

function textOf(command: Command): string {
  return (typeof command === 'string' ? command : command.join(' ')).slice(0, LONGEST);
}

/**
 * Whether a text matches a pattern in which `*` stands for anything. Parts are looked for one after another, so that no
 * pattern of a stranger’s takes longer than the text is long.
 */
export function matchesText(text: string, pattern: string): boolean {
  const [first = '', ...rest] = pattern.split('*');
  const last = rest.pop();
  if (last === undefined) return text === first;
  if (!text.startsWith(first)) return false;
  let at = first.length;
  for (const part of rest) {
    const found = text.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return text.length - last.length >= at && text.endsWith(last);
}
