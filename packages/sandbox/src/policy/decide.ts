// Step 2 of the pipe: the level a run gets, or a refusal. Never a weaker one than was asked for.

import { AcodeError } from '../contract/errors.ts';
import { isAtLeast } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';

/** Chooses the level for a run from those the host really has. */
export function decideLevel(asked: Level | 'auto', available: readonly Level[]): Level {
  const strongest = available.reduce<Level | null>(
    (best, level) => (best === null || isAtLeast(level, best) ? level : best),
    null,
  );
  if (strongest !== null && (asked === 'auto' || asked === strongest)) return strongest;
  if (asked !== 'auto' && strongest !== null && isAtLeast(strongest, asked)) {
    throw new AcodeError('ACODE-SBX-016', {
      what: `policy.level: ${asked}`,
      instead: `Leave it out: ${strongest}, which is stronger, is used.`,
    });
  }
  throw new AcodeError('ACODE-SBX-012', {
    required: asked === 'auto' ? 'docker' : asked,
    available: strongest ?? 'none',
  });
}
