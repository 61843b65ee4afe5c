// Command risk and governance: the caller’s claim, raised by rules. A rule can only raise, so a wrong guess costs no
// isolation.

import type { Command } from '../contract/command.ts';
import { RISKS, isAtLeast } from '../contract/levels.ts';
import type { Level, Risk } from '../contract/levels.ts';
import type { PolicyRules } from '../contract/host.ts';
import type { EffectivePolicy, Sourced } from '../contract/policy.ts';
import { builtInValue, placeOf } from './layers.ts';
import type { Layers } from './layers.ts';

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

const SHELLS = /^(?:(?:ba|da|z|k|fi|a)?sh|python[\d.]*|node|perl|ruby|php)$/;
const FETCHERS = /^(?:curl|wget|aria2c|fetch)$/;
const EVALUATORS = /^(?:eval|source|\.)$/;
const DELETERS = /^(?:rm|rmdir|shred|truncate|unlink)$/;
const INSTALLERS =
  /^(?:npm|pnpm|yarn|bun|pip[\d.]*|uv|poetry|conda|gem|cargo|go|brew|apt|apt-get|apk|dnf|yum|pacman|dotnet)$/;
const INSTALLS = /^(?:install|i|ci|add|create|exec|dlx|sync|get|restore|-S)$/;
const RUNNERS = /^(?:npx|bunx|uvx|pipx)$/;
// What only reads its words, so that the name of a program among them means nothing.
const READERS = /^(?:grep|egrep|rg|sed|awk|echo|printf|cat|tee|less|head|tail|sort|wc|jq|tr|cut|uniq)$/;
const SECRETS =
  /\.(?:ssh|aws|kube|netrc|npmrc|pypirc|git-credentials|gnupg)\b|\.docker\/config|\.config\/gcloud\b|\/etc\/shadow\b|\bid_(?:rsa|ed25519|ecdsa)\b/;
// Directories that contain only a sandbox’s own files.
const OWN = /^\/(?:workspace|tmp|home\/sandbox|dev\/null)(?:\/|$)/;

/** The words between two separators, as far as text can be read without a shell. */
interface Part {
  readonly words: readonly string[];
  /** Whether the output of the part before is its input. */
  readonly piped: boolean;
}

const BUILT_IN: readonly {
  readonly why: string;
  readonly risk: Risk;
  readonly applies: (parts: readonly Part[], text: string) => boolean;
}[] = [
  {
    why: 'deletes the root or the home directory',
    risk: 'critical',
    applies: parts => parts.some(({ words }) => deletes(words, isEverything)),
  },
  { why: 'runs what it fetches from the network', risk: 'high', applies: runsWhatItFetches },
  { why: 'reads credentials', risk: 'high', applies: (_, text) => SECRETS.test(text) },
  {
    why: 'deletes outside the workspace',
    risk: 'high',
    applies: parts => parts.some(({ words }) => deletes(words, isOutside)),
  },
  {
    why: 'writes to a disk or makes a file system',
    risk: 'high',
    applies: parts =>
      parts.some(({ words }) =>
        words.some(word => /^(?:.*\/)?mkfs(?:\.\w+)?$/.test(word) || word.startsWith('of=/dev/')),
      ),
  },
  {
    why: 'installs packages, which run scripts of strangers',
    risk: 'medium',
    applies: parts => parts.some(({ words }) => installs(words)),
  },
];

