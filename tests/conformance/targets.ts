// Where the conformance suite runs: a backend joins by adding one line.

import type { AcodeOptions, Level } from '@acode/sandbox';
import { it } from 'vitest';
import { engines, podman } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

/** One backend on one engine. */
export interface Target {
  readonly name: string;
  readonly engine: TestEngine;
  readonly level: Level;
  /**
   * Whether sandboxes have a kernel of their own. Then what the host’s kernel counts and filters is about the runtime’s
   * processes, and own-kernel.ts says what holds instead.
   */
  readonly ownKernel: boolean;
  /** Whether the engine is Podman, which says less of a container than Docker does; podman-alone.ts says what holds instead. */
  readonly isPodman?: boolean;
  readonly options: AcodeOptions;
}

/** Defines a test only where it applies: a test that cannot hold is not there, so that none is ever seen skipped. */
export function itWhere(applies: boolean): (name: string, body: () => Promise<void>) => void {
  return applies ? it : () => undefined;
}

export const targets: readonly Target[] = [
  ...engines.map((engine): Target => ({
    name: `docker/runc on ${engine.name} ${engine.version}`,
    engine,
    level: 'docker',
    ownKernel: false,
    options: {},
  })),
  ...engines
    .filter(({ runtimes }) => runtimes?.includes('runsc'))
    .map((engine): Target => ({
      name: `docker/runsc on ${engine.name} ${engine.version}`,
      engine,
      level: 'gvisor',
      ownKernel: true,
      options: { config: { sandbox: { runtime: 'runsc' } } },
    })),
  ...[podman ?? []].flat().map((engine): Target => ({
    name: `podman/runc on ${engine.name} ${engine.version}`,
    engine,
    level: 'docker',
    ownKernel: false,
    isPodman: true,
    options: {},
  })),
];
