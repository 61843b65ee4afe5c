// The token of the HTTP server: the user’s own from the environment or a private file, else a new one for this run.

import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { AcodeError } from '@acode/sandbox';

const VARIABLE = 'ACODE_MCP_TOKEN';
const MIN_LENGTH = 32;
const MAX_LENGTH = 512;
const OTHERS = 0o077;

/** A token, and whether nobody knows it yet. */
export interface Token {
  readonly value: string;
  readonly isNew: boolean;
}

/** The token that counts: the file’s, the environment’s, or a new one. */
export async function tokenFrom(
  file: string | undefined,
  env: Readonly<Record<string, string | undefined>>,
  uid: number | undefined,
): Promise<Token> {
  if (file !== undefined) return { value: usable(await privateText(file, uid), file), isNew: false };
  const given = env[VARIABLE];
  if (given !== undefined && given !== '') return { value: usable(given, VARIABLE), isNew: false };
  return { value: randomBytes(32).toString('base64url'), isNew: true };
}

function usable(text: string, source: string): string {
  const token = text.trim();
  if (token.length < MIN_LENGTH) throw unusable(source, `it is shorter than ${MIN_LENGTH} characters`);
  if (token.length > MAX_LENGTH) throw unusable(source, `it is longer than ${MAX_LENGTH} characters`);
  if (!/^[\x21-\x7e]+$/.test(token)) throw unusable(source, 'it holds more than letters, digits and signs');
  return token;
}

// Looked at when it is open: another file in its place in between would not be this one.
async function privateText(path: string, uid: number | undefined): Promise<string> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(
    (error: unknown) => {
      throw unusable(path, error instanceof Error ? error.message : String(error));
    },
  );
  try {
    const stats = await file.stat();
    if (!stats.isFile()) throw unusable(path, 'it is not a file');
    if (uid !== undefined && stats.uid !== uid) throw unusable(path, 'it belongs to another user');
    if ((stats.mode & OTHERS) !== 0) throw unusable(path, 'others may read or write it: its mode must be 0600');
    if (stats.size > 2 * MAX_LENGTH) throw unusable(path, `it is longer than ${MAX_LENGTH} characters`);
    return await file.readFile('utf8');
  } finally {
    await file.close();
  }
}

function unusable(source: string, reason: string): AcodeError {
  return new AcodeError('ACODE-MCP-011', { source, reason });
}
