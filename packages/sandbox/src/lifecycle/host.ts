// The identity of this host: boot and runtime directory together, since containers and WSL distributions share the first.

import { createHash, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { createPrivateFile, readPrivateFile, writePrivateFile } from './private-file.ts';

const TOKEN = /^[0-9a-f]{32}\n$/;

/** A hash that is the same for every process of this host that shares `runtimeDirectory`, and never again after it is gone. */
export async function hostIdentity(runtimeDirectory: string): Promise<string> {
  const path = tokenPath(runtimeDirectory);
  const token = readToken(path) ?? makeToken(path);
  return identityOf(token);
}

/**
 * Whether the runtime directory is still the one of an identity. Where it was removed or replaced, the sockets of owners are
 * gone with it, and that says nothing about the owners.
 */
export async function isStillHost(runtimeDirectory: string, identity: string): Promise<boolean> {
  const token = readToken(tokenPath(runtimeDirectory));
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

function readToken(path: string): string | null {
  const token = readPrivateFile(path, { maxBytes: 64 })?.text ?? '';
  return TOKEN.test(token) ? token : null;
}

// Of two processes that make it at once, both use the one that was there first.
function makeToken(path: string): string {
  const made = `${randomBytes(16).toString('hex')}\n`;
  try {
    createPrivateFile(path, made);
  } catch {
    // A file system without links: the rename below does the same, but for a race.
  }
  // What is there and cannot be understood is replaced.
  if (readToken(path) === null) writePrivateFile(path, made);
  return readToken(path) ?? made;
}

// Only Linux has a boot id; elsewhere the host name is the nearest thing that does not change while sandboxes live.
async function bootId(): Promise<string> {
  try {
    return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
  } catch {
    return hostname();
  }
}
