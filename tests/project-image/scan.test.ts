// Shows that the scan of an image’s layer finds what must not be there, and says nothing about what may.

import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

const SCAN = fileURLToPath(new URL('../../scripts/image-scan.mjs', import.meta.url));
const PACKAGES = fileURLToPath(new URL('../../scripts/image-packages.mjs', import.meta.url));
let top = '';

beforeEach(() => {
  top = mkdtempSync('/var/tmp/acode-scan-');
  mkdirSync(join(top, 'tree', 'bin'), { recursive: true, mode: 0o755 });
  put('bin/fine', 0o755);
  symlinkSync('fine', join(top, 'tree', 'bin', 'link'));
});

afterEach(() => rmSync(top, { recursive: true, force: true }));

function put(path: string, mode: number): void {
  writeFileSync(join(top, 'tree', path), path);
  chmodSync(join(top, 'tree', path), mode);
}

function scan(...options: string[]): { status: number | null; stdout: string; stderr: string } {
  const layer = join(top, 'layer.tar');
  execFileSync('tar', [...options, '-C', join(top, 'tree'), '-cf', layer, '.']);
  return spawnSync(process.execPath, [SCAN, layer], { encoding: 'utf8', timeout: 20_000 });
}

describe.each(['--format=posix', '--format=gnu'])('the scan of a layer in %s', format => {
  it('finds nothing in ordinary files, directories and links', () => {
    expect(scan(format)).toMatchObject({ status: 0, stdout: '4 entries, 0 findings\n', stderr: '' });
  });

  it.each([
    ['bin/su', 0o4755, 'is setuid'],
    ['bin/wall', 0o2755, 'is setgid'],
    ['bin/open', 0o757, 'can be written to by anybody'],
    [`bin/${'long'.repeat(40)}`, 0o4755, 'is setuid'],
  ])('finds %s', (path, mode, fault) => {
    put(path, mode);
    expect(scan(format)).toMatchObject({ status: 1, stderr: `./${path} ${fault}\n` });
  });

  it('finds a directory that anybody can write to, sticky or not', () => {
    mkdirSync(join(top, 'tree', 'tmp'));
    chmodSync(join(top, 'tree', 'tmp'), 0o1777);
    expect(scan(format)).toMatchObject({ status: 1, stderr: './tmp/ can be written to by anybody\n' });
  });
});

describe('the scan', () => {
  it('finds capabilities of a file', () => {
    // As an archive says it, since only root can give a file some.
    const done = scan('--format=posix', '--pax-option=SCHILY.xattr.security.capability:=x');
    expect(done.status).toBe(1);
    expect(done.stderr).toContain('./bin/fine has capabilities of its own\n');
  });

  it('fails for what is no archive, and for an empty one', () => {
    const file = join(top, 'layer.tar');
    for (const content of ['not a tar'.repeat(200), Buffer.alloc(10_240)]) {
      writeFileSync(file, content);
      expect(spawnSync(process.execPath, [SCAN, file], { timeout: 20_000 }).status).not.toBe(0);
    }
  });
});

it('the list of packages is SPDX, the same for the same packages, with what is installed and nothing else', () => {
  const status = join(top, 'status');
  const installed =
    'Package: git\nStatus: install ok installed\nVersion: 1:2.39\nArchitecture: amd64\nSource: git (1)\n';
  const removed = 'Package: gone\nStatus: deinstall ok config-files\nVersion: 1\nArchitecture: all\n';
  writeFileSync(status, `${removed}\n${installed}\n`);
  const list = (): string =>
    execFileSync(process.execPath, [PACKAGES, 'base', status, '2024-01-01T00:00:00Z'], { encoding: 'utf8' });
  expect(JSON.parse(list())).toMatchObject({
    spdxVersion: 'SPDX-2.3',
    packages: [
      {
        name: 'git',
        versionInfo: '1:2.39',
        externalRefs: [{ referenceLocator: 'pkg:deb/debian/git@1%3A2.39?arch=amd64&upstream=git' }],
      },
    ],
  });
  expect(list()).toBe(list());
});

describe.each(['base', 'small'])('the Dockerfile of acode-sandbox:%s', name => {
  const text = readFileSync(fileURLToPath(new URL(`../../images/${name}/Dockerfile`, import.meta.url)), 'utf8');

  it('hardens what it is made of with the script that CI uses', () => {
    expect(text).toContain('COPY base/harden.sh /harden.sh\nRUN sh /harden.sh /');
  });

  it('takes a base by its digest and by nothing else', () => {
    // No tag that could move stands in for a base that was not named.
    expect(text).toMatch(/^ARG BASE$/m);
    const check = /^RUN (case "\$BASE" .*)$/m.exec(text)?.[1] ?? 'exit 7';
    const status = (BASE: string): number | null => spawnSync('sh', ['-c', check], { env: { BASE } }).status;
    expect(status(`debian:bookworm-slim@sha256:${'a'.repeat(64)}`)).toBe(0);
    expect(status('debian:bookworm-slim')).toBe(1);
  });
});
