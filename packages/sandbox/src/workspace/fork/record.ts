// The record of a fork: its form on disk, and what follows from it. Pure, but for the id of a new one.

import { randomBytes } from 'node:crypto';
import * as z from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import type { FileIdentity } from '../../contract/spec.ts';
import { isSameNumber } from '../file-identity.ts';

// How long a fork with changes stays after its last use.
const FORK_LIFE_MS = 7 * 24 * 3600 * 1000;
// No vowels and no digits that look like letters: ids must be easy to type and must not spell words.
const ALPHABET = 'bcdfghjkmnpqrstvwxz23456789';
const ID_LENGTH = 8;
/** The form of an id. */
export const ID = /^[bcdfghjkmnpqrstvwxz23456789]{8}$/;
const NAME = /^[a-z0-9](?:[a-z0-9._-]{0,38}[a-z0-9])?$/;
/** Words of the command line that cannot be the name of a fork. */
const RESERVED = new Set(['new', 'current']);

const identitySchema = z.strictObject({ device: z.number(), inode: z.number() });
const commandShape = {
  at: z.number(),
  command: z.string(),
  /** The process that ran it was killed. */
  interrupted: z.literal(true).optional(),
};
/** A record as it is on disk. */
export const recordSchema = z.strictObject({
  version: z.literal(1),
  id: z.string().regex(ID),
  name: z.string().regex(NAME).nullable(),
  workspace: z.string(),
  identity: identitySchema,
  createdAt: z.number(),
  usedAt: z.number(),
  expiresAt: z.number(),
  /** When it became the current fork of its workspace; the latest is. */
  currentAt: z.number().nullable(),
  image: z.string().nullable(),
  layers: z.array(
    z.strictObject({
      number: z.int().positive(),
      ...commandShape,
      /** Fork whose directory it is in; this one unless given. */
      of: z.string().regex(ID).optional(),
      /** Commands before this one whose layers were squashed with its own. */
      earlier: z.array(z.strictObject(commandShape)).optional(),
      /** Number of the first layer that was squashed into it. */
      first: z.int().positive().optional(),
      /** It has a second directory, over the repository of the linked worktree. */
      git: z.literal(true).optional(),
    }),
  ),
  /** The repository of the linked worktree, which the second directories of layers lie over. */
  repository: z.strictObject({ path: z.string(), identity: identitySchema }).optional(),
  /** Snapshots by name, each with the number of commands that it has the changes of. */
  snapshots: z.record(z.string(), z.number()),
  nextLayer: z.int().positive(),
  active: z
    .strictObject({
      sandboxId: z.string().nullable(),
      /** The process that ends the layer; null where none does any more. */
      holder: z.string().nullable(),
      layer: z.int().positive(),
      at: z.number(),
      command: z.string(),
      /** Paths that are masked for it. */
      masked: z.array(z.string()).optional(),
      /** Disk limit of all layers of the fork, in bytes; absent if there is none. */
      limitBytes: z.number().exactOptional(),
      git: z.literal(true).optional(),
      /** It works in a copy, of which its layer is made when it has ended. */
      copy: z.literal(true).optional(),
      /** acode paused its sandbox, to read the layer. */
      paused: z.literal(true).optional(),
    })
    .nullable(),
  /** Paths that were masked for a command of it: what commands wrote there is not for the workspace. */
  masked: z.array(z.string()).optional(),
});

/** What is known of a fork. */
export type ForkRecord = z.infer<typeof recordSchema>;

/** The layer of one command. */
export type LayerRecord = ForkRecord['layers'][number];

/** One command whose changes a fork has. */
export interface CommandRecord {
  readonly at: number;
  readonly command: string;
  readonly interrupted?: true | undefined;
}

/** The repository of a linked worktree: the directory outside of the workspace that git has for all worktrees together. */
export interface LinkedRepository {
  /** The directory, without links. */
  readonly path: string;
  readonly identity: FileIdentity;
}

