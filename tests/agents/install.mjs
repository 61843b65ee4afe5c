// Installs the coding agents of versions.json and a Node they all accept, each in a directory of its own.
// Usage: install.mjs DIRECTORY
// @ts-check

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const directory = resolve(process.argv[2] ?? 'agents');
/** @type {Readonly<Record<string, { package: string, version: string }>>} */
const programs = JSON.parse(readFileSync(new URL('versions.json', import.meta.url), 'utf8'));
// The newer Node first: with an older one, npm takes older versions of some agents without a word.
const path = `${join(directory, 'node/node_modules/node/bin')}:${process.env['PATH'] ?? ''}`;

for (const [name, { package: wanted, version }] of Object.entries(programs)) {
  const prefix = join(directory, name);
  if (existsSync(join(prefix, 'node_modules', wanted))) continue;
  mkdirSync(prefix, { recursive: true });
  writeFileSync(join(prefix, 'package.json'), '{"private":true}\n');
  execFileSync('npm', ['install', '--no-audit', '--no-fund', '--silent', `${wanted}@${version}`], {
    cwd: prefix,
    env: { ...process.env, PATH: path },
    stdio: ['ignore', 'inherit', 'inherit'],
  });
}
