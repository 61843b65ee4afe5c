// Container names: acode-{session}-{task}-{sequence}, deterministic, parseable, a DNS label. The truth is in the labels.

import { createHash } from 'node:crypto';

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
