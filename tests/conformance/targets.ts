// Where the conformance suite runs: a backend joins by adding one line.

import { engines } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

/** One backend on one engine. */
export interface Target {
  readonly name: string;
  readonly engine: TestEngine;
}

export const targets: readonly Target[] = [
  ...engines.map(engine => ({ name: `docker/runc on ${engine.name} ${engine.version}`, engine })),
];
