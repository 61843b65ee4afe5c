// Source text of the reaper and keeper programs.
//
// They are plain JavaScript beside the compiled library, since a shell starts them when no library is left to load them. They are
// read long before that, since by then a sandbox may have changed the file. Bundling replaces this module.

import { readFile } from 'node:fs/promises';

/** The text of the cleaning program. */
export function reaperProgram(): Promise<string> {
  return readFile(new URL('../../reaper/reaper.mjs', import.meta.url), 'utf8');
}

/** The text of the program that removes a kept sandbox when its time is over. */
export function keeperProgram(): Promise<string> {
  return readFile(new URL('../../reaper/keeper.mjs', import.meta.url), 'utf8');
}
