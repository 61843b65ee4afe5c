// A small tree of real packages: taken from those this project depends on, packed, and locked to what was packed.

import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const MODULES = fileURLToPath(new URL('../../node_modules', import.meta.url));

/** The packages of the tree, none of which needs another. */
export const PACKAGES = ['cockatiel', 'commander', 'picocolors', 'yaml'] as const;

/** Lays the packages out below a workspace, each as a registry would pack it. */
export function layOut(workspace: string): void {
  for (const name of PACKAGES) {
    const place = join(workspace, 'packed', name);
    mkdirSync(place, { recursive: true });
    cpSync(join(MODULES, name), join(place, 'package'), { recursive: true, dereference: true });
  }
}

/** What packs them and puts them into the cache of npm, inside a sandbox. */
export const PACK_AND_ADD = `cd packed
for name in *; do [ ! -d "$name" ] || [ -f "$name.tgz" ] || tar -czf "$name.tgz" -C "$name" package; done
npm cache add ./*.tgz --no-update-notifier >/dev/null`;

/** Writes a project that depends on all of them, locked to the packed files. */
export function writeProject(workspace: string, below: string): void {
  const described = PACKAGES.map(name => {
    const { version } = JSON.parse(readFileSync(join(MODULES, name, 'package.json'), 'utf8')) as { version: string };
    const packed = readFileSync(join(workspace, 'packed', `${name}.tgz`));
    return { name, version, integrity: `sha512-${createHash('sha512').update(packed).digest('base64')}` };
  });
  const dependencies = Object.fromEntries(described.map(({ name, version }) => [name, version]));
  const project = { name: 'project', version: '1.0.0', dependencies };
  const locked = described.map(({ name, version, integrity }) => [
    `node_modules/${name}`,
    { version, resolved: `https://registry.npmjs.org/${name}/-/${name}-${version}.tgz`, integrity },
  ]);
  const packages = { '': project, ...Object.fromEntries(locked) };
  mkdirSync(join(workspace, below), { recursive: true });
  writeFileSync(join(workspace, below, 'package.json'), JSON.stringify(project));
  writeFileSync(
    join(workspace, below, 'package-lock.json'),
    JSON.stringify({ ...project, lockfileVersion: 3, requires: true, packages }),
  );
}

/** Installs from the cache alone. */
export const NPM_CI = 'rm -rf node_modules; npm ci --offline --no-audit --no-fund --no-update-notifier';
