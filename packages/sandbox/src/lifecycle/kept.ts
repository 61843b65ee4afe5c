// Records of persistent sandboxes that outlive their process: until when each may exist, and the request it was made with.

import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import type { Directories } from './directories.ts';
import { RISKS } from '../contract/levels.ts';
import { policyFrom } from '../contract/policy.ts';
import { policyInputSchema } from '../contract/policy-schema.ts';
import type { CreateRequest } from '../contract/sandbox.ts';
import { keeperProgram } from './reaper-program.ts';
import { startKeeper } from './reaper.ts';
import { Leases, isSandboxId } from './ownership.ts';
import { readPrivateFile, writePrivateFile } from './directories.ts';
import { reapedPath } from './orphans.ts';

const MAX_BYTES = 8 * 1024 ** 2;
const MAX_MASKS = 4096;

const maskSchema = z.strictObject({
  path: z.string(),
  identity: z.strictObject({ device: z.number(), inode: z.number(), born: z.number() }),
  target: z.string(),
  kind: z.enum(['file', 'directory']),
});

// No variables: their values may be secret, and this file persists on disk.
const recordSchema = z.strictObject({
  policy: policyInputSchema.optional(),
  risk: z.enum(RISKS).optional(),
  workspace: z.string().optional(),
  masks: z.array(maskSchema).max(MAX_MASKS).default([]),
  latest: z.iso.datetime(),
  lookedUntil: z.iso.datetime().optional(),
});

/** A mask of a persistent sandbox. Files that appear later are not masked in it. */
export type KeptMask = z.output<typeof maskSchema>;

/** What a kept sandbox was asked for with. */
export type KeptRecord = Pick<CreateRequest, 'policy' | 'risk'> & {
  /** Where it was made; older records do not say. */
  readonly workspace?: string;
  /** Its masks; older records have none. */
  readonly masks: readonly KeptMask[];
  /** The latest time its lease may be extended to. */
  readonly latest: Date;
  /** Time of the last scan: earlier changes in the workspace are already reported. */
  readonly lookedUntil?: Date;
};

/** As much of a host as the records need. */
export interface KeepingHost {
  readonly directories: Directories;
  readonly uid: number;
  readonly identity: string;
}

/** What is known of kept sandboxes on this host, by the id of the sandbox. */
export class Kept {
  readonly #host: KeepingHost;
  readonly #leases: Leases;

  constructor(host: KeepingHost) {
    this.#host = host;
    this.#leases = new Leases(host.directories.state);
  }

  /**
   * Writes the lease and starts its keeper, before the sandbox becomes persistent. One that ends with this process needs no keeper:
   * its `engineSocket` is null.
   */
  async begin(sandboxId: string, record: KeptRecord, until: Date, engineSocket: string | null): Promise<void> {
    const program = engineSocket === null ? null : await keeperProgram();
    const path = this.#pathOf(sandboxId);
    await mkdir(join(path, '..'), { recursive: true, mode: 0o700 });
    this.#write(sandboxId, record);
    await this.#leases.grant(sandboxId, until);
    if (engineSocket === null || program === null) return;
    const { uid, identity, directories } = this.#host;
    const files = { lease: this.#leases.pathOf(sandboxId), record: path, journal: reapedPath(directories.runtime) };
    startKeeper({ engineSocket, sandboxId, uid, host: identity, ...files }, program);
  }

  /** What was written down; null where nothing was, or nothing that makes sense. */
  async read(sandboxId: string): Promise<(KeptRecord & { readonly until: Date }) | null> {
    const until = this.#leases.read(sandboxId);
    if (until === null) return null;
    try {
      const parsed = recordSchema.parse(JSON.parse(this.#textOf(sandboxId)));
      const { policy, risk, workspace, masks, latest, lookedUntil } = parsed;
      return {
        ...(policy ? { policy: policyFrom(policy) } : {}),
        ...(risk ? { risk } : {}),
        ...(workspace === undefined ? {} : { workspace }),
        masks,
        latest: new Date(latest),
        ...(lookedUntil === undefined ? {} : { lookedUntil: new Date(lookedUntil) }),
        until: new Date(until),
      };
    } catch {
      return null;
    }
  }

  /** Lets it stay until another time. */
  async extend(sandboxId: string, until: Date): Promise<void> {
    await this.#leases.grant(sandboxId, until);
  }

  /** Records for the next process up to which time the workspace was scanned. */
  async looked(sandboxId: string, lookedUntil: Date): Promise<void> {
    const known = await this.read(sandboxId);
    if (!known || (known.lookedUntil && known.lookedUntil >= lookedUntil)) return;
    const { until: _, ...record } = known;
    this.#write(sandboxId, { ...record, lookedUntil });
  }

  /** The sandbox was removed: its keeper ends when it sees that. */
  async end(sandboxId: string): Promise<void> {
    if (isSandboxId(sandboxId)) await rm(this.#pathOf(sandboxId), { force: true });
    await this.#leases.drop(sandboxId);
  }

  #write(sandboxId: string, record: KeptRecord): void {
    writePrivateFile(this.#pathOf(sandboxId), JSON.stringify(record));
  }

  #textOf(sandboxId: string): string {
    return readPrivateFile(this.#pathOf(sandboxId), { maxBytes: MAX_BYTES, uid: this.#host.uid })?.text ?? '';
  }

  #pathOf(sandboxId: string): string {
    return join(this.#host.directories.state, 'kept', `${sandboxId}.json`);
  }
}
