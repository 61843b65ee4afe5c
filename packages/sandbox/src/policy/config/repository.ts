// Reads the configuration that came with the code. It is untrusted: no link is followed to it, and what it may never set is refused first.

import { createHash } from 'node:crypto';
import { constants, lstatSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { AcodeError } from '../../contract/errors.ts';
import type { BoundedFile } from '../../lifecycle/private-file.ts';
import { holdTo, valueAt } from './check.ts';
import type { LoadedConfig } from './check.ts';
import { repeatsBuiltIn } from './given.ts';
import { isFixedValue, keysOf, repositoryRule } from './keys.ts';
import { rawOf, readConfigFile } from './load.ts';
import { configSchema } from './schema.ts';

const FOLDER = '.agent';
const FILE = 'config.yml';
const OLD_FILE = 'agent-config.yml';

/** The configuration of a repository. */
export interface RepositoryConfig extends LoadedConfig {
  /** The workspace it came from. */
  readonly root: string;
  /** The file itself. */
  readonly file: string;
  /** Hash of its exact bytes. */
  readonly hash: string;
}

/** Reads `.agent/config.yml` of a workspace, else the old `agent-config.yml`; null where there is neither. */
export async function loadRepositoryConfig(root: string): Promise<RepositoryConfig | null> {
  const source = `${FOLDER}/${FILE}`;
  // Most have neither, and it is asked before each command.
  if (isAbsent(join(root, FOLDER)) && isAbsent(join(root, OLD_FILE))) return null;
  const [own, old] = await Promise.all([
    readInFolder(root, source),
    readConfigFile(join(root, OLD_FILE), OLD_FILE, constants.O_NOFOLLOW),
  ]);
  if (own && old) {
    const reason = `stands beside ${OLD_FILE}, its old name; keep one of the two`;
    throw new AcodeError('ACODE-SBX-013', { source, key: '', reason });
  }
  if (own) return parse(own, root, source, []);
  return old ? parse(old, root, OLD_FILE, [`${OLD_FILE} is an old name; rename it to ${source}.`]) : null;
}

// What cannot be looked at is not absent: opening it says why.
function isAbsent(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) === undefined;
  } catch {
    return false;
  }
}

async function parse(
  file: BoundedFile,
  root: string,
  source: string,
  warnings: readonly string[],
): Promise<RepositoryConfig> {
  const loaded = holdTo(configSchema, await rawOf(file, source), refuseForbidden);
  return {
    ...loaded,
    warnings: [...warnings, ...loaded.warnings],
    root,
    file: join(root, source),
    hash: `sha256:${createHash('sha256').update(file.bytes).digest('hex')}`,
  };
}

// Opened by way of the folder’s own descriptor, so that a folder swapped for a link meanwhile changes nothing.
async function readInFolder(root: string, source: string): Promise<BoundedFile | null> {
  const path = join(root, FOLDER);
  const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
  const folder = await open(path, flags).catch((cause: unknown) => {
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return null;
    const reason = 'is not a directory of the workspace itself, and links are not followed here';
    throw new AcodeError('ACODE-SBX-013', { source: FOLDER, key: '', reason }, { cause });
  });
  if (!folder) return null;
  try {
    const base = process.platform === 'linux' ? `/proc/self/fd/${folder.fd}` : path;
    return await readConfigFile(join(base, FILE), source, constants.O_NOFOLLOW);
  } finally {
    await folder.close();
  }
}

// Before the schema: whatever the value, the reason to hear is that the key is not the repository’s to set.
function refuseForbidden(value: unknown, where: (key: string) => string): void {
  for (const key of keysOf(configSchema)) {
    const found = valueAt(value, key);
    if (found === undefined || repeatsBuiltIn(key, found)) continue;
    const rule = repositoryRule(key);
    if (rule === 'never' || (rule === 'fixed' && !isFixedValue(key, found))) {
      throw new AcodeError('ACODE-SBX-020', {
        key,
        where: where(key),
        rule: rule === 'never' ? 'only your own configuration may set it' : 'its value is fixed, for everybody',
        remedy:
          rule === 'never'
            ? 'Take the line out of the repository’s file; if you want it, set it in your own configuration file.'
            : 'Take the line out of the repository’s file; the safe value holds anyway.',
      });
    }
    if (rule === 'later') {
      throw new AcodeError('ACODE-SBX-016', {
        what: `The key ${key} in a repository’s file (${where(key)})`,
        instead: 'Take the line out of the repository’s file, or set it in your own configuration file.',
      });
    }
  }
}
