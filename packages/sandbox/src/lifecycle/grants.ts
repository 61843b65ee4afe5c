// Grants: hosts that a person allowed for the next command or for a task, one file each. They expire, and one for the next command
// is removed by the command that takes it.

import { mkdirSync, readdirSync, rmSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { createPrivateFile, readPrivateFile } from './directories.ts';

const MAX_BYTES = 4096;
const MAX_GRANTS = 256;

const grantSchema = z.strictObject({
  /** The id of what was pending. */
  id: z.string().regex(/^[0-9a-f]{8}$/),
  /** The entry of an allow-list. */
  entry: z.string(),
  workspace: z.string(),
  /** The task that it is for; null for every command of the workspace. */
  taskId: z.string().nullable(),
  /** Whether one command takes it, and no other has it then. */
  once: z.boolean(),
  expiresAt: z.iso.datetime(),
});

/** A host that a person allowed for some time. */
export type Grant = z.output<typeof grantSchema>;

/** The grants of a user. */
export class Grants {
  readonly #directory: string;
  readonly #now: () => number;

  constructor(state: string, now: () => number) {
    this.#directory = join(state, 'grants');
    this.#now = now;
  }

  /** Adds one, in place of an earlier one for the same. */
  add(grant: Grant): void {
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    rmSync(this.#fileOf(grant), { force: true });
    createPrivateFile(this.#fileOf(grant), `${JSON.stringify(grant)}\n`);
  }

  /** Those that a command of a workspace has. What cannot be read grants nothing. */
  for(workspace: string, taskId: string | undefined): Grant[] {
    return this.#all().filter(
      grant => grant.workspace === workspace && (grant.taskId === null || grant.taskId === taskId),
    );
  }

  /** Takes those that one command uses up. Those that another one took meanwhile are not among them. */
  take(grants: readonly Grant[]): Grant[] {
    return grants.filter(grant => !grant.once || this.#taken(grant));
  }

  #taken(grant: Grant): boolean {
    try {
      unlinkSync(this.#fileOf(grant));
      return true;
    } catch {
      return false;
    }
  }

  #all(): Grant[] {
    return this.#names().flatMap(name => {
      const grant = this.#read(name);
      if (grant === null || Date.parse(grant.expiresAt) > this.#now()) return grant ?? [];
      rmSync(join(this.#directory, name), { force: true });
      return [];
    });
  }

  #names(): string[] {
    try {
      return readdirSync(this.#directory)
        .filter(name => name.endsWith('.json'))
        .slice(0, MAX_GRANTS);
    } catch {
      return [];
    }
  }

  #read(name: string): Grant | null {
    const file = readPrivateFile(join(this.#directory, name), { maxBytes: MAX_BYTES });
    try {
      const { data } = grantSchema.safeParse(JSON.parse(file?.text ?? ''));
      return data ?? null;
    } catch {
      return null;
    }
  }

  #fileOf({ id, once }: Grant): string {
    return join(this.#directory, `${id}-${once ? 'once' : 'task'}.json`);
  }
}
