// Step 2 of the pipe, the deciding part: how risky a command is, and the least isolation that risk needs here. Pure.

import type { Command } from '../contract/command.ts';
import { isAtLeast } from '../contract/levels.ts';
import type { Level, Risk } from '../contract/levels.ts';
import type { EffectivePolicy, Sourced } from '../contract/policy.ts';
import { builtInValue, placeOf } from './layers.ts';
import type { Layers } from './layers.ts';
import { assess } from './risk.ts';

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

// What a risk needs that nobody listed: docker, unless the user’s own file says how far down it may go.
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

// Of two that ask for the same, the one that somebody wrote down is named: a built-in value is nobody’s decision.
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
