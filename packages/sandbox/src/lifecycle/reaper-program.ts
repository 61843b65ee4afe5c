// Where the program lies that a reaper becomes. It is plain JavaScript beside the compiled library, since it is started
// by a shell when no library is left to load it. (Bundling replaces this file.)

import { fileURLToPath } from 'node:url';

/** The path of the cleaning program. */
export function reaperProgram(): string {
  return fileURLToPath(new URL('../../reaper/reaper.mjs', import.meta.url));
}
