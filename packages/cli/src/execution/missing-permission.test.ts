// A command that may not write what its user may not write either is told so, and no other.

import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { missingPermission } from './missing-permission.ts';

let root = '';

beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), 'acode-permission-'));
  for (const name of ['ro', 'rw']) mkdirSync(join(root, 'sub', name), { recursive: true });
  writeFileSync(join(root, 'sub', 'file'), '');
  symlinkSync('/etc', join(root, 'sub', 'out'));
  chmodSync(join(root, 'sub', 'file'), 0o444);
  chmodSync(join(root, 'sub', 'ro'), 0o555);
});

afterAll(() => {
  chmodSync(join(root, 'sub', 'ro'), 0o755);
  rmSync(root, { recursive: true });
});

// Root may write everything.
describe.skipIf(process.getuid?.() === 0)('a command that printed', () => {
  it.each([
    ['touch: ro/x: Permission denied\n', 'sub/ro'],
    ["touch: cannot touch 'ro/x': Permission denied\n", 'sub/ro'],
    ["/bin/sh: can't create ro/x: Permission denied\n", 'sub/ro'],
    ["Error: EACCES: permission denied, open 'ro/x'\n", 'sub/ro'],
    ["PermissionError: [Errno 13] Permission denied: '/workspace/sub/file'\n", 'sub/file'],
  ])('%j is told about the path, and how to change that', async (stderr, path) => {
    const text = await missingPermission({ root, inside: 'sub' }, stderr);
    expect(text).toMatch(new RegExp(`^${path} is not writable by you .*\`chmod u\\+w ${path}\`\\.$`));
  });

  it.each([
    'touch: rw/x: Permission denied\n',
    'touch: /etc/x: Permission denied\n',
    'touch: ../../x: Permission denied\n',
    'touch: out/x: Permission denied\n',
    'touch: nothing/there/x: Permission denied\n',
    'ro/x\n',
    '',
  ])('%j is told nothing', async stderr => {
    await expect(missingPermission({ root, inside: 'sub' }, stderr)).resolves.toBeNull();
  });
});
