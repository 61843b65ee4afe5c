// Reads the machine’s policy: what an administrator set for everybody here. It can only narrow, and only root may have written it.

import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { AcodeError } from '../../contract/errors.ts';
import { holdTo } from './check.ts';
import type { Loaded } from './check.ts';
import { rawOf, readConfigFile } from './load.ts';
import { machineSchema } from './schema.ts';
import type { MachinePolicy } from './schema.ts';

// No variable and no option changes where it is.
const MACHINE_POLICY = '/etc/acode/policy.yml';

/** The machine’s policy with its places. */
export type LoadedMachine = Loaded<MachinePolicy>;

/** The machine’s policy; null where there is none. One that somebody else than `owner` could write is an error. */
export async function loadMachinePolicy(path = MACHINE_POLICY, owner = 0): Promise<LoadedMachine | null> {
  const file = await readConfigFile(path, path, 0);
  if (!file) return null;
  hold(file, path, owner);
  const directory = await stat(dirname(path));
  hold(directory, dirname(path), owner);
  return holdTo(machineSchema, await rawOf(file, path));
}

function hold({ uid, mode }: { uid: number; mode: number }, path: string, owner: number): void {
  const reason =
    uid === owner
      ? (mode & 0o022) === 0
        ? null
        : 'can be written by others than its owner'
      : 'does not belong to root, so it is not the machine’s policy';
  if (reason !== null) throw new AcodeError('ACODE-SBX-013', { source: path, key: '', reason });
}
