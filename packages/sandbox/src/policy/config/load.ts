// Reads the user’s own configuration: strictly, bounded, and never code.

import { join } from 'node:path';
import { AcodeError } from '../../contract/errors.ts';
import { readBoundedFile } from '../../lifecycle/private-file.ts';
import type { BoundedFile } from '../../lifecycle/private-file.ts';
import { checkConfig } from './check.ts';
import type { LoadedConfig, RawConfig } from './check.ts';
import { MAX_BYTES, tooLarge } from './shape.ts';

/** The user’s own file; an absent one is an empty configuration. */
export async function loadUserConfig(directory: string, file?: string): Promise<LoadedConfig> {
  const source = file ?? join(directory, 'config.yml');
  const found = await readConfigFile(source, source, 0);
  if (found) return (await import('./parse.ts')).parseConfig(textOf(found, source), source);
  if (file !== undefined) {
    const remedy = 'Name a configuration file that exists (--config), or leave it out to use your own.';
    throw new AcodeError('ACODE-SBX-013', { source, key: '', reason: 'does not exist', remedy });
  }
  return checkConfig({}, source);
}

/**
 * The one key that is read before the root guard. Only root’s own file counts: one that somebody else owns or can write
 * allows nothing, and neither does one that cannot be understood.
 */
export async function readAllowRoot(directory: string, uid: number): Promise<boolean> {
  try {
    const path = join(directory, 'config.yml');
    const file = await readBoundedFile(path, MAX_BYTES);
    if (file.uid !== uid || (file.mode & 0o022) !== 0 || file.size > MAX_BYTES) return false;
    const { value } = (await import('./parse.ts')).rawConfig(file.text, path);
    return typeof value === 'object' && value !== null && 'allow_root' in value && value.allow_root === true;
  } catch {
    return false;
  }
}

/** Reads a configuration file; null where there is none. `source` is the name it has in messages. */
export async function readConfigFile(path: string, source: string, flags: number): Promise<BoundedFile | null> {
  const file = await readBoundedFile(path, MAX_BYTES, flags).catch((cause: unknown) => {
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return null;
    const link = cause instanceof Error && 'code' in cause && cause.code === 'ELOOP';
    const reason = link ? 'is a link, and links are not followed here' : 'cannot be read';
    throw new AcodeError('ACODE-SBX-013', { source, key: '', reason }, { cause });
  });
  if (file && file.size > MAX_BYTES) throw new AcodeError('ACODE-SBX-013', { source, key: '', reason: tooLarge() });
  return file;
}

/** What a configuration file holds, before any schema. */
export async function rawOf(file: BoundedFile, source: string): Promise<RawConfig> {
  const text = textOf(file, source);
  return (await import('./parse.ts')).rawConfig(text, source);
}

// What is not UTF-8 is refused: its bytes could read as one thing and count as another.
function textOf(file: BoundedFile, source: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(file.bytes);
  } catch (cause) {
    throw new AcodeError('ACODE-SBX-013', { source, key: '', reason: 'is not UTF-8 text' }, { cause });
  }
}