// Refuses a name that could be taken for something else.
export function assertName(name: string): void {
  if (NAME.test(name) && !RESERVED.has(name)) return;
  throw new AcodeError('ACODE-SBX-017', {
    field: 'policy.fork',
    reason: 'is not a name: use lower-case letters, digits, dots and dashes, at most 40 characters',
  });
}

export function layerOf(
  { layer, at, command }: NonNullable<ForkRecord['active']>,
  is: { readonly isInterrupted: boolean; readonly hasGit: boolean },
): LayerRecord {
  const interrupted = is.isInterrupted ? { interrupted: true as const } : {};
  return { number: layer, at, command, ...interrupted, ...(is.hasGit ? { git: true as const } : {}) };
}

/** What an active layer has besides: a second directory, or a copy that it is made of. */
export function flagsOf(repository: LinkedRepository | undefined, copy = false): { git?: true; copy?: true } {
  return { ...(repository ? { git: true } : {}), ...(copy ? { copy: true } : {}) };
}

// What commands wrote lies over the files of one repository, and is wrong over those of another.
export function refuseOtherRepository({ id, layers, repository }: ForkRecord, now: LinkedRepository): void {
  if (!repository || !layers.some(hasGit)) return;
  if (repository.path === now.path && isSameNumber(repository.identity, now.identity)) return;
  throw new AcodeError('ACODE-FRK-004', {
    fork: id,
    reason: `it has commits over the repository that was at ${repository.path}, and this worktree belongs to another one now`,
  });
}

export function numbersOf({ device, inode }: FileIdentity): FileIdentity {
  return { device, inode };
}

export function hasGit({ git }: { readonly git?: true | undefined }): boolean {
  return git === true;
}

/** Whether commands of a fork wrote to the repository of a linked worktree: the diff of the workspace does not show it. */
export function hasRepositoryChanges({ layers }: Pick<ForkRecord, 'layers'>): boolean {
  return layers.some(hasGit);
}

/** The commands of a layer, in order. */
export function commandsOf({ at, command, interrupted, earlier = [] }: LayerRecord): CommandRecord[] {
  return [...earlier, { at, command, ...(interrupted ? { interrupted } : {}) }];
}

/** The commands whose changes a fork has, in order. */
export function historyOf({ layers }: Pick<ForkRecord, 'layers'>): CommandRecord[] {
  return layers.flatMap(commandsOf);
}

/** The number of commands that a snapshot has the changes of. */
export function commandsIn({ id, snapshots }: ForkRecord, snapshot: string): number {
  const commands = Object.hasOwn(snapshots, snapshot) ? snapshots[snapshot] : undefined;
  if (commands !== undefined) return commands;
  throw new AcodeError('ACODE-FRK-008', { fork: id, snapshot, known: Object.keys(snapshots) });
}

export function commandCount({ layers }: Pick<ForkRecord, 'layers'>): number {
  return layers.reduce((sum, { earlier = [] }) => sum + earlier.length + 1, 0);
}

// The number of the first layer that was squashed into this one, or its own: base records still have the original numbers.
export function firstOf({ number, first }: LayerRecord): number {
  return first ?? number;
}

/** The number of layers that have the changes of the first `commands` commands. Refuses a number in the middle of a squashed layer. */
export function layersWith({ id, layers }: ForkRecord, commands: number): number {
  let count = 0;
  for (const [index, layer] of layers.entries()) {
    if (count === commands) return index;
    const next = count + commandsOf(layer).length;
    if (commands < next) throw new AcodeError('ACODE-FRK-006', { fork: id, from: count + 1, to: next });
    count = next;
  }
  return layers.length;
}

export function usedAt(at: number): Pick<ForkRecord, 'usedAt' | 'expiresAt'> {
  return { usedAt: at, expiresAt: at + FORK_LIFE_MS };
}

export function isUnused({ layers, name, snapshots }: ForkRecord): boolean {
  return layers.length === 0 && name === null && Object.keys(snapshots).length === 0;
}

export function freshId(): string {
  return Array.from(randomBytes(ID_LENGTH), byte => ALPHABET[byte % ALPHABET.length]).join('');
}
