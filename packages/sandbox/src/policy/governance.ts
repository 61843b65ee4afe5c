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
  const fallback = resolveFallback(layers);
  return { risk, riskReasons, fallback, required: requiredLevel(risk.value, fallback.value, layers) };
}

function resolveRisk({ command, risk }: Task, layers: Layers): Pick<Governance, 'risk' | 'riskReasons'> {
  const rules = [layers.machine, layers.user, layers.repository].flatMap(
    layer => layer?.config.sandbox?.risk_rules ?? [],
  );
  const { risk: value, reasons } = assess(command, risk, rules);
  const given: Sourced<Risk> = risk ? { value: risk, layer: 'request', where: 'risk' } : builtInValue('low');
  return { risk: value === given.value ? given : { ...builtInValue(value), where: 'rules' }, riskReasons: reasons };
}

function resolveFallback({ user }: Layers): Governance['fallback'] {
  const value = user.config.sandbox?.fallback;
  return value ? { value, layer: 'user', where: placeOf(user, 'sandbox.fallback') } : builtInValue('refuse');
}

function requiredLevel(risk: Risk, fallback: 'refuse' | 'warn', layers: Layers): Sourced<Level> {
  const { user, machine } = layers;
  const listed = requiredBy(risk, layers);
  if (listed) return listed;
  const { require_for: own, level } = user.config.sandbox ?? {};
  const floor = machine?.config.sandbox?.level;
  const least = (value: Level, key: string): Sourced<Level> =>
    machine && floor && floor !== 'auto' && isAtLeast(floor, value)
      ? { value: floor, layer: 'machine', where: placeOf(machine, 'sandbox.level') }
      : { value, layer: 'user', where: placeOf(user, key) };
  if (own) return least(LEFT_OUT[risk], 'sandbox.require_for');
  if (level && level !== 'auto' && !isAtLeast(level, 'docker')) return least(level, 'sandbox.level');
  return fallback === 'warn' ? least('bubblewrap', 'sandbox.fallback') : builtInValue('docker');
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
