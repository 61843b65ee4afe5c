// Source text of the reaper, keeper and refresher programs.
//
// They are plain JavaScript beside the compiled library, since they are started when no library is left to load them, or one that
// may have changed. They are read long before that, since by then a sandbox may have changed the file. Bundling replaces this module.

import { readFile } from 'node:fs/promises';

/** The text of the cleaning program. */
export function reaperProgram(): Promise<string> {
  return readFile(new URL('../../reaper/reaper.mjs', import.meta.url), 'utf8');
}

/** The text of the program that removes a kept sandbox when its time is over. */
export function keeperProgram(): Promise<string> {
  return readFile(new URL('../../reaper/keeper.mjs', import.meta.url), 'utf8');
}

/** The text of the program that refreshes a login. */
export function refresherProgram(): Promise<string> {
  return readFile(new URL('../../reaper/refresher.mjs', import.meta.url), 'utf8');
}
