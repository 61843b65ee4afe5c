// Step 2 of the pipe where runtimes come in: a level and the runtime for it, among those the engine really lists.

import { AcodeError } from '../contract/errors.ts';
import { isAtLeast } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import { decideLevel } from './decide.ts';
import { setBy } from './layers.ts';

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
      detail: `the engine has no runtime ${named} (${setBy(runtime)}); it has ${Object.keys(offer.runtimes).join(', ')}`,
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
