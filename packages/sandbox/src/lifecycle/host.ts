// The identity of this host: boot and runtime directory together, since containers and WSL distributions share the first.

import { createHash, randomBytes } from 'node:crypto';
import { link, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';

const TOKEN = /^[0-9a-f]{32}\n$/;

/** A hash that is the same for every process of this host that shares `runtimeDirectory`, and never again after it is gone. */
export async function hostIdentity(runtimeDirectory: string): Promise<string> {
  const path = tokenPath(runtimeDirectory);
  const token = (await readToken(path)) ?? (await makeToken(path));
  return identityOf(token);
}

/**
 * Whether the runtime directory is still the one of an identity. Where it was removed or replaced, the sockets of owners are
 * gone with it, and that says nothing about the owners.
 */
export async function isStillHost(runtimeDirectory: string, identity: string): Promise<boolean> {
  const token = await readToken(tokenPath(runtimeDirectory));
  return token !== null && (await identityOf(token)) === identity;
}

// A token and not the number of the inode: file systems give those to the next directory, a login later or a moment.
function tokenPath(runtimeDirectory: string): string {
  return join(runtimeDirectory, 'host');
}

async function identityOf(token: string): Promise<string> {
  return createHash('sha256')
    .update(`${await bootId()}\n${token}`)
    .digest('hex')
    .slice(0, 32);
}

async function readToken(path: string): Promise<string | null> {
  const token = await readFile(path, 'utf8').catch(() => '');
  return TOKEN.test(token) ? token : null;
}

// Of two who make it at once, both use the one that was there first.
async function makeToken(path: string): Promise<string> {
  const draft = `${path}.${randomBytes(8).toString('hex')}`;
  await writeFile(draft, `${randomBytes(16).toString('hex')}\n`, { mode: 0o600 });
  try {
    await link(draft, path);
  } catch {
    // Somebody was first. Or what is there cannot be understood, or the file system has no links: then ours takes its place.
    if ((await readToken(path)) === null) await rename(draft, path);
  } finally {
    await rm(draft, { force: true });
  }
  return readFile(path, 'utf8');
}

// Only Linux has a boot id; elsewhere the host name is the nearest thing that does not change while sandboxes live.
async function bootId(): Promise<string> {
  try {
    return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
  } catch {
    return hostname();
  }
}
