// Command fingerprints: they bind a record to what really ran without showing it. Secrets are masked in the text, and a plain
// hash of a command with a weak secret in it could be guessed, so each is made with a key that only this user has.

import { createHmac, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { ensurePrivateDirectory } from '../../lifecycle/directories.ts';
import { createPrivateFile, readPrivateFile } from '../../lifecycle/private-file.ts';
import { canonicalJson } from './canonical.ts';

/** The name of the key that fingerprints are made with. */
export const COMMAND_KEY = 'command.key';
const KEY_BYTES = 32;

/** Makes fingerprints with the key of one log. */
export class Fingerprints {
  readonly #directory: string;
  readonly #uid: number;
  #key: Promise<Buffer> | null = null;

  constructor(directory: string, uid: number) {
    this.#directory = directory;
    this.#uid = uid;
  }

  /** The same for the same value and log, and for no other value. */
  async of(value: unknown): Promise<string> {
    this.#key ??= this.#load().catch((error: unknown) => {
      this.#key = null;
      throw error;
    });
    return createHmac('sha256', await this.#key)
      .update(canonicalJson(value))
      .digest('hex');
  }

  async #load(): Promise<Buffer> {
    await ensurePrivateDirectory(this.#directory, this.#uid);
    const path = join(this.#directory, COMMAND_KEY);
    const known = this.#read(path);
    if (known) return known;
    // Another process may be first: then both use its key.
    createPrivateFile(path, randomBytes(KEY_BYTES));
    const made = this.#read(path);
    if (!made) throw new Error(`${path} is not a key that only its owner can read`);
    return made;
  }

  #read(path: string): Buffer | null {
    const file = readPrivateFile(path, { maxBytes: KEY_BYTES, uid: this.#uid });
    return file?.size === KEY_BYTES ? file.bytes : null;
  }
}
