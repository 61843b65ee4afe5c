// What reapers removed when nobody was left to hear of it: they write it down, and the next session tells.

import { randomUUID } from 'node:crypto';
import { open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';

const MAX_BYTES = 1024 * 1024;

const line = z.object({
  kind: z.enum(['container', 'network', 'volume']),
  id: z.string(),
  name: z.string(),
  sandboxId: z.string(),
});

/** One thing that a reaper removed. */
export type Reaped = z.infer<typeof line>;

/** Where reapers write down what they removed. */
export function reapedPath(runtimeDirectory: string): string {
  return join(runtimeDirectory, 'reaped.jsonl');
}

/** Takes what was written down since the last time; each entry is told once. */
export async function takeReaped(runtimeDirectory: string): Promise<Reaped[]> {
  const taken = join(runtimeDirectory, `reaped.${randomUUID()}`);
  try {
    await rename(reapedPath(runtimeDirectory), taken);
  } catch {
    return [];
  }
  try {
    const text = await readStart(taken);
    return text.split('\n').flatMap(entry => parse(entry));
  } finally {
    await rm(taken, { force: true });
  }
}

async function readStart(path: string): Promise<string> {
  await using file = await open(path);
  const { buffer, bytesRead } = await file.read({ buffer: Buffer.alloc(MAX_BYTES) });
  return buffer.toString('utf8', 0, bytesRead);
}

function parse(entry: string): Reaped[] {
  try {
    const parsed = line.safeParse(JSON.parse(entry));
    return parsed.success ? [parsed.data] : [];
  } catch {
    return [];
  }
}
