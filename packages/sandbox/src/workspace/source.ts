// Validates what of the host is mounted: by what it really is and where it really lies, never by how its name begins.

import { opendirSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { lstat, realpath } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { FileIdentity } from '../contract/spec.ts';
import { identityOf } from './file-identity.ts';
import { trespass } from './places.ts';
import type { Places } from './places.ts';
import { stampOf } from './presence.ts';
import { refusal } from './refusal.ts';
import { isWithin } from './within.ts';

/** A source that was checked, and which file or directory it was. */
export interface Source {
  readonly path: string;
  readonly identity: FileIdentity;
  readonly isDirectory: boolean;
}

/** What sources are judged by. */
export interface SourceRules {
  readonly places: Places;
  readonly workspace: string;
  /** Directories outside the workspace that mounts may come from, resolved. */
  readonly roots: readonly string[];
}

const REMEDY = 'Leave the mount out, or name a directory that holds nothing but what the command needs.';
// How much of a directory is looked at for sockets: more than any has that a person made.
const MAX_ENTRIES = 4096;

/** Resolves a source, relative to the workspace, and refuses it unless the sandbox may have it. */
export async function validateSource(source: string, rules: SourceRules, readOnly: boolean): Promise<Source> {
  refuseForeignNotation(source);
  const path = await resolved(source, rules.workspace);
  const found = await lstat(path).catch((cause: unknown) => {
    // Gone, or swapped, since it was resolved.
    throw refusal(source, 'Missing', 'it does not exist or cannot be reached', { remedy: REMEDY, cause });
  });
  refuseSpecial(path, found);
  const broken = readOnly && isPublic(path) ? null : trespass(path, rules.places);
  if (broken) throw refusal(path, broken.violation, broken.reason, { remedy: REMEDY });
  if (![rules.workspace, ...rules.roots].some(root => isWithin(path, root))) {
    throw refusal(path, 'OutsideAllowedRoots', 'it lies outside the workspace and every directory you allow', {
      remedy: `Add a directory that holds it to sandbox.mounts.allowed_host_roots in your own configuration, if you want sandboxes to have it.`,
    });
  }
  if (found.isDirectory()) refuseSockets(path);
  return { path, identity: identityOf(found), isDirectory: found.isDirectory() };
}

// Where systems have the CA certificates that everybody may read. A user who allows one of them in their own file may have it
// mounted, to be read: nothing else of the system is there.
const CERTIFICATES = [
  '/etc/ssl/certs',
  '/etc/pki/tls/certs',
  '/etc/pki/ca-trust/extracted',
  '/usr/share/ca-certificates',
  '/usr/local/share/ca-certificates',
];

function isPublic(path: string): boolean {
  return CERTIFICATES.some(tree => isWithin(path, tree));
}

// Of one directory at a time: the workspace is asked for before each command.
let known: { readonly directory: string; readonly stamp: string } | null = null;

/** Refuses a directory with a socket in it: whoever listens there would be within reach, under whatever name. */
export function refuseSockets(directory: string): void {
  const stamp = stampOf(directory);
  if (stamp !== null && known?.stamp === stamp && known.directory === directory) return;
  lookForSockets(directory);
  known = stamp === null ? null : { directory, stamp };
}

function lookForSockets(directory: string): void {
  const opened = opendirSync(directory, { bufferSize: 256 });
  try {
    for (let looked = 0; looked < MAX_ENTRIES; looked += 1) {
      const entry = opened.readSync();
      if (!entry) return;
      if (!entry.isSocket()) continue;
      throw refusal(directory, 'DockerSocketMounted', `it holds the socket ${entry.name}`, {
        remedy: `Remove ${join(directory, entry.name)} if nothing uses it, or move it out of the directory.`,
      });
    }
  } finally {
    opened.closeSync();
  }
}

// On this system they would be ordinary characters of a name; whoever writes them means a path of another.
function refuseForeignNotation(source: string): void {
  if (source.includes('\0')) throw refusal(source, 'HostPathEscape', 'it holds a NUL character', { remedy: REMEDY });
  if (process.platform === 'win32') return;
  if (source.includes('\\') || /^[A-Za-z]:(?:\/|$)/.test(source)) {
    throw refusal(source, 'HostPathEscape', 'it is written as a path of another system', {
      remedy: 'Write it with slashes and without a drive letter.',
    });
  }
}

async function resolved(source: string, workspace: string): Promise<string> {
  try {
    return await realpath(resolve(workspace, source));
  } catch (cause) {
    throw refusal(source, 'Missing', 'it does not exist or cannot be reached', {
      remedy: 'Make it first; acode never makes anything on the host for a mount.',
      cause,
    });
  }
}

function refuseSpecial(path: string, found: Stats): void {
  if (found.isFile() || found.isDirectory()) return;
  if (found.isSocket()) throw refusal(path, 'DockerSocketMounted', 'it is a socket', { remedy: REMEDY });
  throw refusal(path, 'ForbiddenPath', 'it is neither a file nor a directory', { remedy: REMEDY });
}
