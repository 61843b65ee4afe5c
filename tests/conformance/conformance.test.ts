// One body of behaviours, run on every backend and engine.

import { describe } from 'vitest';
import { withoutEngines } from '../support/engines.ts';
import { commandBehaviours } from './commands.ts';
import { hardeningBehaviours } from './hardening.ts';
import { lifecycleBehaviours } from './lifecycle.ts';
import { limitBehaviours } from './limits.ts';
import { outputBehaviours } from './output.ts';
import { ownKernelBehaviours } from './own-kernel.ts';
import { targets } from './targets.ts';

describe.skipIf(withoutEngines).each(targets)('$name', target => {
  commandBehaviours(target);
  outputBehaviours(target);
  limitBehaviours(target);
  hardeningBehaviours(target);
  lifecycleBehaviours(target);
  ownKernelBehaviours(target);
});
