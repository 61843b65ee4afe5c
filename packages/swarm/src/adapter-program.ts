// The text of the adapter: a file of the package. Bundling puts the text itself here.

import { readFile } from 'node:fs/promises';

/** The adapter, as one ES module. */
export function adapterProgram(): Promise<string> {
  return readFile(new URL('./adapter.mjs', import.meta.url), 'utf8');
}
