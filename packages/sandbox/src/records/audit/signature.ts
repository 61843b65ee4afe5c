// The key that signs checkpoints. It shows that a holder of the key wrote the log, and that is all it can show:
// the same user could take another key and write everything anew.

import {
  createHash,
  createHmac,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  randomBytes,
  sign,
  verify,
} from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import * as fs from 'node:fs';
import { constants } from 'node:fs';
import { join } from 'node:path';
import type { AuditHead } from '../../contract/audit.ts';
import { codeOf } from '../../contract/system-error.ts';
import {
  createPrivateFile,
  readPrivateFile,
  writePrivateFile,
  ensurePrivateDirectory,
} from '../../lifecycle/directories.ts';
import { canonicalJson } from './record.ts';

const PRIVATE = 'key.pem';
const PUBLIC = 'key.pub';
const MAX_BYTES = 4096;

/** What a checkpoint says about the record before it. */
export interface Signature {
  /** Fingerprint of the public key. */
  readonly key: string;
  readonly signature: string;
}

/** Whether there is a key already. */
export function hasKey(directory: string): boolean {
  return readPrivate(directory) !== null;
}

/** Makes the pair of keys where there is none. Only a writer that has the lock does this, so no two make one at once. */
export function makeKey(directory: string): void {
  if (hasKey(directory)) return;
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  // The private key last: where it is, the public one is too.
  writePrivateFile(join(directory, PUBLIC), publicKey.export({ type: 'spki', format: 'pem' }));
  writePrivateFile(join(directory, PRIVATE), privateKey.export({ type: 'pkcs8', format: 'pem' }));
}

/** The names of the keys that are there. They are made with the first record, so that one without a record shows a loss. */
export function keysIn(directory: string): string[] {
  return [PRIVATE, PUBLIC, COMMAND_KEY].filter(
    name => fs.lstatSync(join(directory, name), { throwIfNoEntry: false }) !== undefined,
  );
}

/** Signs a place in the chain. */
export function signHead(directory: string, head: AuditHead): Signature {
  const text = readPrivate(directory);
  if (text === null) throw new Error(`the key that signs it is missing from ${join(directory, PRIVATE)}`);
  const key = createPrivateKey(text);
  return {
    key: fingerprint(createPublicKey(key)),
    signature: sign(null, signed(head), key).toString('base64'),
  };
}

/** The public key that checkpoints are checked against. */
export class Verifier {
  /** Fingerprint of the key. */
  readonly key: string;
  readonly #key: KeyObject;

  private constructor(key: KeyObject) {
    this.#key = key;
    this.key = fingerprint(key);
  }

  /** The stored key; null where there is none that can be read as one. */
  static stored(directory: string): Verifier | null {
    try {
      const text = readSmall(join(directory, PUBLIC));
      return text === null ? null : new Verifier(createPublicKey(text));
    } catch {
      return null;
    }
  }

  /** Whether the key signed this place in the chain. */
  signed(head: AuditHead, signature: string): boolean {
    return verify(null, signed(head), this.#key, Buffer.from(signature, 'base64'));
  }
}

// The words in front keep the signature from ever meaning anything else.
function signed({ seq, hash }: AuditHead): Buffer {
  return Buffer.from(`acode audit checkpoint 1\n${seq}:${hash}\n`);
}

function fingerprint(key: KeyObject): string {
  return createHash('sha256')
    .update(key.export({ type: 'spki', format: 'der' }))
    .digest('hex');
}

function readPrivate(directory: string): string | null {
  return readSmall(join(directory, PRIVATE));
}

function readSmall(path: string): string | null {
  let descriptor: number;
  try {
    descriptor = fs.openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null;
    throw error;
  }
  try {
    const found = fs.fstatSync(descriptor);
    if (!found.isFile() || found.size > MAX_BYTES) throw new Error(`${path} is no key`);
    return fs.readFileSync(descriptor, 'utf8');
  } finally {
    fs.closeSync(descriptor);
  }
}

/** The name of the key that fingerprints are made with. */
const COMMAND_KEY = 'command.key';
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
