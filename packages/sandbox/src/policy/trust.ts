// What the user agreed to: files of repositories, and hosts.
//
// Trust records: one for each workspace, with the hash of exactly what the user agreed to. Never inside a workspace.
// Grants: hosts that a person allowed for the next command or for a task, one file each. They expire, and one for the next command
// is removed by the command that takes it.

import { createHash } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { mkdirSync, readdirSync, rmSync, unlinkSync } from 'node:fs';
import * as z from 'zod';
import {
  ensurePrivateDirectory,
  readPrivateFile,
  writePrivateFile,
  createPrivateFile,
} from '../lifecycle/directories.ts';

const MAX_BYTES = 16 * 1024;

const recordSchema = z.strictObject({ path: z.string(), hash: z.string(), date: z.string() });

/** The user’s trust in the configuration of repositories. */
export class TrustStore {
  readonly #directory: string;
  readonly #uid: number;

  constructor(stateDirectory: string, uid: number) {
    this.#directory = join(stateDirectory, 'trust');
    this.#uid = uid;
  }

  /** Whether exactly this content was trusted for exactly this workspace. What cannot be read was not. */
  async isTrusted(root: string, hash: string): Promise<boolean> {
    return (await this.trustedHash(root)) === hash;
  }

  /** The hash of what was trusted for this workspace; null where nothing was. */
  async trustedHash(root: string): Promise<string | null> {
    try {
      const file = readPrivateFile(this.#fileFor(root), { maxBytes: MAX_BYTES, uid: this.#uid });
      if (!file) return null;
      const record = recordSchema.safeParse(JSON.parse(file.text));
      return record.success && record.data.path === root ? record.data.hash : null;
    } catch {
      return null;
    }
  }

  /** Remembers that this content is trusted for this workspace, in place of what was trusted before. */
  async grant(root: string, hash: string, date: Date): Promise<void> {
    await ensurePrivateDirectory(this.#directory, this.#uid);
    const record = { path: root, hash, date: date.toISOString() };
    writePrivateFile(this.#fileFor(root), `${JSON.stringify(record)}\n`);
  }

  /** Forgets what was trusted for this workspace. */
  async revoke(root: string): Promise<void> {
    await rm(this.#fileFor(root), { force: true });
  }

  #fileFor(root: string): string {
    return join(this.#directory, `${createHash('sha256').update(root).digest('hex')}.json`);
  }
}

const MAX_GRANT_BYTES = 4096;
const MAX_GRANTS = 256;

const grantSchema = z.strictObject({
  /** The id of what was pending. */
  id: z.string().regex(/^[0-9a-f]{8}$/),
  /** The entry of an allow-list. */
  entry: z.string(),
  workspace: z.string(),
  /** The task that it is for; null for every command of the workspace. */
  taskId: z.string().nullable(),
  /** Whether one command takes it, and no other has it then. */
  once: z.boolean(),
  expiresAt: z.iso.datetime(),
});

/** A host that a person allowed for some time. */
export type Grant = z.output<typeof grantSchema>;

/** The grants of a user. */
export class Grants {
  readonly #directory: string;
  readonly #now: () => number;

  constructor(state: string, now: () => number) {
    this.#directory = join(state, 'grants');
    this.#now = now;
  }

  /** Adds one, in place of an earlier one for the same. */
  add(grant: Grant): void {
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    rmSync(this.#fileOf(grant), { force: true });
    createPrivateFile(this.#fileOf(grant), `${JSON.stringify(grant)}\n`);
  }

  /** Those that a command of a workspace has. What cannot be read grants nothing. */
  for(workspace: string, taskId: string | undefined): Grant[] {
    return this.#all().filter(
      grant => grant.workspace === workspace && (grant.taskId === null || grant.taskId === taskId),
    );
  }

  /** Takes those that one command uses up. Those that another one took meanwhile are not among them. */
  take(grants: readonly Grant[]): Grant[] {
    return grants.filter(grant => !grant.once || this.#taken(grant));
  }

  #taken(grant: Grant): boolean {
    try {
      unlinkSync(this.#fileOf(grant));
      return true;
    } catch {
      return false;
    }
  }

  #all(): Grant[] {
    return this.#names().flatMap(name => {
      const grant = this.#read(name);
      if (grant === null || Date.parse(grant.expiresAt) > this.#now()) return grant ?? [];
      rmSync(join(this.#directory, name), { force: true });
      return [];
    });
  }

  #names(): string[] {
    try {
      return readdirSync(this.#directory)
        .filter(name => name.endsWith('.json'))
        .slice(0, MAX_GRANTS);
    } catch {
      return [];
    }
  }

  #read(name: string): Grant | null {
    const file = readPrivateFile(join(this.#directory, name), { maxBytes: MAX_GRANT_BYTES });
    try {
      const { data } = grantSchema.safeParse(JSON.parse(file?.text ?? ''));
      return data ?? null;
    } catch {
      return null;
    }
  }

  #fileOf({ id, once }: Grant): string {
    return join(this.#directory, `${id}-${once ? 'once' : 'task'}.json`);
  }
}
