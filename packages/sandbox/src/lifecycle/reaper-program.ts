// The program that a reaper becomes. It is plain JavaScript beside the compiled library, since a shell starts it when no
// library is left to load it; and it is read long before that, since by then a sandbox may have changed the file. (Bundling
// replaces this file.)

import { readFile } from 'node:fs/promises';

/** The text of the cleaning program. */
export function reaperProgram(): Promise<string> {
  return readFile(new URL('../../reaper/reaper.mjs', import.meta.url), 'utf8');
}
