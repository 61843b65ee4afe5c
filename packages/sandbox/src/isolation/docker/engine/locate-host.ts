// This machine, as locating an engine sees it.
import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import type { LocateHost } from './locate.ts';

/** The machine and the user this process runs as. */
export function thisHost(): LocateHost {
  return {
    env: process.env,
    homedir: homedir(),
    uid: process.getuid?.(),
    readFile: readIfPresent,
    exists: existsSync,
  };
}

function readIfPresent(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR'))
      return undefined;
    throw error;
  }
}
