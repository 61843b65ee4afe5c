// This machine, as locating an engine sees it.
import { existsSync, readFileSync } from 'node:fs';
import { homedir, userInfo } from 'node:os';
import { isAbsolute } from 'node:path';
import type { LocateHost } from './locate.ts';

/** The machine and the user this process runs as. */
export function thisHost(): LocateHost {
  return {
    env: process.env,
    // An empty or relative HOME would make the current directory’s `.docker` say which engine is used.
    homedir: isAbsolute(homedir()) ? homedir() : userInfo().homedir,
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
