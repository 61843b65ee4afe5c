// Sandboxes that wait on every engine, with every runtime that has walls.

import { describe } from 'vitest';
import { targets } from '../conformance/targets.ts';
import { commandBehaviours, neverBehaviours } from './behaviours.ts';

for (const target of targets.filter(({ lacks }) => lacks.engine === undefined))
  describe.skipIf(target.absent)(`${target.name}${target.version}`, () => {
    commandBehaviours(target);
    neverBehaviours(target);
  });
