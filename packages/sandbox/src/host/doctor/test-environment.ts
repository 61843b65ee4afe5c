// What a level puts between a command and this host, as far as an attack on it has to know.

import { levelFacts } from '../../contract/levels.ts';
import type { Level } from '../../contract/levels.ts';
import type { Weakening } from '../../isolation/backend.ts';

/** What sandboxes of a level are. */
export interface TestEnvironment {
  readonly level: Level;
  /** A container of an engine, processes in namespaces of their own, or processes of this host with no wall around them. */
  readonly kind: 'container' | 'namespaces' | 'host';
  /** The protections that a control can lack: what a level does not have need not be taken away. */
  readonly removable: readonly Weakening[];
}

const ALL: readonly Weakening[] = [
  'seccomp',
  'no-new-privileges',
  'read-only-root',
  'protected-paths',
  'masks',
  'network',
  'pids',
  'memory',
  'tmpfs-size',
  'open-files',
  'environment',
  'verification',
];

const LIMITS: readonly Weakening[] = ['memory', 'open-files'];

const REMOVABLE: Readonly<Record<TestEnvironment['kind'], readonly Weakening[]>> = {
  container: ALL,
  namespaces: ALL.filter(weakening => weakening !== 'no-new-privileges'),
  host: ['environment', 'verification', ...LIMITS],
};

/** What sandboxes of a level are. */
export function testEnvironmentOf(level: Level): TestEnvironment {
  const { kind } = levelFacts(level);
  return {
    level,
    kind,
    removable: REMOVABLE[kind].filter(weakening => level !== 'none' || !LIMITS.includes(weakening)),
  };
}
