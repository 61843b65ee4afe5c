// Where acode itself is installed. In a project’s own node_modules that is inside the workspace, where a sandbox writes.

import { readFile, realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const NAMED = /"name":/;
const OWN_PACKAGES = /"name":\s*"(?:acode|@acode\/sandbox)"/;

// Looked for once: it is where this code came from, whatever is put there later.
let found: Promise<string> | null = null;

/** The directory of the package this code came with; where it was bundled into another program, that of the bundle. */
export function installationRoot(): Promise<string> {
  found ??= find();
  return found;
}

async function find(): Promise<string> {
  const written = dirname(fileURLToPath(import.meta.url));
  const here = await realpath(written).catch(() => written);
  for (let directory = here; dirname(directory) !== directory; directory = dirname(directory)) {
    const manifest = await readFile(join(directory, 'package.json'), 'utf8').catch(() => null);
    // One without a name says how files are to be read, and is no package.
    if (manifest !== null && NAMED.test(manifest)) return OWN_PACKAGES.test(manifest) ? directory : here;
  }
  return here;
}
