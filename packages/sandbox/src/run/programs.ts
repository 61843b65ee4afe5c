// Programs of the store: directories of acode’s own that sandboxes have read-only, and how one is added.

import { randomUUID } from 'node:crypto';
import { lstatSync } from 'node:fs';
import { mkdir, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { AcodeError } from '../contract/errors.ts';
import { usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { MountSpec } from '../contract/spec.ts';
import { text } from '../contract/wording.ts';
import { ensurePrivateDirectory } from '../lifecycle/directories.ts';
import { identityOf } from '../workspace/file-identity.ts';
import { removeTree } from '../workspace/removal.ts';
import type { Host } from './host.ts';

const STORE = 'programs';
const MAKING = '.new-';
const ID = /^[a-z0-9][a-z0-9._-]{0,127}$/;
// As long as a slow connection may take for some hundred megabytes.
const ADD_MS = 30 * 60 * 1000;

type ProgramHost = Pick<Host, 'directories' | 'locks' | 'uid'>;

/** Whether there is a program of this id. */
export function hasProgram(host: Pick<Host, 'directories'>, id: string): boolean {
  return lstatSync(pathOf(host, id), { throwIfNoEntry: false })?.isDirectory() === true;
}

/** Adds a program, unless there is one of this id; its directory appears whole or not at all. */
export async function addProgram(
  host: ProgramHost,
  id: string,
  fill: (directory: string, signal: AbortSignal) => Promise<void>,
  signal: AbortSignal,
): Promise<boolean> {
  const path = pathOf(host, id);
  if (hasProgram(host, id)) return false;
  return host.locks.during(`program ${id}`, { deadlineMs: ADD_MS, signal }, async () => {
    if (hasProgram(host, id)) return false;
    const store = join(host.directories.state, STORE);
    await ensurePrivateDirectory(store, host.uid);
    // Of a process that was killed: nobody else makes this one now.
    const prefix = `${MAKING}${id}-`;
    for (const name of await readdir(store)) if (name.startsWith(prefix)) await removeTree(join(store, name));
    const making = join(store, `${prefix}${randomUUID()}`);
    await mkdir(making, { mode: 0o700 });
    try {
      await fill(making, signal);
      signal.throwIfAborted();
      await rename(making, path);
    } catch (error) {
      await removeTree(making);
      throw error;
    }
    return true;
  });
}

/** The mounts of the programs that a policy names. */
export function programMounts(
  host: Pick<Host, 'directories'>,
  level: Level,
  { programs }: Pick<EffectivePolicy, 'programs'>,
): readonly MountSpec[] {
  if (programs.value.length > 0 && !usesEngine(level))
    throw new AcodeError('ACODE-SBX-016', {
      what: text`${[{ field: 'policy.programs' }]} at level ${level}`,
      instead: 'Leave it out, or use level docker or stronger.',
    });
  return programs.value.map(({ id, target }) => {
    const source = pathOf(host, id);
    const found = lstatSync(source, { throwIfNoEntry: false });
    if (found?.isDirectory() !== true)
      throw new AcodeError('ACODE-SBX-017', {
        field: 'policy.programs',
        reason: `there is no program ${id}`,
        remedy: 'Add it first, with `acode.programs.add`.',
      });
    return { purpose: 'program', source, target, readOnly: true, identity: identityOf(found) };
  });
}

function pathOf({ directories }: Pick<Host, 'directories'>, id: string): string {
  if (ID.test(id)) return join(directories.state, STORE, id);
  throw new AcodeError('ACODE-SBX-017', {
    field: 'policy.programs',
    reason: `${JSON.stringify(id.slice(0, 80))} is no id of a program: small letters, digits, dots, hyphens and underscores`,
  });
}
