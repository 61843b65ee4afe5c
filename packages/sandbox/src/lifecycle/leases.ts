// Leases: until when a persistent sandbox may exist, in the state directory, since a label cannot change.

import { createHash } from 'node:crypto';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { readPrivateFile, writePrivateFile } from './private-file.ts';

const MAX_BYTES = 1024;

/** The hard maximum of a sandbox’s life, which its labels carry. */
export const HARD_MAXIMUM_MS = 25 * 3600 * 1000;

const SANDBOX = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Whether a text is the id of a sandbox: what an engine’s labels say becomes no part of a path before. */
export function isSandboxId(text: string): boolean {
  return SANDBOX.test(text);
}

/** The leases of one user. A lease never reaches beyond the hard maximum in the labels, whatever it says. */
export class Leases {
  readonly #directory: string;

  constructor(stateDirectory: string) {
    this.#directory = join(stateDirectory, 'leases');
  }

  /** What labels call this place: not its path, which anybody could read who may ask the engine. */
  get place(): string {
    return createHash('sha256').update(this.#directory).digest('hex').slice(0, 16);
  }

  /** When the lease of a sandbox ends; null where it has none, or none that can be read. */
  read(sandboxId: string): number | null {
    const file = isSandboxId(sandboxId) ? readPrivateFile(this.pathOf(sandboxId), { maxBytes: MAX_BYTES }) : null;
    const until = Date.parse(file?.text.split(/\s/)[0] ?? '');
    return Number.isFinite(until) ? until : null;
  }

  /** Whether the lease of a sandbox ends later than now. */
  isCurrent(sandboxId: string, now: number): boolean {
    return (this.read(sandboxId) ?? 0) > now;
  }

  /** Grants or changes a lease. A reader sees the old one or the new one, never half of either. */
  async grant(sandboxId: string, until: Date): Promise<void> {
    if (!isSandboxId(sandboxId)) throw new TypeError(`${sandboxId} is not the id of a sandbox`);
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    // A second time as a number of seconds: a keeper is a shell, and has no calendar.
    writePrivateFile(this.pathOf(sandboxId), `${until.toISOString()} ${Math.ceil(until.getTime() / 1000)}\n`);
  }

  /** Ends a lease: its sandbox was removed. */
  async drop(sandboxId: string): Promise<void> {
    if (isSandboxId(sandboxId)) await rm(this.pathOf(sandboxId), { force: true });
  }

  /** Where the lease of a sandbox is, or would be. */
  pathOf(sandboxId: string): string {
    return join(this.#directory, sandboxId);
  }

  /**
   * Drops the leases that say nothing any more. That a sandbox is not on this engine is not enough: a user may have several,
   * and a lease too few would let a kept sandbox on another one live longer. Once it is past the hard maximum, its labels say
   * the same.
   */
  async prune(existing: ReadonlySet<string>, now: number): Promise<void> {
    const names = await readdir(this.#directory).catch(() => []);
    for (const name of names.filter(one => isSandboxId(one) && !existing.has(one))) {
      const until = this.read(name);
      if (until === null || until + HARD_MAXIMUM_MS < now) await rm(join(this.#directory, name), { force: true });
    }
  }
}
