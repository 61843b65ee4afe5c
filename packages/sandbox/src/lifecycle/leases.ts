// How long a sandbox that was kept on purpose may exist: a lease in the state directory, since a label cannot change.

import { mkdir, readFile, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** The hard maximum of a sandbox’s life, which its labels carry. */
export const HARD_MAXIMUM_MS = 25 * 3600 * 1000;

const SANDBOX = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** The leases of one user. A lease never reaches beyond the hard maximum in the labels, whatever it says. */
export class Leases {
  readonly #directory: string;

  constructor(stateDirectory: string) {
    this.#directory = join(stateDirectory, 'leases');
  }

  /** When the lease of a sandbox ends; null where it has none, or none that can be read. */
  async read(sandboxId: string): Promise<number | null> {
    if (!SANDBOX.test(sandboxId)) return null;
    try {
      const until = Date.parse((await readFile(join(this.#directory, sandboxId), 'utf8')).trim());
      return Number.isFinite(until) ? until : null;
    } catch {
      return null;
    }
  }

  /** Grants or changes a lease. A reader sees the old one or the new one, never half of either. */
  async grant(sandboxId: string, until: Date): Promise<void> {
    if (!SANDBOX.test(sandboxId)) throw new TypeError(`${sandboxId} is not the id of a sandbox`);
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const path = join(this.#directory, sandboxId);
    const draft = `${path}.${process.pid}`;
    await writeFile(draft, `${until.toISOString()}\n`, { mode: 0o600 });
    await rename(draft, path);
  }

  /**
   * Drops the leases that say nothing any more. That a sandbox is not on this engine is not enough: a user may have several,
   * and a lease too few would let a kept sandbox on another one live longer. Once it is past the hard maximum, its labels say
   * the same.
   */
  async prune(existing: ReadonlySet<string>, now: number): Promise<void> {
    const names = await readdir(this.#directory).catch(() => []);
    for (const name of names.filter(one => SANDBOX.test(one) && !existing.has(one))) {
      const until = await this.read(name);
      if (until === null || until + HARD_MAXIMUM_MS < now) await rm(join(this.#directory, name), { force: true });
    }
  }
}