/** Assesses a command. `rules` come from the layers, and count beside the built-in ones. */
export function assess(command: Command, given: Risk | undefined, rules: readonly RiskRule[]): Assessment {
  const text = textOf(command);
  const read = readings(text).map(reading => ({ parts: partsOf(reading), reading }));
  const matched = [
    ...BUILT_IN.filter(({ applies }) => read.some(({ parts, reading }) => applies(parts, reading))),
    ...rules
      .filter(({ match }) => matchesText(text, match))
      .map(({ match, risk }) => ({ risk, why: `matches ${JSON.stringify(match)} of sandbox.risk_rules` })),
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

// Two readings, since this is no shell: quotes that join (`r""m`), and quotes around a command of its own (`sh -c 'rm …'`).
// That reads too much rather than too little.
function readings(text: string): readonly [string, string] {
  return [text.replaceAll(/["'\\]/g, ''), text.replaceAll(/["'\\]/g, ' ')];
}

const SEPARATOR = /(\|\||&&|[;&|\n()`])/;

function partsOf(text: string): Part[] {
  // Separators stand between the parts, at every second place.
  const pieces = text.split(SEPARATOR);
  return pieces.flatMap((piece, index) => {
    if (index % 2 === 1) return [];
    return [{ words: piece.split(/\s+/).filter(Boolean), piped: pieces[index - 1] === '|' }];
  });
}

// Any word may be the program: there are more ways to call one (`sudo -u x`, `timeout 5`, `then`) than anybody can list.
function programAt(words: readonly string[], names: RegExp): number {
  return words.findIndex(word => names.test(word.slice(word.lastIndexOf('/') + 1)));
}

function deletes(words: readonly string[], what: (word: string) => boolean): boolean {
  const at = programAt(words, DELETERS);
  if (at >= 0 && words.slice(at + 1).some(what)) return true;
  return programAt(words, /^find$/) >= 0 && words.includes('-delete') && words.some(what);
}

function installs(words: readonly string[]): boolean {
  const at = programAt(words, INSTALLERS);
  return programAt(words, RUNNERS) === 0 || (at >= 0 && words.slice(at + 1, at + 3).some(word => INSTALLS.test(word)));
}

function runsWhatItFetches(parts: readonly Part[]): boolean {
  const fetch = parts.findIndex(({ words }) => programAt(words, FETCHERS) >= 0);
  if (fetch < 0) return false;
  // `… | sh` behind it, or `sh -c "$(…"` and `eval …` before it or with it.
  const pipe = parts.findIndex(({ piped }, index) => index > fetch && piped);
  const behind = pipe >= 0 && parts.slice(pipe).some(runs);
  return behind || parts.slice(0, fetch + 1).some(part => runs(part) || programAt(part.words, EVALUATORS) >= 0);
}

function runs({ words }: Part): boolean {
  return programAt(words.slice(0, 1), READERS) < 0 && programAt(words, SHELLS) >= 0;
}

function isEverything(word: string): boolean {
  return /^(?:\/|~\/?|\$HOME\/?|\$\{HOME\}\/?)\*?$/.test(word);
}

function isOutside(word: string): boolean {
  if (/^(?:~|\$HOME|\$\{HOME)/.test(word)) return true;
  return word.startsWith('/') ? !OWN.test(word) || word.includes('/../') : word === '..' || word.startsWith('../');
}

function textOf(command: Command): string {
  return typeof command === 'string' ? command : command.join(' ');
}

/**
 * Whether a text matches a pattern in which `*` stands for anything. Parts are searched one after another, so that no
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

/** What a command is and what its caller said about it. */
export interface Task {
  readonly command: Command;
  readonly risk?: Risk | undefined;
}

/** The part of a policy that says how much isolation is needed. */
export type Governance = Pick<EffectivePolicy, 'risk' | 'riskReasons' | 'required' | 'fallback'>;

// Without a word of the user’s, risks that need an engine’s isolation; critical always does.
const REQUIRED_FOR: readonly Risk[] = ['high', 'critical'];

// What each risk needs where the user’s own list of risks leaves it out.
const LEFT_OUT: Readonly<Record<Risk, Level>> = { low: 'none', medium: 'none', high: 'ulimit', critical: 'docker' };

/** Decides what a command needs. Only the user’s own file can ask for less than docker; everybody else can ask for more. */
export function govern(task: Task, layers: Layers): Governance {
  const { risk, riskReasons } = resolveRisk(task, layers);
  const listed = requiredBy(risk.value, layers);
  return {
    risk,
    riskReasons,
    fallback: resolveFallback(listed !== null, layers),
    required: strongest([listed ?? leftOut(risk.value, layers), ...levelsOf(layers)]),
  };
}

/** The rules about risks, by each layer that has some. */
export function riskRulesOf(layers: Layers): Pick<PolicyRules, 'requireFor' | 'riskRules'> {
  const from = (['machine', 'user', 'repository'] as const).flatMap(layer => {
    const loaded = layers[layer];
    return loaded ? [{ layer, loaded, sandbox: loaded.config.sandbox }] : [];
  });
  const requireFor = from.flatMap(({ layer, loaded, sandbox }) => {
    const where = placeOf(loaded, 'sandbox.require_for');
    return sandbox?.require_for ? [{ value: sandbox.require_for, layer, where }] : [];
  });
  return {
    requireFor: requireFor.length > 0 ? requireFor : [builtInValue(RISKS)],
    riskRules: from.flatMap(({ layer, loaded, sandbox }) => {
      const where = placeOf(loaded, 'sandbox.risk_rules');
      return sandbox?.risk_rules ? [{ value: sandbox.risk_rules, layer, where }] : [];
    }),
  };
}

function resolveRisk({ command, risk }: Task, layers: Layers): Pick<Governance, 'risk' | 'riskReasons'> {
  const rules = [layers.machine, layers.user, layers.repository].flatMap(
    layer => layer?.config.sandbox?.risk_rules ?? [],
  );
  const { risk: value, reasons } = assess(command, risk, rules);
  const given: Sourced<Risk> = risk ? { value: risk, layer: 'request', where: 'risk' } : builtInValue('low');
  return { risk: value === given.value ? given : { ...builtInValue(value), where: 'rules' }, riskReasons: reasons };
}

// It says what may happen without an engine, and nothing about what may be asked for while there is one.
function resolveFallback(listed: boolean, layers: Layers): Governance['fallback'] {
  const value = layers.user.config.sandbox?.fallback;
  const named = levelsOf(layers).some(({ layer, value: level }) => layer === 'user' || isAtLeast(level, 'docker'));
  if (value === undefined || listed || named) return builtInValue('refuse');
  return { value, layer: 'user', where: placeOf(layers.user, 'sandbox.fallback') };
}

// Minimum level of a risk that is not listed: docker, unless the user’s own file sets a lower limit.
function leftOut(risk: Risk, { user }: Layers): Sourced<Level> {
  const { require_for: own, level } = user.config.sandbox ?? {};
  if (own) return { value: LEFT_OUT[risk], layer: 'user', where: placeOf(user, 'sandbox.require_for') };
  if (level === undefined || level === 'auto') return builtInValue('docker');
  return { value: level, layer: 'user', where: placeOf(user, 'sandbox.level') };
}

// A level that the user or the machine names is the least for everybody else.
function levelsOf({ user, machine }: Layers): Sourced<Level>[] {
  return (['user', 'machine'] as const).flatMap(layer => {
    const from = layer === 'user' ? user : machine;
    const level = from?.config.sandbox?.level;
    if (!from || level === undefined || level === 'auto') return [];
    return [{ value: level, layer, where: placeOf(from, 'sandbox.level') }];
  });
}

// Of two that ask for the same, the configured one is named: a built-in value is no one’s decision.
function strongest([first, ...others]: readonly [Sourced<Level>, ...Sourced<Level>[]]): Sourced<Level> {
  return others.reduce((best, one) => {
    if (best.value === one.value) return best.layer === 'built-in' ? one : best;
    return isAtLeast(best.value, one.value) ? best : one;
  }, first);
}

// The machine’s and the repository’s lists add to the user’s, since they can only tighten.
function requiredBy(risk: Risk, layers: Layers): Sourced<Level> | null {
  if (risk === 'critical') return { value: 'docker', layer: 'built-in', where: 'critical' };
  for (const layer of ['machine', 'user', 'repository'] as const) {
    const from = layers[layer];
    if (from?.config.sandbox?.require_for?.includes(risk))
      return { value: 'docker', layer, where: placeOf(from, 'sandbox.require_for') };
  }
  const silent = layers.user.config.sandbox?.require_for === undefined;
  return silent && REQUIRED_FOR.includes(risk) ? builtInValue('docker') : null;
}
