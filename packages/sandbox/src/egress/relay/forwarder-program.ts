// The bytes of the forwarder, for each architecture of this machine. Bundling replaces this module.

import { readFile } from 'node:fs/promises';

/** The file of a name in the package’s own directory of forwarders. */
export function forwarderFile(name: string): Promise<Buffer> {
  return readFile(new URL(`../../../forwarder/${name}`, import.meta.url));
}
