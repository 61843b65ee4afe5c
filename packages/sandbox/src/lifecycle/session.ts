// Session: the owner of the sandboxes of one opened host, and the names of their containers.

import { createHash, randomUUID } from 'node:crypto';
import { AcodeError } from '../contract/errors.ts';
import type { Level } from '../contract/levels.ts';
import type { Clock } from '../contract/ports.ts';
import type { SandboxIdentity } from '../contract/spec.ts';
import { redact } from '../contract/redact.ts';
import { labelFault, sandboxLabels } from './labels.ts';
import { HARD_MAXIMUM_MS } from './ownership.ts';

/** What is known about the owner of a session. */
export interface SessionOptions {
  readonly id: string | undefined;
  readonly host: string;
  readonly uid: number;
  /** Where the leases of kept sandboxes are, as labels say it. */
  readonly leases: string;
  readonly settings: { readonly namePrefix: string; readonly labels: Readonly<Record<string, string>> };
  readonly clock: Pick<Clock, 'now'>;
}

// How many tasks are counted at once. A host that lives for weeks has more, one after the other.
const MAX_SEQUENCES = 4096;

// What an id may look like: it becomes part of labels and names, which anybody may read who can ask the engine.
const ID = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

/** The sandboxes of one opened host. */
export class Session {
  readonly id: string;
  /** Random, and not the process id: those are reused. */
  readonly owner = randomUUID();
  readonly #options: SessionOptions;
  readonly #sequences = new Map<string, number>();

  constructor(options: SessionOptions) {
    this.id = checkId(options.id ?? randomUUID(), 'sessionId');
    for (const [name, value] of Object.entries(options.settings.labels)) checkLabel(name, value);
    this.#options = options;
  }

  /** Names the next sandbox of a task; with `preview`, without using its number up. */
  identify(of: {
    task: string | undefined;
    session: string | undefined;
    profile: string;
    level: Level;
    specHash: string;
    correlationId: string;
    preview: boolean;
    keep?: boolean | 'shared';
    givenName?: string;
    /** The name of the service that it is, beside the sandbox of that task. */
    service?: string;
  }): SandboxIdentity {
    const { host, uid, leases, settings, clock } = this.#options;
    const task = checkId(of.task ?? 'run', 'taskId');
    const session = checkId(of.session ?? this.id, 'sessionId');
    const named = of.service === undefined ? task : `${task}-${of.service}`;
    const key = `${session}\n${named}`;
    const sequence = (this.#sequences.get(key) ?? 0) + 1;
    if (!of.preview) this.#count(key, sequence);
    const sandboxId = randomUUID();
    const name = containerName({ session, task: named, sequence, prefix: settings.namePrefix });
    const createdAt = new Date(clock.now());
    const facts = {
      session,
      task,
      sandboxId,
      name,
      owner: this.owner,
      host,
      uid,
      profile: of.profile,
      level: of.level,
      specHash: of.specHash,
      nonce: randomUUID(),
      keep: of.keep ?? false,
      ...(of.givenName === undefined ? {} : { givenName: of.givenName }),
      leases,
      createdAt,
      expiresAt: new Date(clock.now() + HARD_MAXIMUM_MS),
    };
    return {
      sandboxId,
      name,
      labels: sandboxLabels(facts, settings.labels),
      correlationId: of.correlationId,
    };
  }

  // The longest unused is forgotten: by then its sandboxes are removed, and their numbers are free again.
  #count(key: string, sequence: number): void {
    this.#sequences.delete(key);
    this.#sequences.set(key, sequence);
    const [oldest] = this.#sequences.keys();
    if (this.#sequences.size > MAX_SEQUENCES && oldest !== undefined) this.#sequences.delete(oldest);
  }
}

function checkLabel(name: string, value: string): void {
  const reason = labelFault(name, value);
  if (reason === null) return;
  throw new AcodeError('ACODE-SBX-013', { source: 'configuration', key: `sandbox.containers.labels.${name}`, reason });
}

function checkId(id: string, field: string): string {
  if (ID.test(id) && redact(id) === id) return id;
  throw new AcodeError('ACODE-SBX-017', {
    field,
    reason: ID.test(id)
      ? 'looks like a secret, and names and labels can be read by others'
      : 'must be 1 to 128 letters, digits, dots, colons, hyphens or underscores',
  });
}

const MAX_LENGTH = 63;
const SESSION_LENGTH = 8;
const HASH_LENGTH = 6;

/** What a container name says. The parts are normalised; labels hold the originals. */
export interface ParsedName {
  readonly session: string;
  readonly task: string;
}

/**
 * The name of the `sequence`-th sandbox of a task: the same input always gives the same name.
 *
 * @example
 * containerName({ session: 'a1b2c3d4-…', task: 'build', sequence: 1 }); // 'acode-a1b2c3d4-build-001'
 */
export function containerName(of: { session: string; task: string; sequence: number; prefix?: string }): string {
  const prefix = normalise(of.prefix ?? 'acode');
  const session = sessionPart(of.session);
  const sequence = String(of.sequence).padStart(3, '0');
  const room = MAX_LENGTH - prefix.length - session.length - sequence.length - 3;
  return `${prefix}-${session}-${shortened(normalise(of.task), of.task, room)}-${sequence}`;
}

/** Reads a name back, or gives null where it is not one of ours. */
export function parseName(name: string, prefix = 'acode'): ParsedName | null {
  const bare = name.startsWith('/') ? name.slice(1) : name;
  const start = `${normalise(prefix)}-`;
  if (!bare.startsWith(start) || bare.length > MAX_LENGTH) return null;
  const match = /^([a-z0-9]+)-([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)$/.exec(bare.slice(start.length));
  return match?.[1] && match[2] ? { session: match[1], task: match[2] } : null;
}

// Hyphen-free, so that the first hyphen after the prefix always ends it. Only random ids are cut: two that people chose
// often begin alike, and would collide.
function sessionPart(session: string): string {
  return /^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}/.test(session)
    ? session.slice(0, SESSION_LENGTH)
    : hash(session).slice(0, SESSION_LENGTH);
}

function normalise(text: string): string {
  const plain = text
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '');
  return plain === '' ? 'x' : plain;
}

// A cut name gets a hash of the original, or two long tasks with the same beginning would collide.
function shortened(plain: string, original: string, room: number): string {
  if (plain.length <= room) return plain;
  const head = plain.slice(0, room - HASH_LENGTH - 1).replace(/-$/, '');
  return `${head}-${hash(original).slice(0, HASH_LENGTH)}`;
}

function hash(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
