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
const SHORT = /^([A-Za-z0-9][\w.-]{0,2}):/;
const INSIDE = /^([A-Za-z0-9][\w.-]{3,127}):(.*)$/s;

/** What is to be copied where; throws unless exactly one side is `sandbox:path`. */
export function copying(source: string, target: string): Copying {
  const from = sideInside(source);
  const to = sideInside(target);
  if (from && !to) return { way: 'out', ...from, outside: target };
  if (to && !from) return { way: 'in', ...to, outside: source };
  if (!from) refuseShort(source, target);
  throw new UsageError(
    from ? 'Both sides are in a sandbox.' : 'Neither side is in a sandbox.',
    'Write one side as sandbox:path: `acode sandbox cp ./input a1b2c3d4:input`, or `acode sandbox cp a1b2c3d4:dist ./dist`. A file of this machine with a colon in its name is written ./name.',
  );
}

function sideInside(text: string): Pick<Copying, 'sandbox' | 'inside'> | null {
  const [, sandbox, path] = INSIDE.exec(text) ?? [];
  return sandbox === undefined ? null : { sandbox, inside: path || '.' };
}

function refuseShort(source: string, target: string): void {
  const found = SHORT.exec(source) ?? SHORT.exec(target);
  if (!found) return;
  throw new UsageError(
    `${found[1] ?? ''} is too short for a sandbox.`,
    'Give at least four characters of its id, or its name; `acode sandbox list` shows both.',
  );
}
