// The warm pool: everything on one engine, and how commands run on every other engine and runtime that has walls.

import { describe } from 'vitest';
import { targets } from '../conformance/targets.ts';
import { mainEngine } from '../support/engines.ts';
import { everything } from '../support/targets.ts';
import { commandBehaviours, neverBehaviours } from './behaviours.ts';

for (const target of targets.filter(({ lacks }) => lacks.engine === undefined))
  describe.skipIf(target.absent)(`${target.name}${target.version}`, () => {
    commandBehaviours(target);
    // When a sandbox may be used is decided before an engine is asked.
    if (everything || target.name === `${mainEngine.name}/runc`) neverBehaviours(target);
  });
