// What the user trusted: one record for each workspace, with the hash of exactly what they agreed to. Never inside a workspace.

import { createHash, randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { readBoundedFile } from '../lifecycle/bounded-file.ts';
import { ensurePrivateDirectory } from '../lifecycle/directories.ts';

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
      const file = await readBoundedFile(this.#fileFor(root), MAX_BYTES, constants.O_NOFOLLOW);
      // A record that somebody else wrote, or could have, is nobody’s trust.
      if (file.uid !== this.#uid || (file.mode & 0o077) !== 0 || file.size > MAX_BYTES) return null;
      const record = recordSchema.safeParse(JSON.parse(file.text));
      return record.success && record.data.path === root ? record.data.hash : null;
    } catch {
      return null;
    }
  }

  /** Remembers that this content is trusted for this workspace, in place of what was trusted before. */
  async grant(root: string, hash: string, date: Date): Promise<void> {
    await ensurePrivateDirectory(this.#directory, this.#uid);
    const target = this.#fileFor(root);
    const draft = `${target}.${randomBytes(8).toString('hex')}`;
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    try {
      const file = await open(draft, flags, 0o600);
      try {
        await file.writeFile(`${JSON.stringify({ path: root, hash, date: date.toISOString() })}\n`);
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(draft, target);
    } catch (error) {
      await rm(draft, { force: true });
      throw error;
    }
  }

  /** Forgets what was trusted for this workspace. */
  async revoke(root: string): Promise<void> {
    await rm(this.#fileFor(root), { force: true });
  }

  #fileFor(root: string): string {
    return join(this.#directory, `${createHash('sha256').update(root).digest('hex')}.json`);
  }
}
