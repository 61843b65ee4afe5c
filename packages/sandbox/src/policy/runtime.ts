// Step 2 of the pipeline for runtimes: chooses a level and its runtime, by name or among those that the engine lists.

import { AcodeError } from '../contract/errors.ts';
import { isAtLeast } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy, PolicyFields, Sourced } from '../contract/policy.ts';
import { text } from '../contract/wording.ts';
import { pick, placeOf, setBy, setting, sourceOf } from './layers.ts';
import type { Layers } from './layers.ts';

/** What an engine offers. */
export interface RuntimeOffer {
  readonly available: boolean;
  readonly level: Level;
  /** Every runtime it lists, with the level it is for. */
  readonly runtimes: Readonly<Record<string, Level>>;
  /** The runtime of a sandbox that names none. */
  readonly standardRuntime: string;
}

/** The level of a run and its runtime; null for the engine’s default. Never a weaker level than was asked for. */
export function decideRuntime(
  policy: Pick<EffectivePolicy, 'level' | 'runtime'>,
  offer: RuntimeOffer,
): { level: Level; runtime: string | null } {
  const asked = policy.level.value;
  const named = policy.runtime.value;
  const standard = levelOf(offer, offer.standardRuntime) ?? offer.level;
  if (!offer.available) return { level: decideLevel(asked, []), runtime: null };
  if (named !== null) return { level: levelOfNamed(named, policy, offer), runtime: named };
  if (asked === 'auto' || asked === standard) return { level: standard, runtime: null };
  const runtime = Object.keys(offer.runtimes).find(name => levelOf(offer, name) === asked);
  return runtime === undefined ? { level: decideLevel(asked, [standard]), runtime: null } : { level: asked, runtime };
}

function levelOfNamed(
  named: string,
  { level, runtime }: Pick<EffectivePolicy, 'level' | 'runtime'>,
  offer: RuntimeOffer,
): Level {
  const found = levelOf(offer, named);
  if (found === undefined) {
    throw new AcodeError('ACODE-SBX-010', {
      violation: 'UnknownRuntime',
      detail: text`the engine has no runtime ${named} (${sourceOf(runtime)}); it has ${Object.keys(offer.runtimes).join(', ')}`,
      remedy: `Install ${named} and register it with the engine, or ask for one of those it has.`,
    });
  }
  if (level.value !== 'auto' && !isAtLeast(found, level.value))
    throw new AcodeError('ACODE-SBX-012', { required: level.value, available: `${found} (runtime ${named})` });
  return found;
}

// The names come from the engine: one like `constructor` must not find what every object has.
function levelOf({ runtimes }: RuntimeOffer, name: string): Level | undefined {
  return Object.hasOwn(runtimes, name) ? runtimes[name] : undefined;
}

const KNOWN =
  /^(?:runc|runsc(?:-[a-z0-9-]+)?|crun|kata(?:-[a-z0-9-]+)?|sysbox-runc|io\.containerd\.(?:runc|kata|runsc)(?:[.-][A-Za-z0-9.-]+)?)$/;
const KATA = /^(?:kata|io\.containerd\.kata)(?:[.-]|$)/;
const GVISOR = /^(?:runsc|io\.containerd\.runsc)(?:[.-]|$)/;

/** How much a runtime isolates: a kernel of its own for each sandbox, one in user space, or the host’s. */
export function runtimeStrength(runtime: string | null): 0 | 1 | 2 {
  if (runtime === null || !KNOWN.test(runtime)) return 0;
  return KATA.test(runtime) ? 2 : GVISOR.test(runtime) ? 1 : 0;
}

/** The runtime by name; null for the engine’s default. */
export function resolveRuntime(request: PolicyFields, layers: Layers): Sourced<string | null> {
  const asked = pick<string | null>(layers, {
    field: 'runtime',
    request: request.runtime,
    key: 'sandbox.runtime',
    read: sandbox => sandbox.runtime,
    builtIn: null,
  });
  const users = layers.user.config.sandbox?.security?.allowed_runtimes ?? [];
  if (asked.value !== null && !KNOWN.test(asked.value) && !users.includes(asked.value)) {
    throw new AcodeError('ACODE-SBX-010', {
      violation: 'UnknownRuntime',
      detail: text`${JSON.stringify(asked.value.slice(0, 80))} is not a runtime that acode knows (${sourceOf(asked)})`,
      remedy: text`Use runc, runsc or another known one, or, if you trust it: ${setting(layers.user, {
        key: 'sandbox.security.allowed_runtimes',
        value: [asked.value.slice(0, 80)],
        add: true,
      })}.`,
    });
  }
  return withinMachine(asked, layers);
}

// Without a configured runtime, the engine’s default could be one that the machine does not allow: acode names the machine’s first.
function withinMachine(asked: Sourced<string | null>, { machine }: Layers): Sourced<string | null> {
  if (!machine) return asked;
  const allowed = machine.config.sandbox?.security?.allowed_runtimes;
  if (!allowed) return asked;
  const by = { layer: 'machine', where: placeOf(machine, 'sandbox.security.allowed_runtimes') } as const;
  const [value] = asked.value === null ? allowed : allowed.filter(name => name === asked.value);
  if (value !== undefined) return asked.value === null ? { value, ...by } : asked;
  const listed = allowed.length > 0 ? allowed.join(', ') : 'no runtime at all';
  throw new AcodeError('ACODE-SBX-010', {
    violation: 'UnknownRuntime',
    detail: `this machine allows only ${listed} (${setBy(by)})`,
    remedy: `Ask for what it allows, ${listed}, or ask the administrator of this machine.`,
  });
}

/** Chooses the level for a run from those the host really has. */
export function decideLevel(asked: Level | 'auto', available: readonly Level[]): Level {
  const strongest = available.reduce<Level | null>(
    (best, level) => (best === null || isAtLeast(level, best) ? level : best),
    null,
  );
  if (strongest !== null && (asked === 'auto' || asked === strongest)) return strongest;
  if (asked !== 'auto' && strongest !== null && isAtLeast(strongest, asked)) {
    throw new AcodeError('ACODE-SBX-016', {
      what: text`${{ field: 'policy.level', value: asked }}`,
      instead: `Leave it out: ${strongest}, which is stronger, is used.`,
    });
  }
  throw new AcodeError('ACODE-SBX-012', {
    required: asked === 'auto' ? 'docker' : asked,
    available: strongest ?? 'none',
  });
}
