// Checksum of everything that a project image is made of, lockfiles included.

import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { join } from 'node:path';
import type { ProjectInput } from '../../contract/project-image.ts';
import type { ContextEntry } from './context.ts';
import { readBoundedFile } from '../../lifecycle/directories.ts';

/** Every input, as bytes that are equal exactly where the input is. */
export type Inputs = Readonly<Record<ProjectInput, string>>;

/** The checksum of all inputs, and one of each. */
export interface Checksum {
  readonly whole: string;
  readonly parts: Readonly<Record<ProjectInput, string>>;
}

const SHORT = 16;

/** The inputs, in the order in which they are written down. */
const NAMES: readonly ProjectInput[] = ['base', 'template', 'install', 'ignore', 'lockfiles', 'context'];

/** Sums the inputs up. */
export function checksumOf(inputs: Inputs): Checksum {
  const parts = {
    base: sha256(inputs.base),
    template: sha256(inputs.template),
    install: sha256(inputs.install),
    ignore: sha256(inputs.ignore),
    lockfiles: sha256(inputs.lockfiles),
    context: sha256(inputs.context),
  };
  return { whole: sha256(NAMES.map(name => `${name} ${parts[name]}\n`).join('')), parts };
}

/** The image’s files as text: path, kind, mode and content of each file. */
export function manifestOf(entries: readonly ContextEntry[], hashes: ReadonlyMap<string, string>): string {
  return entries
    .map(entry => JSON.stringify([entry.path, entry.kind, entry.mode, entry.target ?? hashes.get(entry.path) ?? '']))
    .join('\n');
}

/** The parts as a label has them. */
export function partsText({ parts }: Checksum): string {
  return NAMES.map(name => `${name}=${parts[name].slice(0, SHORT)}`).join(' ');
}

/** Which inputs are other ones than a label says; all of them where it says nothing. */
export function changedSince(label: string | undefined, { parts }: Checksum): ProjectInput[] {
  const before = new Map((label ?? '').split(' ').map(part => [part.split('=')[0] ?? '', part.split('=')[1]]));
  return NAMES.filter(name => before.get(name) !== parts[name].slice(0, SHORT));
}

/** What stands for the install command where there is none. */
export const NO_INSTALL = 'null';

/** Whether a label says that an install command had a part in an image. */
export function wasInstalled(label: string | undefined): boolean {
  const found = / install=([0-9a-f]+)/.exec(` ${label ?? ''}`)?.[1];
  return found !== undefined && found !== sha256(NO_INSTALL).slice(0, SHORT);
}

/** The hash of a text. */
export function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** The names of lockfiles. */
export const LOCKFILES = [
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
    LOCKFILES.map(async name => [name, hashes.get(name) ?? (await hashOf(join(root, name)))]),
  );
  return JSON.stringify(found.filter(([, hash]) => hash !== null));
}

// One that is a link, or not there, is none.
async function hashOf(file: string): Promise<string | null> {
  const read = await readBoundedFile(file, MAX_BYTES, constants.O_NOFOLLOW).catch(() => null);
  return read ? sha256(`${read.size} ${read.bytes.toString('latin1')}`) : null;
}
