// Version of this package.

import { readFileSync } from 'node:fs';

/** The version, as package.json has it. */
export function ownVersion(): string {
  // One level up from the sources, the compiled files and the bundle alike.
  const manifest: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  return typeof manifest === 'object' && manifest !== null && 'version' in manifest
    ? String(manifest.version)
    : 'unknown';
}
