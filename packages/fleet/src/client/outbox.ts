// Outbox: tasks that were submitted and whose end was not read yet. It outlives the process, so that no lost server loses a task.

import { mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readPrivateFile, writePrivateFile } from '@acode/sandbox';
import * as z from 'zod';
import type { QueuedTask } from '../engine/engine.ts';
import { MAX_TEXT_BYTES } from '../engine/engine.ts';
import { PRIORITIES, checkedName } from '../engine/names.ts';

// Workers refuse what was signed longer ago.
const KEEP_MS = 6 * 86_400_000;

const entrySchema = z.strictObject({
  tenant: z.string(),
  id: z.string(),
  pool: z.string(),
  priority: z.enum(PRIORITIES),
  body: z.string(),
  workspace: z.string().nullable(),
});

/** A task of the outbox: as it was queued, and the hash of its workspace. */
export type OutboxEntry = QueuedTask & { readonly workspace: string | null };

/** The outbox of one tenant. */
export class Outbox {
  readonly #directory: string;

  constructor(directory: string, tenant: string) {
    this.#directory = join(directory, checkedName('tenant', tenant));
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
  }

  /** Keeps a task. One of that id that is there already stays as it is. */
  add(entry: OutboxEntry, workspace: Uint8Array | null): void {
    if (this.find(entry.id)) return;
    if (workspace && entry.workspace) writePrivateFile(this.#path(entry.workspace, 'gz'), Buffer.from(workspace));
    const { tenant, id, pool, priority, body } = entry;
    const text = JSON.stringify({ tenant, id, pool, priority, body, workspace: entry.workspace });
    writePrivateFile(this.#path(checkedName('task', id), 'json'), text, { durable: 'name' });
  }

  /** The task of that id; null where it is not kept. */
  find(id: string): OutboxEntry | null {
    const found = readPrivateFile(this.#path(checkedName('task', id), 'json'), { maxBytes: 2 * MAX_TEXT_BYTES });
    if (!found) return null;
    try {
      return entrySchema.parse(JSON.parse(found.text));
    } catch {
      return null;
    }
  }

  /** The workspace of a task, as it was packed. */
  async workspace({ workspace }: OutboxEntry): Promise<Uint8Array | null> {
    return workspace === null ? null : readFile(this.#path(workspace, 'gz')).catch(() => null);
  }

  /** The ids of all tasks that are kept. What no worker would take any more is removed. */
  ids(): string[] {
    const names = readdirSync(this.#directory).filter(name => name.endsWith('.json'));
    return names.flatMap(name => {
      const id = name.slice(0, -'.json'.length);
      const changed = statSync(join(this.#directory, name), { throwIfNoEntry: false })?.mtimeMs ?? 0;
      if (Date.now() - changed <= KEEP_MS) return [id];
      this.remove(id);
      return [];
    });
  }

  /** Forgets a task: its end was read. */
  remove(id: string): void {
    const found = this.find(id);
    rmSync(this.#path(checkedName('task', id), 'json'), { force: true });
    const hash = found?.workspace;
    if (hash && !this.ids().some(other => this.find(other)?.workspace === hash))
      rmSync(this.#path(hash, 'gz'), { force: true });
  }

  #path(name: string, extension: 'json' | 'gz'): string {
    return join(this.#directory, `${name}.${extension}`);
  }
}
