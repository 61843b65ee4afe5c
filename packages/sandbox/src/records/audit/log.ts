// The writing side of the audit log: one chain per user, however many processes write to it at once, and the key that signs checkpoints.
// A signature shows that a holder of the key wrote the log, and that is all it can show: the same user could take another key and write
// everything anew.

import { fdatasync, constants } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
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
import {
  ensurePrivateDirectory,
  createPrivateFile,
  readPrivateFile,
  writePrivateFile,
} from '../../lifecycle/directories.ts';
import type { AuditEntry, AuditHead, AuditKind } from '../../contract/audit.ts';
import { AcodeError } from '../../contract/errors.ts';
import type { Clock } from '../../contract/ports.ts';
import { CHECKPOINT_EVERY, Chain } from './files.ts';
import { LOST, contentOf, seal, canonicalJson } from './record.ts';
import type { Content } from './record.ts';
import { releaseLock, takeLock, thisHolder } from '../../lifecycle/lock.ts';
import type { Holder } from '../../lifecycle/lock.ts';
import { reasonOf, codeOf } from '../../contract/system-error.ts';

const ROTATE_BYTES = 16 * 1024 * 1024;
const DEADLINE_MS = 5000;
const FIRST_PAUSE_MS = 1;
const MAX_PAUSE_MS = 20;

// What allows something must outlive a power cut; what says how it ended reaches the disk with the next of these.
const AUTHORISING: ReadonlySet<AuditKind> = new Set<AuditKind>(['intent', 'event']);

const LOSS: Content = {
  correlationId: 'audit',
  operation: 'open',
  event: LOST,
};

const toDisk = promisify(fdatasync);

/** What an audit log is opened with. */
export interface AuditLogOptions {
  /** Where it is kept; made at the first record, for this user alone. */
  readonly directory: string;
  readonly uid: number;
  readonly clock: Clock;
  /** The size at which the next record begins a new file. */
  readonly rotateBytes?: number;
  /** How many records there are to each signature; more than the default would be missed by who verifies. */
  readonly checkpointEvery?: number;
  /** How long a record may take before it counts as not written. */
  readonly deadlineMs?: number;
}

/** What one try came to: a record, or a lock of another process. */
type Try = { readonly written: Written } | { readonly waitFor: string | null };

/** A record that was written; not the wanted one where another had to stand before it. */
interface Written extends AuditHead {
  readonly isWanted: boolean;
}

/**
 * The audit log of one user, to be written.
 *
 * @example
 * const clock = { now: Date.now, monotonic: Date.now, after: () => () => undefined };
 * const log = new AuditLog({ directory: '/home/me/.local/state/acode/audit', uid: 1000, clock });
 * const { seq } = await log.append({ kind: 'event', operation: 'open', correlationId: 'c', event: 'opened by root' });
 * await log.close();
 */
export class AuditLog {
  readonly #options: AuditLogOptions;
  readonly #chain: Chain;
  readonly #fingerprints: Fingerprints;
  readonly #rotateBytes: number;
  readonly #checkpointEvery: number;
  #holder: Holder | null = null;
  #ready = false;
  #queue: Promise<unknown> = Promise.resolve();

  constructor(options: AuditLogOptions) {
    this.#options = options;
    this.#chain = new Chain(options.directory, options.uid);
    this.#fingerprints = new Fingerprints(options.directory, options.uid);
    this.#rotateBytes = options.rotateBytes ?? ROTATE_BYTES;
    this.#checkpointEvery = options.checkpointEvery ?? CHECKPOINT_EVERY;
  }

  /**
   * Writes one record. It is in the one chain of all processes when this resolves, and on the disk where it allows
   * something; otherwise it rejects with ACODE-AUD-001 within the deadline, and whatever it was for must not happen.
   */
  async append(entry: AuditEntry, signal?: AbortSignal): Promise<AuditHead> {
    const { clock, deadlineMs = DEADLINE_MS } = this.#options;
    const deadline = clock.monotonic() + deadlineMs;
    // One after the other: within a process there is no use in being in one’s own way.
    const written = this.#queue.then(() => this.#write(entry, deadline, signal));
    this.#queue = written.catch(() => undefined);
    return written;
  }

