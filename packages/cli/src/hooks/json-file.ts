// Settings files of agents: read as they are, and changed only where acode understands all of them.

import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, mkdir, open, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { fileCode } from '../failure/file-reasons.ts';

/** An object of a settings file. */
export type Fields = Readonly<Record<string, unknown>>;

const MAX_BYTES = 8 * 1024 ** 2;
const OWN_MODE = 0o600;

/** What a settings file holds: an object; nothing, where there is no file; or why it cannot be used. */
export type Read = { readonly fields: Fields } | { readonly reason: string } | null;

/** Reads a settings file. Never waits: a pipe of that name is no settings file. */
export async function readFields(path: string): Promise<Read> {
  let text: string;
  try {
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const found = await file.stat();
    if (!found.isFile()) return { reason: 'is not a file' };
    if (found.size > MAX_BYTES) return { reason: 'is too large' };
    text = await file.readFile('utf8');
  } catch (error) {
    const code = fileCode(error);
    return code === 'ENOENT' || code === 'ENOTDIR' ? null : { reason: `cannot be read (${code ?? 'unknown'})` };
  }
  if (text.trim() === '') return { fields: {} };
  try {
    const value: unknown = JSON.parse(text);
    return isFields(value) ? { fields: value } : { reason: 'does not hold an object' };
  } catch {
    return { reason: 'is not plain JSON' };
  }
}

/** Whether a value is an object. */
export function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Replaces a settings file as a whole, where a link leads to it too. Its mode stays. */
export async function writeFields(path: string, fields: Fields): Promise<void> {
  await writeWhole(path, `${JSON.stringify(fields, null, 2)}\n`);
}

/** Replaces a file as a whole; a reader sees the old one or the new one. */
export async function writeWhole(path: string, text: string, mode?: number): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const target = await realpath(path).catch(() => path);
  const before = await stat(target).catch(() => null);
  const temporary = `${target}.${randomUUID()}`;
  try {
    await writeFile(temporary, text, { flag: 'wx', mode: OWN_MODE });
    await chmod(temporary, mode ?? (before ? before.mode & 0o777 : OWN_MODE));
    await rename(temporary, target);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}
