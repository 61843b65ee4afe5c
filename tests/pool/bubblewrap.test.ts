// Pre-started sandboxes at level bubblewrap.

import { describe } from 'vitest';
import { targets } from '../conformance/targets.ts';
import { commandBehaviours, neverBehaviours } from './behaviours.ts';

for (const target of targets.filter(({ level }) => level === 'bubblewrap'))
  describe.skipIf(target.absent)(`${target.name}${target.version}`, () => {
    commandBehaviours(target);
    neverBehaviours(target);
  });