  /**
   * A fingerprint that only this user can make: two that are the same are of the same value, and the value cannot be
   * guessed from it. Rejects like {@link append} where its key cannot be had.
   */
  async fingerprint(value: unknown): Promise<string> {
    try {
      return await this.#fingerprints.of(value);
    } catch (error) {
      throw notWritten(error, this.#options.directory);
    }
  }

  /** The last record; null where there is none yet. */
  head(): AuditHead | null {
    this.#chain.look();
    const { seq, hash } = this.#chain.head;
    return seq === 0 ? null : { seq, hash };
  }

  /** Waits for what is being written, and lets go of the files. */
  async close(): Promise<void> {
    await this.#queue;
    this.#chain.close();
  }

  async #write(entry: AuditEntry, deadline: number, signal?: AbortSignal): Promise<AuditHead> {
    signal?.throwIfAborted();
    const { directory, uid } = this.#options;
    try {
      const content = contentOf(entry);
      if (!this.#ready) await this.#within(deadline, ensurePrivateDirectory(directory, uid));
      this.#ready = true;
      const { seq, hash } = await this.#inTurn(entry.kind, content, deadline, signal);
      if (AUTHORISING.has(entry.kind)) await this.#within(deadline, toDisk(this.#chain.descriptor));
      return { seq, hash };
    } catch (error) {
      if (signal?.aborted && error === signal.reason) throw error;
      throw notWritten(error, this.#chain.path ?? directory);
    }
  }

  async #inTurn(kind: AuditKind, content: Content, deadline: number, signal?: AbortSignal): Promise<AuditHead> {
    const { clock } = this.#options;
    for (let waits = 0; ;) {
      const outcome = this.#try(kind, content, waits > 0);
      if ('written' in outcome && outcome.written.isWanted) return outcome.written;
      const waitFor = 'written' in outcome ? null : outcome.waitFor;
      if (clock.monotonic() > deadline) throw this.#busy(waitFor ?? 'others were always first');
      // A checkpoint was due first; or another process has written that record, and the next one may be ours.
      if (waitFor === null) continue;
      await pause(clock, pauseMs(waits), signal);
      waits += 1;
      this.#chain.look();
    }
  }

  // A disk that does not answer must not block the caller: it gets an error at the deadline.
  async #within<Value>(deadline: number, work: Promise<Value>): Promise<Value> {
    const { clock } = this.#options;
    let cancel = (): void => undefined;
    const late = new Promise<never>((_, reject) => {
      const ms = Math.max(0, deadline - clock.monotonic());
      cancel = clock.after(ms, () => reject(new Error('the disk did not answer in time')));
    });
    try {
      return await Promise.race([work, late]);
    } finally {
      cancel();
    }
  }

  // Everything between taking the lock and releasing it happens without a pause: others wait for it.
  #try(kind: AuditKind, content: Content, examine: boolean): Try {
    const { directory } = this.#options;
    this.#holder ??= thisHolder();
    this.#chain.begin();
    const seq = this.#chain.head.seq + 1;
    const lock = takeLock(directory, seq, this.#holder, examine);
    if (!lock.held) {
      const { holder, path } = lock;
      return { waitFor: holder === null ? path : `process ${holder.pid}, by ${path}` };
    }
    let written = false;
    try {
      this.#chain.look();
      if (this.#chain.head.seq + 1 !== seq) return { waitFor: null };
      const record = this.#next(kind, content);
      written = true;
      return { written: record };
    } finally {
      releaseLock(directory, seq, lock.generation, written || this.#chain.head.seq >= seq);
    }
  }

  #next(kind: AuditKind, content: Content): Written {
    const { directory, clock } = this.#options;
    const { head } = this.#chain;
    const seq = head.seq + 1;
    if (seq === 1 && hasKey(directory)) return this.#beginAfterLoss();
    const rotates = this.#chain.size >= this.#rotateBytes;
    const isTime = rotates || this.#chain.beginsFile || seq % this.#checkpointEvery === 0;
    const due = isTime && head.kind !== null && head.kind !== 'checkpoint';
    const place = { seq, ts: new Date(clock.now()).toISOString(), prev: head.hash };
    const own = due ? ('checkpoint' as const) : kind;
    const sealed = seal(place, own, due ? { ...signHead(directory, head) } : content);
    this.#chain.append(sealed, own, rotates);
    // After the first record: a key without one would say that records were lost. Its writer may have died in between.
    if (seq <= 2) makeKey(directory);
    return { seq, hash: sealed.hash, isWanted: !due };
  }

  // acode makes the key after the first record. A key without records means that the records were removed.
  #beginAfterLoss(): Written {
    const ts = new Date(this.#options.clock.now()).toISOString();
    const sealed = seal({ seq: 1, ts, prev: this.#chain.head.hash }, 'event', LOSS);
    this.#chain.append(sealed, 'event', false);
    return { seq: 1, hash: sealed.hash, isWanted: false };
  }

  #busy(waitFor: string): AcodeError {
    const { directory, deadlineMs = DEADLINE_MS } = this.#options;
    const file = this.#chain.path ?? join(directory, '000000000001.jsonl');
    return new AcodeError('ACODE-AUD-001', {
      file,
      reason: `another process held the lock for ${deadlineMs / 1000} s: ${waitFor}`,
      remedy:
        'Continue or end that process, and try again. Where it is certainly gone, on another machine or in a container that was removed, remove the file lock.… that is named.',
    });
  }
}

// A little longer each time, and never two processes in step.
function pauseMs(waits: number): number {
  return Math.min(FIRST_PAUSE_MS * 2 ** Math.min(waits, 10), MAX_PAUSE_MS) * (0.5 + Math.random());
}

function pause(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = (): void => {
      signal?.removeEventListener('abort', abort);
      resolve();
    };
    const cancel = clock.after(ms, done);
    const abort = (): void => {
      cancel();
      reject(signal?.reason instanceof Error ? signal.reason : new Error('aborted'));
    };
    signal?.addEventListener('abort', abort, { once: true });
    if (signal?.aborted) abort();
  });
}

/** The error that a record could not be written. What is an error of ours already says it better. */
export function notWritten(error: unknown, file: string): AcodeError {
  if (isOurs(error)) return error;
  return new AcodeError('ACODE-AUD-001', { file: pathOf(error) ?? file, reason: reasonOf(error) }, { cause: error });
}

function pathOf(error: unknown): string | null {
  return error instanceof Error && 'path' in error && typeof error.path === 'string' ? error.path : null;
}

function isOurs(error: unknown): error is AcodeError {
  return error instanceof AcodeError && (error.is('ACODE-AUD-001') || error.is('ACODE-AUD-002'));
}

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
