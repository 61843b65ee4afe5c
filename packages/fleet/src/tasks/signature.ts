// Signatures: a submitter signs tasks and messages to sandboxes, a worker signs results and answers. With Ed25519, over the exact bytes.

import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, sign, verify } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import * as z from 'zod';
import { FLEET_ERRORS } from '../errors.ts';

const PREFIX = 'ed25519:';
// The beginning of every Ed25519 key in DER: 32 bytes of the key follow.
const PUBLIC_HEAD = Buffer.from('302a300506032b6570032100', 'hex');
const PRIVATE_HEAD = Buffer.from('302e020100300506032b657004220420', 'hex');
const KEY_BYTES = 32;
// What is signed for one purpose is nothing for another.
const PURPOSES = {
  task: 'acode.fleet.task/1\n',
  result: 'acode.fleet.result/1\n',
  exec: 'acode.fleet.exec/1\n',
  answer: 'acode.fleet.answer/1\n',
} as const;

/** A pair of keys, as text. */
export interface KeyPair {
  /** The public key, to be registered: `ed25519:…`. */
  readonly publicKey: string;
  /** The private key, to be kept: `ed25519:…`. */
  readonly privateKey: string;
}

/** Makes a pair of keys. */
export function makeKeys(): KeyPair {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const text = (key: KeyObject, type: 'spki' | 'pkcs8'): string =>
    PREFIX + key.export({ format: 'der', type }).subarray(-KEY_BYTES).toString('base64');
  return { publicKey: text(publicKey, 'spki'), privateKey: text(privateKey, 'pkcs8') };
}

// To read a key takes longer than to use it.
const PUBLIC_KEYS = new Map<string, KeyObject>();
const PRIVATE_KEYS = new WeakMap<KeyPair, KeyObject>();
const MAX_KEYS = 1024;

/** The public key as an object; null where the text is not one. */
export function publicKeyFrom(text: string): KeyObject | null {
  const known = PUBLIC_KEYS.get(text);
  if (known) return known;
  const bytes = keyBytes(text);
  if (!bytes) return null;
  const key = createPublicKey({ key: Buffer.concat([PUBLIC_HEAD, bytes]), format: 'der', type: 'spki' });
  if (PUBLIC_KEYS.size >= MAX_KEYS) PUBLIC_KEYS.clear();
  PUBLIC_KEYS.set(text, key);
  return key;
}

function privateKeyOf(pair: KeyPair): KeyObject {
  const known = PRIVATE_KEYS.get(pair);
  if (known) return known;
  const bytes = keyBytes(pair.privateKey);
  if (!bytes)
    throw FLEET_ERRORS.create('ACODE-FLT-004', {
      what: 'private key',
      value: '…',
      rule: 'it is `ed25519:` and 32 bytes in base64',
    });
  const key = createPrivateKey({ key: Buffer.concat([PRIVATE_HEAD, bytes]), format: 'der', type: 'pkcs8' });
  PRIVATE_KEYS.set(pair, key);
  return key;
}

function keyBytes(text: string): Buffer | null {
  if (!text.startsWith(PREFIX)) return null;
  const bytes = Buffer.from(text.slice(PREFIX.length), 'base64');
  return bytes.length === KEY_BYTES ? bytes : null;
}

/** A public key in a file. */
export const keySchema = z
  .string()
  .refine(text => publicKeyFrom(text) !== null, 'expected `ed25519:` and 32 bytes in base64');

const envelopeSchema = z.strictObject({ key: z.string().max(100), signature: z.string().max(200), body: z.string() });

/** A text with the signature of one key. */
export function signed(purpose: keyof typeof PURPOSES, body: string, pair: KeyPair): string {
  const signature = sign(null, Buffer.from(PURPOSES[purpose] + body), privateKeyOf(pair)).toString('base64');
  return JSON.stringify({ key: pair.publicKey, signature, body });
}

/**
 * The text that one of these keys has signed for this purpose; null for every other. Nothing of the text is read before its
 * signature is.
 */
export function verified(purpose: keyof typeof PURPOSES, envelope: string, keys: readonly string[]): string | null {
  const found = parsedEnvelope(envelope);
  if (!found || !keys.includes(found.key)) return null;
  const key = publicKeyFrom(found.key);
  const isValid =
    key && verify(null, Buffer.from(PURPOSES[purpose] + found.body), key, Buffer.from(found.signature, 'base64'));
  return isValid ? found.body : null;
}

/** The text of an envelope without regard to who has signed it. */
export function unverified(envelope: string): string | null {
  return parsedEnvelope(envelope)?.body ?? null;
}

function parsedEnvelope(envelope: string): z.infer<typeof envelopeSchema> | null {
  try {
    return envelopeSchema.parse(JSON.parse(envelope));
  } catch {
    return null;
  }
}

/** The SHA-256 of bytes, in hexadecimal. */
export function hashOf(bytes: Uint8Array | string): string {
  return createHash('sha256').update(bytes).digest('hex');
}
