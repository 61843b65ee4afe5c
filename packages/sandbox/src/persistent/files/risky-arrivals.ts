// What came out of a sandbox to the host and tools there might execute or follow.

import { realpath } from 'node:fs/promises';
import { basename, dirname, resolve } from 'node:path';
import type { RiskyChange } from '../../contract/result.ts';
import { riskOfDirectory } from '../../workspace/risky-names.ts';
import type { RiskyDirectory } from '../../workspace/risky-names.ts';
import { scanPath } from '../../workspace/risky.ts';

/** Scans what arrived at a path since a time; paths are relative to it. */
export async function riskyArrivals(path: string, sinceMs: number): Promise<readonly RiskyChange[]> {
  // The scan follows no link, and the caller may have named one.
  const target = await realpath(path).catch(() => resolve(path));
  const { riskyChanges } = await scanPath(target, { sinceMs, untilMs: Infinity });
  // The scan knows what is in a directory, and not what the directory itself is called.
  const own = riskOfPlace(target) ?? riskOfPlace(resolve(path));
  return own ? [{ path: '.', kind: own.kind, reason: own.reason }, ...riskyChanges] : riskyChanges;
}

function riskOfPlace(path: string): RiskyDirectory | null {
  return riskOfDirectory(basename(path), basename(dirname(path)));
}
