// What came out of a sandbox to the host and tools there might execute or follow.

import { basename, dirname, resolve } from 'node:path';
import type { RiskyChange } from '../contract/result.ts';
import { riskOfDirectory } from '../workspace/risky-names.ts';
import { scanPath } from '../workspace/risky.ts';

/** Scans what arrived at a path since a time; paths are relative to it. */
export async function riskyArrivals(path: string, sinceMs: number): Promise<readonly RiskyChange[]> {
  const target = resolve(path);
  const { riskyChanges } = await scanPath(target, { sinceMs, untilMs: Infinity });
  // The scan knows what is in a directory, and not what the directory itself is called.
  const own = riskOfDirectory(basename(target), basename(dirname(target)));
  return own ? [{ path: '.', kind: own.kind, reason: own.reason }, ...riskyChanges] : riskyChanges;
}
