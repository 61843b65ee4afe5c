// What a level puts between a command and this host, as far as an attack on it has to know.

import { usesEngine } from '../../contract/levels.ts';
import type { Level } from '../../contract/levels.ts';
import type { Weakening } from '../../isolation/backend.ts';

/** What sandboxes of a level are. */
export interface Terrain {
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
  'network',
  'pids',
  'memory',
  'tmpfs-size',
  'open-files',
  'environment',
  'verification',
];

/** What sandboxes of a level are. */
export function terrainOf(level: Level): Terrain {
  if (usesEngine(level)) return { level, kind: 'container', removable: ALL };
  if (level === 'bubblewrap')
    return { level, kind: 'namespaces', removable: ALL.filter(weakening => weakening !== 'no-new-privileges') };
  const limits: readonly Weakening[] = level === 'ulimit' ? ['memory', 'open-files'] : [];
  return { level, kind: 'host', removable: ['environment', 'verification', ...limits] };
}
