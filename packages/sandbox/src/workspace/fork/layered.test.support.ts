// A workspace with layers over it, in directories of a test: `w`, `1`, `2` and `base`.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';

/** The directories of the test that runs now. */
export let home: string;

/** Makes them before each test of the file, and removes them after it. */
export function useLayers(): void {
  beforeEach(() => {
    home = realpathSync(mkdtempSync(join(tmpdir(), 'acode-layers-')));
    for (const part of ['w', '1', '2', 'base']) mkdirSync(join(home, part));
  });
  afterEach(() => {
    execFileSync('chmod', ['-R', 'u+rwx', home]);
    rmSync(home, { recursive: true, force: true });
  });
}

/** Writes files of a layer, or of the workspace. Text that begins with `→` is a link. */
export function write(layer: string, files: Readonly<Record<string, string | Buffer>>): void {
  for (const [path, content] of Object.entries(files)) {
    const at = join(home, layer, path);
    mkdirSync(dirname(at), { recursive: true });
    if (typeof content === 'string' && content.startsWith('→')) symlinkSync(content.slice(1), at);
    else writeFileSync(at, content);
  }
}
