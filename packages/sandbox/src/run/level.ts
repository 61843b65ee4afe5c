// Step 2 of the pipeline, the part with I/O: asks only the backends that could serve, and chooses a level or refuses.
// It never chooses a level weaker than the policy requires, and never a weaker one because the engine was slow, busy or
// broken.

import { AcodeError } from '../contract/errors.ts';
import { WITHOUT_ENGINE, isAtLeast, usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import { text } from '../contract/wording.ts';
import type { Text } from '../contract/wording.ts';
import type { Host } from './host.ts';
import type { Backend, Capability } from '../isolation/backend.ts';
import { setBy, sourceOf } from '../policy/layers.ts';
import { decideRuntime } from '../policy/runtime.ts';

/** The level and the backend of a run. */
export interface Chosen {
  readonly backend: Backend;
  readonly capability: Capability;
  readonly level: Level;
  /** The engine’s runtime; null for its default, or without an engine. */
  readonly runtime: string | null;
  /** Notes for the caller about the choice. */
  readonly notes: readonly string[];
}

const PATIENCE_MS = 1000;
const NO_BOUNDARY = 'no isolation';

type Asked = Pick<EffectivePolicy, 'level' | 'runtime' | 'required' | 'fallback' | 'risk' | 'riskReasons' | 'mode'>;

/** Chooses level and backend for a run. */
export async function chooseLevel(host: Host, policy: Asked): Promise<Chosen> {
  if (host.attacked !== undefined) return locally(host, host.attacked, policy, []);
  const asked = askedOf(policy);
  if (asked !== 'auto' && !isAtLeast(asked, policy.required.value)) throw tooWeak(asked, policy);
  if (asked !== 'auto' && !usesEngine(asked)) return locally(host, asked, policy, []);
  // A refusal lists the available levels, and finding them takes a moment: start while waiting for the engine.
  const cancel = host.telemetry.clock.after(PATIENCE_MS, () => void host.localCapabilities());
  try {
    const backend = await host.engine();
    const capability = await host.capability();
    const decided = decideRuntime({ ...policy, level: { ...policy.level, value: asked } }, capability);
    if (!isAtLeast(decided.level, policy.required.value)) throw tooWeak(decided.level, policy);
    return { backend, capability, ...decided, notes: [] };
  } catch (error) {
    const stand = asked === 'auto' ? await standIn(host, policy, error) : null;
    if (stand) return stand;
    throw await withNeed(host, policy, error);
  } finally {
    cancel();
  }
}

// `auto` means at least docker; if the policy requires a stronger level, it means that one.
function askedOf({ level, required }: Asked): Level | 'auto' {
  return level.value === 'auto' && !isAtLeast('docker', required.value) ? required.value : level.value;
}

// Only if the user’s own file allows it, and only if there is no engine at all. An engine that does not answer may
// recover in a moment, and acode would have chosen the weaker level by accident.
async function standIn(host: Host, policy: Asked, error: unknown): Promise<Chosen | null> {
  const { fallback, mode } = policy;
  if (!(error instanceof AcodeError && error.is('ACODE-SBX-008')) || error.context.absent !== true) return null;
  if (fallback.value !== 'warn' || mode.value === 'airgapped') return null;
  if (!(await host.localCapability(WITHOUT_ENGINE))?.available) return null;
  const note = `There is no engine, so this runs in ${WITHOUT_ENGINE}, which is weaker: ${setBy(fallback)} allows it.`;
  return locally(host, WITHOUT_ENGINE, policy, [note]);
}

async function locally(host: Host, level: Level, policy: Asked, notes: readonly string[]): Promise<Chosen> {
  if (policy.runtime.value !== null) {
    throw new AcodeError('ACODE-SBX-016', {
      what: text`the runtime ${policy.runtime.value} at level ${level} (${sourceOf(policy.runtime)})`,
      instead: 'Leave it out: only an engine has runtimes.',
    });
  }
  const capability = await host.localCapability(level);
  const backend = await host.backend(level);
  if (!backend || !capability?.available) {
    throw new AcodeError('ACODE-SBX-012', {
      required: text`${level} (${sourceOf(policy.level)})`,
      available: await availableHere(host),
      ...remedyFor(capability),
    });
  }
  return { backend, capability, level, runtime: null, notes };
}

function remedyFor(capability: Capability | null | undefined): { remedy?: string } {
  const { reason, remedy } = capability ?? {};
  if (reason === undefined) return {};
  return { remedy: remedy === undefined ? reason : `${capitalised(reason)}. ${remedy}` };
}

function capitalised(clause: string): string {
  return clause.charAt(0).toUpperCase() + clause.slice(1);
}

function tooWeak(asked: Level, policy: Asked): AcodeError {
  return new AcodeError('ACODE-SBX-012', {
    required: needOf(policy),
    available: asked,
    weaker: text`${sourceOf(policy.level)} asks for ${asked}`,
    remedy: weakerRemedy(asked, policy),
  });
}

function weakerRemedy(asked: Level, { risk }: Asked): string {
  if (risk.value === 'critical')
    return 'Critical commands always need docker or stronger: leave the level out, or choose --level docker or a stronger one.';
  // What the user sets as the level counts for low and medium risk; a higher risk keeps needing docker.
  const consent = risk.value === 'high' ? "sandbox.require_for '[critical]'" : `sandbox.level ${asked}`;
  return `Leave the level out. To allow ${asked} for such commands: \`acode config set ${consent}\`; docs/levels.md lists what a weaker level does not protect.`;
}

// The error for a missing engine also names the required level, so that the user does not try a level that is too weak.
async function withNeed(host: Host, policy: Asked, error: unknown): Promise<unknown> {
  if (!(error instanceof AcodeError && error.is('ACODE-SBX-008'))) return error;
  const { fallback } = policy;
  const available = await availableHere(host);
  const weaker = available === NO_BOUNDARY ? {} : { tooWeak: true as const };
  const context = { ...error.context, required: needOf(policy), available, ...weaker };
  // The user allowed a fallback that does not apply here, so the error explains why.
  const isMissed = fallback.value === 'warn' && error.context.absent !== true;
  const remedy = isMissed ? { remedy: `${error.hint} ${NO_STAND_IN}` } : {};
  return new AcodeError('ACODE-SBX-008', { ...context, ...remedy }, { cause: error.cause });
}

const NO_STAND_IN =
  'sandbox.fallback does not apply here: it is for hosts without an engine, and this host has one that does not answer, or one is named (DOCKER_HOST, a docker context, your configuration).';

function needOf({ required, risk, riskReasons }: Asked): Text {
  const why = riskReasons.length > 0 ? `; ${riskReasons.join('; ')}` : '';
  return text`${required.value} (risk ${risk.value}, ${sourceOf(required)}${why})`;
}

// Only one of the levels without an engine isolates, so it alone counts as available. The text avoids `none`, which is
// the name of a level.
async function availableHere(host: Host): Promise<string> {
  const found = await host.localCapabilities();
  return found.some(({ level, available }) => level === WITHOUT_ENGINE && available) ? WITHOUT_ENGINE : NO_BOUNDARY;
}
