// The two ends of a copy: one on this machine, one in a sandbox, told apart by how they are written.

import { UsageError } from '../failure/usage.ts';

/** A copy, and which way it goes. */
export interface Copying {
  readonly way: 'in' | 'out';
  readonly sandbox: string;
  /** The path inside; `.` is the workspace. */
  readonly inside: string;
  /** The path on this machine, as it was written. */
  readonly outside: string;
}

// Names and ids hold no slash, so `./a:b` and `/a:b` are files of this machine.
const INSIDE = /^([A-Za-z0-9][\w.-]{3,127}):(.*)$/s;

/** What is to be copied where; throws unless exactly one side is `sandbox:path`. */
export function copying(source: string, target: string): Copying {
  const [, from, fromPath] = INSIDE.exec(source) ?? [];
  const [, to, toPath] = INSIDE.exec(target) ?? [];
  if (from !== undefined && to === undefined)
    return { way: 'out', sandbox: from, inside: fromPath || '.', outside: target };
  if (to !== undefined && from === undefined) return { way: 'in', sandbox: to, inside: toPath || '.', outside: source };
  throw new UsageError(
    from === undefined ? 'Neither side is in a sandbox.' : 'Both sides are in a sandbox.',
    'Write one side as sandbox:path: `acode sandbox cp ./input a1b2c3d4:input`, or `acode sandbox cp a1b2c3d4:dist ./dist`. A file of this machine with a colon in its name is written ./name.',
  );
}
