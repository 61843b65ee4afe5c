// Forks of workspaces on disk: which there are, the layer of each command, and which sandbox writes one now.
//
// `<state>/f/<id>/` holds `fork.json`, one directory for each layer (`1`, `2`, …), the overlay’s work directory `w` and `base`. Names
// are short because every layer stands in one string of mount options, of which the kernel reads no more than a page.

import { randomBytes } from 'node:crypto';
import { chmodSync, lstatSync, mkdirSync, readdirSync } from 'node:fs';
import { lstat, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import type { FileIdentity, OverlayPart, OverlaySpec } from '../../contract/spec.ts';
import { codeOf } from '../../contract/system-error.ts';
import { readPrivateFile, writePrivateFile } from '../../lifecycle/private-file.ts';
import { identityOf, isSameNumber } from '../file-identity.ts';
import { forgetBase } from './base.ts';
import type { ForkLayers } from './layers.ts';
import { assertOptions, overlayOptions } from './overlay.ts';

const MAX_BYTES = 4 * 1024 ** 2;
const MAX_COMMAND = 200;
// How long a fork with changes stays after its last use.
const FORK_LIFE_MS = 7 * 24 * 3600 * 1000;
// The most layers of a fork; the mount options of more would not fit.
const MAX_LAYERS = 64;
// No vowels and no digits that look like letters: an id is typed, and never a word.
const ALPHABET = 'bcdfghjkmnpqrstvwxz23456789';
const ID_LENGTH = 8;
const ID = /^[bcdfghjkmnpqrstvwxz23456789]{8}$/;
const NAME = /^[a-z0-9](?:[a-z0-9._-]{0,38}[a-z0-9])?$/;
/** Words of the command line that cannot be the name of a fork. */
const RESERVED = new Set(['new', 'current']);

const identitySchema = z.strictObject({ device: z.number(), inode: z.number() });
const recordSchema = z.strictObject({
  version: z.literal(1),
  id: z.string().regex(ID),
  name: z.string().regex(NAME).nullable(),
  workspace: z.string(),
  identity: identitySchema,
  createdAt: z.number(),
  usedAt: z.number(),
  expiresAt: z.number(),
  isCurrent: z.boolean(),
  image: z.string().nullable(),
  layers: z.array(
    z.strictObject({
      number: z.int().positive(),
      at: z.number(),
      command: z.string(),
    }),
  ),
  snapshots: z.record(z.string(), z.number()),
  nextLayer: z.int().positive(),
  active: z
    .strictObject({
      sandboxId: z.string().nullable(),
      holder: z.string(),
      layer: z.int().positive(),
      at: z.number(),
      command: z.string(),
    })
    .nullable(),
});

/** What is known of a fork. */
export type ForkRecord = z.infer<typeof recordSchema>;

/** The layer of one command. */
export type LayerRecord = ForkRecord['layers'][number];

/** Which fork is meant, and of which workspace. */
export interface ForkWanted {
  /** The directory, without links. */
  readonly workspace: string;
  readonly identity: FileIdentity;
  /** A name or an id; `new` for a fresh one; absent for the workspace’s current one. */
  readonly fork?: string | undefined;
}

/** The command that a layer is begun for. */
export interface LayerBegin {
  /** The process that begins it, as locks name one. */
  readonly holder: string;
  /** The id of the image it runs on; null without an engine. */
  readonly image: string | null;
  readonly command: string;
}

/** The forks of one user. Every method that changes one is called under a lock of its id. */
export class ForkStore {
  readonly #directory: string;
  readonly #now: () => number;

  constructor(stateDirectory: string, now: () => number) {
    this.#directory = join(stateDirectory, 'f');
    this.#now = now;
  }

  /** Every fork that can be read, the latest used first; those of one workspace where one is named. */
  async list(workspace?: string): Promise<ForkRecord[]> {
    const names = await readdir(this.#directory).catch(() => []);
    const records = names.flatMap(name => (ID.test(name) ? (this.#read(name) ?? []) : []));
    return records
      .filter(record => workspace === undefined || record.workspace === workspace)
      .sort((one, other) => other.usedAt - one.usedAt);
  }

  /** The fork that is meant; null where there is none, and one would be made. */
  async find({ workspace, identity, fork }: ForkWanted): Promise<ForkRecord | null> {
    if (fork === 'new') return null;
    const all = await this.list(workspace);
    // A directory that was put in the place of the workspace is another one: its files are not what the layers lie over.
    const own = all.filter(record => isSameNumber(record.identity, identity));
    const wanted = own.find(record =>
      fork === undefined ? record.isCurrent : record.id === fork || record.name === fork,
    );
    if (wanted || fork === undefined) return wanted ?? null;
    if (all.some(record => record.id === fork || record.name === fork))
      throw new AcodeError('ACODE-FRK-002', { fork, workspace });
    assertName(fork);
    return null;
  }

  /** Makes a fork of a workspace. One without a name becomes the workspace’s current one with its first changes. */
  async make({ workspace, identity, fork }: ForkWanted): Promise<ForkRecord> {
    const name = fork === undefined || fork === 'new' ? null : fork;
    const id = freshId();
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    mkdirSync(this.pathOf(id), { mode: 0o700 });
    for (const part of ['w', 'base']) mkdirSync(join(this.pathOf(id), part), { mode: 0o700 });
    const at = this.#now();
    const record: ForkRecord = {
      version: 1,
      id,
      name,
      workspace,
      identity: { device: identity.device, inode: identity.inode },
      createdAt: at,
      usedAt: at,
      expiresAt: at + FORK_LIFE_MS,
      isCurrent: false,
      image: null,
      layers: [],
      snapshots: {},
      nextLayer: 1,
      active: null,
    };
    this.#write(record);
    return record;
  }

  /** One fork as it is now; null where there is none. */
  read(id: string): ForkRecord | null {
    return ID.test(id) ? this.#read(id) : null;
  }

  /**
   * Begins the layer of a command. What a command that never came to its end left is removed: it has no record, so nobody was told
   * that it exists.
   */
  async begin(id: string, { holder, image, command }: LayerBegin): Promise<ForkRecord> {
    const record = this.#get(id);
    if (record.layers.length >= MAX_LAYERS)
      throw new AcodeError('ACODE-FRK-004', { fork: id, reason: `it has ${MAX_LAYERS} layers` });
    const layer = record.nextLayer;
    const upper = join(this.pathOf(id), String(layer));
    // The top directory inside has the mode of the upper one.
    mkdirSync(upper, { mode: 0o700 });
    chmodSync(upper, lstatSync(record.workspace).mode & 0o777);
    const at = this.#now();
    const begun = {
      ...record,
      image: image ?? record.image,
      usedAt: at,
      expiresAt: at + FORK_LIFE_MS,
      nextLayer: layer + 1,
      active: { sandboxId: null, holder, layer, at, command: command.slice(0, MAX_COMMAND) },
    };
    this.#write(begun);
    return begun;
  }

  /** Writes down which sandbox writes the layer that was begun. */
  claim(id: string, sandboxId: string): void {
    const record = this.#get(id);
    if (record.active) this.#write({ ...record, active: { ...record.active, sandboxId } });
  }

  /** The command that was begun never ran. */
  async abandon(id: string): Promise<void> {
    await this.end(id, true);
  }

  /**
   * The overlay of the command that a fork has begun. Throws where its options would not fit. What one kind of mount leaves in its
   * work directory may be root’s, so that another cannot use it: each has its own.
   */
  overlayOf(record: ForkRecord, workName = 'w'): OverlaySpec {
    if (!record.active) throw new TypeError('no command was begun');
    const work = join(this.pathOf(record.id), workName);
    mkdirSync(work, { recursive: true, mode: 0o700 });
    const spec: OverlaySpec = {
      fork: record.id,
      upper: partAt(join(this.pathOf(record.id), String(record.active.layer))),
      work: partAt(work),
      lowers: this.layersOf({ ...record, active: null })
        .uppers.toReversed()
        .map(partAt),
    };
    assertOptions(overlayOptions(spec, record.workspace), record.id);
    return spec;
  }

  /** The layers of a fork, with that of a command that has begun. */
  layersOf({ id, workspace, layers, active }: ForkRecord): ForkLayers {
    const numbers = [...layers.map(({ number }) => number), ...(active ? [active.layer] : [])];
    return { workspace, uppers: numbers.map(number => join(this.pathOf(id), String(number))), masked: [] };
  }

  /** Where a fork keeps what its commands first saw. */
  baseOf(id: string): string {
    return join(this.pathOf(id), 'base');
  }

  /** The layer of a command is complete. One without changes is removed, and so is a fork that never had any. */
  async end(id: string, isEmpty: boolean): Promise<void> {
    const { active, ...record } = this.#get(id);
    if (!active) return;
    const layer = { number: active.layer, at: active.at, command: active.command };
    const isFirst = !isEmpty && record.layers.length === 0 && record.name === null;
    const layers = isEmpty ? record.layers : [...record.layers, layer];
    const ended = { ...record, active: null, layers, isCurrent: record.isCurrent || isFirst };
    this.#write(ended);
    if (isFirst) await this.#makeOnlyCurrent(ended);
    if (isEmpty) await this.#removeTree(join(this.pathOf(id), String(active.layer)));
    if (isUnused(ended)) await this.remove(id);
  }

  /** Takes the changes of the last commands back. */
  async undo(id: string, commands: number): Promise<LayerRecord[]> {
    const record = this.#get(id);
    const kept = Math.max(0, record.layers.length - commands);
    const undone = record.layers.slice(kept);
    const snapshots = Object.fromEntries(Object.entries(record.snapshots).filter(([, count]) => count <= kept));
    this.#write({ ...record, layers: record.layers.slice(0, kept), snapshots, usedAt: this.#now() });
    if (undone[0]) await forgetBase(this.baseOf(id), undone[0].number);
    for (const { number } of undone) await this.#removeTree(join(this.pathOf(id), String(number)));
    return undone;
  }

  /** Gives a name to a fork as it is now. */
  snapshot(id: string, name: string): void {
    assertName(name);
    const record = this.#get(id);
    this.#write({ ...record, snapshots: { ...record.snapshots, [name]: record.layers.length } });
  }

  /** Removes a fork. False where the engine has left something in its work directory that only the engine can remove. */
  async remove(id: string): Promise<boolean> {
    const aside = join(this.#directory, `.${id}`);
    await rename(this.pathOf(id), aside).catch((error: unknown) => {
      if (codeOf(error) !== 'ENOENT') throw error;
    });
    return this.#removeTree(aside);
  }

  /** The work directories of removed forks that only an engine can empty. */
  async leftovers(): Promise<string[]> {
    const names = await readdir(this.#directory).catch(() => []);
    return names
      .filter(name => name.startsWith('.') && ID.test(name.slice(1)))
      .map(name => join(this.#directory, name));
  }

  /** Directories in a fork’s own that no record names: of commands that were killed before they had any. */
  sweep(id: string): Promise<unknown> {
    const record = this.#get(id);
    const known = new Set([...record.layers.map(layer => layer.number), record.active?.layer].map(String));
    const strange = readdirSync(this.pathOf(id)).filter(name => /^\d+$/.test(name) && !known.has(name));
    return Promise.all(strange.map(name => this.#removeTree(join(this.pathOf(id), name))));
  }

  /** Where all forks are. */
  get directory(): string {
    return this.#directory;
  }

  /** Where a fork is. */
  pathOf(id: string): string {
    return join(this.#directory, id);
  }

  async #makeOnlyCurrent({ id, workspace }: ForkRecord): Promise<void> {
    for (const other of await this.list(workspace))
      if (other.isCurrent && other.id !== id) this.#write({ ...other, isCurrent: false });
  }

  #get(id: string): ForkRecord {
    const record = this.read(id);
    if (!record) throw new AcodeError('ACODE-FRK-001', { fork: id });
    return record;
  }

  #read(id: string): ForkRecord | null {
    const file = readPrivateFile(join(this.pathOf(id), 'fork.json'), { maxBytes: MAX_BYTES });
    if (!file) return null;
    try {
      const record = recordSchema.parse(JSON.parse(file.text));
      return record.id === id ? record : null;
    } catch {
      return null;
    }
  }

  #write(record: ForkRecord): void {
    writePrivateFile(join(this.pathOf(record.id), 'fork.json'), JSON.stringify(record));
  }

  async #removeTree(path: string): Promise<boolean> {
    try {
      await rm(path, { recursive: true, force: true });
    } catch (error) {
      // What a command wrote may lack the permissions that its removal needs; what the engine’s kernel made is root’s.
      if (!['EACCES', 'EPERM', 'ENOTEMPTY'].includes(codeOf(error))) throw error;
      await openUp(path);
      await rm(path, { recursive: true, force: true }).catch(() => undefined);
    }
    return !(await exists(path));
  }
}

// Refuses a name that could be taken for something else.
function assertName(name: string): void {
  if (NAME.test(name) && !RESERVED.has(name)) return;
  throw new AcodeError('ACODE-SBX-017', {
    field: 'policy.fork',
    reason: 'is not a name: use lower-case letters, digits, dots and dashes, at most 40 characters',
  });
}

/** A directory, with every directory on the way to it, as they are now. */
export function partAt(path: string): OverlayPart {
  return { path, identities: identitiesOf(path) };
}

/** Whether a directory, and every one on the way to it, is still what it was. */
export function isPartInPlace({ path, identities }: OverlayPart): boolean {
  try {
    const now = identitiesOf(path);
    return now.length === identities.length && identities.every((identity, at) => isSameNumber(now[at], identity));
  } catch {
    return false;
  }
}

function identitiesOf(path: string): FileIdentity[] {
  const names = path.split('/').slice(1);
  return ['/', ...names.map((_, at) => `/${names.slice(0, at + 1).join('/')}`)].map(one => {
    const found = lstatSync(one);
    if (!found.isDirectory()) throw new Error(`${one} is not a directory`);
    const { device, inode } = identityOf(found);
    return { device, inode };
  });
}

function isUnused({ layers, name, snapshots }: ForkRecord): boolean {
  return layers.length === 0 && name === null && Object.keys(snapshots).length === 0;
}

function freshId(): string {
  return Array.from(randomBytes(ID_LENGTH), byte => ALPHABET[byte % ALPHABET.length]).join('');
}

// Directories alone: a file needs no permission to be removed.
async function openUp(path: string): Promise<void> {
  const found = await lstat(path).catch(() => null);
  if (!found?.isDirectory()) return;
  try {
    chmodSync(path, 0o700);
  } catch {
    return;
  }
  for (const entry of await readdir(path, { withFileTypes: true }).catch(() => []))
    if (entry.isDirectory()) await openUp(join(path, entry.name));
}

async function exists(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => null)) !== null;
}
