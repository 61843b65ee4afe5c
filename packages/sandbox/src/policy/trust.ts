// Trust records: one for each workspace, with the hash of exactly what the user agreed to. Never inside a workspace.

import { createHash } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { ensurePrivateDirectory, readPrivateFile, writePrivateFile } from '../lifecycle/directories.ts';

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
