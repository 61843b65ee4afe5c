// Lines of a configuration that say what acode does anyway, and other spellings: understood, so that older sample files are.

import { isDeepStrictEqual } from 'node:util';
import { RISKS } from '../../contract/levels.ts';

const API_FLOOR = [1, 41] as const;

/** A value that changes nothing, and why another one is refused. */
interface Given {
  readonly accepts: (value: unknown) => boolean;
  /** What to write instead of another value. */
  readonly instead: string;
}

const is =
  (expected: unknown) =>
  (value: unknown): boolean =>
    isDeepStrictEqual(value, expected);

// Keys that nothing else honours: any other value is refused with the reason.
const GIVEN: ReadonlyMap<string, Given> = new Map(
  Object.entries({
    'sandbox.enabled': {
      accepts: is(true),
      instead:
        'Write true or take the line out: acode runs nothing without a sandbox. `sandbox.level` names a weaker one.',
    },
    'sandbox.docker.api_version': {
      accepts: value => value === null || isAtLeastFloor(value),
      instead: `Write ${API_FLOOR.join('.')} or a later version, or take the line out: acode asks the engine for its version.`,
    },
    'sandbox.mounts.workspace_path': {
      accepts: is('/workspace'),
      instead: 'Write /workspace or take the line out: the workspace is always there.',
    },
    'sandbox.cleanup.on_task_complete': {
      accepts: is(true),
      instead: 'Write true or take the line out: a sandbox is always removed when its command has ended.',
    },
    'sandbox.cleanup.on_agent_exit': {
      accepts: is(true),
      instead: 'Write true or take the line out: what a session made is always removed with it.',
    },
  }),
);

// Values of keys that are there: this one is the same as no line at all.
const SAME_AS_NONE = new Map(
  Object.entries({
    'sandbox.docker.host': is(null),
    'sandbox.containers.labels': is({ 'acode.managed': 'true' }),
  }),
);

// Keys that a repository may not set, at the value they have unless the user says otherwise.
const BUILT_IN = new Map(
  Object.entries({
    'sandbox.containers.name_prefix': is('acode'),
    'sandbox.containers.cleanup_orphans': is(true),
    'sandbox.containers.create_timeout_seconds': is(30),
    'sandbox.containers.pull_timeout_seconds': is(300),
    'sandbox.cleanup.timeout_seconds': is(30),
  }),
);

function isAtLeastFloor(value: unknown): boolean {
  const version = /^v?(\d+)\.(\d+)$/.exec(String(value));
  if (!version) return false;
  const [major, minor] = [Number(version[1]), Number(version[2])];
  return major > API_FLOOR[0] || (major === API_FLOOR[0] && minor >= API_FLOOR[1]);
}

/** What to write instead of a value of a key that has only one; undefined for any other key. */
export function insteadOf(key: string): string | undefined {
  return GIVEN.get(key)?.instead;
}

/** A configuration without the lines that change nothing, and with the names of risks in lower case. */
export function withoutGiven(value: unknown, above = ''): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const entries = Object.entries(value).flatMap(([name, child]: [string, unknown]) => {
    const key = above === '' ? name : `${above}.${name}`;
    return !name.includes('.') && changesNothing(key, child) ? [] : [[name, spelled(key, withoutGiven(child, key))]];
  });
  return Object.fromEntries(entries);
}

function changesNothing(key: string, value: unknown): boolean {
  return GIVEN.get(key)?.accepts(value) === true || SAME_AS_NONE.get(key)?.(value) === true;
}

function spelled(key: string, value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  if (key === 'sandbox.require_for') return value.map(lowerRisk);
  return key === 'sandbox.risk_rules' ? value.map(lowerRule) : value;
}

function lowerRule(rule: unknown): unknown {
  return isRule(rule) ? { ...rule, risk: lowerRisk(rule.risk) } : rule;
}

function isRule(rule: unknown): rule is { readonly risk: unknown } {
  return typeof rule === 'object' && rule !== null && 'risk' in rule;
}

function lowerRisk(risk: unknown): unknown {
  return RISKS.find(name => typeof risk === 'string' && name === risk.toLowerCase()) ?? risk;
}

/** Whether a repository only repeats the built-in value of a key that is not its own to set. */
export function repeatsBuiltIn(key: string, value: unknown): boolean {
  return BUILT_IN.get(key)?.(value) === true;
}
