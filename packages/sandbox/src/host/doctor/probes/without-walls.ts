// Group B where nothing stands between a command and this host: a canary outside the workspace, and whether it is read.

import { join } from 'node:path';
import type { Bench } from '../bench.ts';
import type { Outcome } from '../trial.ts';

const CANARY = 'acode-doctor-outside-7c20';

/** One look at a file of the attack’s own outside a workspace: whoever can read it needs no mount to read anything else. */
export async function withoutWalls(bench: Bench, ids: readonly string[]): Promise<Record<string, Outcome>> {
  const outside = await bench.workspace({ canary: CANARY });
  const { stdout } = await bench.run(['cat', join(outside, 'canary')]);
  const read = stdout.includes(CANARY);
  const outcome: Outcome = {
    stopped: !read,
    observed: read
      ? 'needs no mount: a file outside the workspace was read'
      : 'a file outside the workspace was not read',
    controlled: read,
    control: 'the file is a canary of the attack’s own',
  };
  return Object.fromEntries(ids.map(id => [id, outcome]));
}
