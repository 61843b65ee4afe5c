// One body of behaviours, run on every backend and engine: a file for each, so that they run beside each other.

import { describe } from 'vitest';
import { withoutEngines } from '../support/engines.ts';
import { commandBehaviours } from './commands.ts';
import { hardeningBehaviours } from './hardening.ts';
import { lifecycleBehaviours } from './lifecycle.ts';
import { limitBehaviours } from './limits.ts';
import { outputBehaviours } from './output.ts';
import { ownKernelBehaviours } from './own-kernel.ts';
import { podmanBehaviours } from './podman-alone.ts';
import { targets } from './targets.ts';
import type { Target } from './targets.ts';

/** Holds the targets that are meant to every behaviour. */
export function conformance(means: (target: Target) => boolean): void {
  describe.skipIf(withoutEngines).each(targets.filter(means))('$name', target => {
    commandBehaviours(target);
    outputBehaviours(target);
    limitBehaviours(target);
    hardeningBehaviours(target);
    lifecycleBehaviours(target);
    ownKernelBehaviours(target);
    podmanBehaviours(target);
  });
}
