// The identity of this host: boot and runtime directory together, since containers and WSL distributions share the first.

import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { hostname } from 'node:os';

/** A hash that is the same for every process of this host that shares `runtimeDirectory`. */
export async function hostIdentity(runtimeDirectory: string): Promise<string> {
  const directory = await stat(runtimeDirectory, { bigint: true });
  const boot = await bootId();
  return createHash('sha256').update(`${boot}\n${directory.dev}:${directory.ino}`).digest('hex').slice(0, 32);
}

// Only Linux has a boot id; elsewhere the host name is the nearest thing that does not change while sandboxes live.
async function bootId(): Promise<string> {
  try {
    return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
  } catch {
    return hostname();
  }
}
