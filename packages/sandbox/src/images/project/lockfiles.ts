// The lockfiles of a project: a reason to build again also where a `.dockerignore` leaves them out.

import { constants } from 'node:fs';
import { join } from 'node:path';
import { readBoundedFile } from '../../lifecycle/private-file.ts';
import { sha256 } from './checksum.ts';

const NAMES = [
  'package-lock.json',
  'npm-shrinkwrap.json',
  'yarn.lock',
  'pnpm-lock.yaml',
  'bun.lock',
  'requirements.txt',
  'poetry.lock',
  'Pipfile.lock',
  'uv.lock',
  'go.sum',
  'Cargo.lock',
  'packages.lock.json',
  'Gemfile.lock',
  'composer.lock',
];
const MAX_BYTES = 64 * 1024 ** 2;

/** The lockfiles at the top of a project, as text that is another one when any of them is. */
export async function lockfilesOf(root: string, hashes: ReadonlyMap<string, string>): Promise<string> {
  const found = await Promise.all(
    NAMES.map(async name => [name, hashes.get(name) ?? (await hashOf(join(root, name)))]),
  );
  return JSON.stringify(found.filter(([, hash]) => hash !== null));
}

// One that is a link, or not there, is none.
async function hashOf(file: string): Promise<string | null> {
  const read = await readBoundedFile(file, MAX_BYTES, constants.O_NOFOLLOW).catch(() => null);
  return read ? sha256(`${read.size} ${read.bytes.toString('latin1')}`) : null;
}
