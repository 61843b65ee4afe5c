// The volumes of one cache on an engine: others may be there, of other tests and of the user.

import { withEngine } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

/** The user who runs the tests. */
export const UID = process.getuid?.() ?? 0;

/** The label of a layer above a cache, with the name of the cache. */
export const LAYER = 'acode.cache-layer';

const FILLING = 'acode.cache-filling';

/** Only for what hangs. */
export const soon = (): AbortSignal => AbortSignal.timeout(60_000);

/** The cache itself, and what is made of it or stands for its being filled. */
export async function volumesOf(engine: TestEngine, cache: string): Promise<string[]> {
  const list = await withEngine(engine, direct =>
    direct.volumes.list({ labels: ['acode.managed=true', `acode.uid=${UID}`], signal: soon() }),
  );
  const isOf = (labels: Readonly<Record<string, string>>): boolean =>
    labels[LAYER] === cache || labels[FILLING] === cache;
  return list.flatMap(({ Name, Labels }) => (Name === cache || isOf(Labels ?? {}) ? [Name] : [])).sort();
}
