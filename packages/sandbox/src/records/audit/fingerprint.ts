// Binds a record to what really ran without showing it: secrets are masked in the text, and a plain hash of a command with a
// weak secret in it could be guessed, so it is made with a key that only this user has.

import { createHmac, randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { link, open, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ensurePrivateDirectory } from '../../lifecycle/directories.ts';
import { canonicalJson } from './canonical.ts';
import { codeOf } from '../../contract/system-error.ts';

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
    const known = await read(path);
    if (known) return known;
    await make(path);
    const made = await read(path);
    if (!made) throw new Error(`${path} is no key`);
    return made;
  }
}

async function read(path: string): Promise<Buffer | null> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return null;
    throw error;
  });
  if (!file) return null;
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(KEY_BYTES), 0, KEY_BYTES, 0);
    return bytesRead === KEY_BYTES ? buffer : null;
  } finally {
    await file.close();
  }
}

// Written whole and then given its name, so that nobody reads half of it. Whoever is second reads what the first one made.
async function make(path: string): Promise<void> {
  const draft = `${path}.${randomBytes(8).toString('hex')}`;
  await writeFile(draft, randomBytes(KEY_BYTES), { mode: 0o600, flag: 'wx' });
  try {
    await link(draft, path);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  } finally {
    await unlink(draft);
  }
}
