// Gives the unit tests one temporary directory, and takes it away after the last of them.

import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { tmpdir } from 'node:os';

export function setup(): () => void {
  const directory = mkdtempSync(join(tmpdir(), 'acode-unit-'));
  process.env['TMPDIR'] = directory;
  return () => rmSync(directory, { recursive: true, force: true });
}
