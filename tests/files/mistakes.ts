// Every call on files with everything that can be wrong about a path, for node’s own file system and for a sandbox’s alike.

import { constants } from 'node:fs';

/** What node’s file system and a sandbox’s have in common. */
export interface EitherFiles {
  readFile(path: string): Promise<Buffer>;
  writeFile(path: string, data: string, options?: { mode?: number; flag?: 'w' | 'a' | 'wx' }): Promise<void>;
  appendFile(path: string, data: string, options?: { mode?: number }): Promise<void>;
  readdir(path: string): Promise<string[]>;
  readdir(path: string, options: { recursive: boolean }): Promise<string[]>;
  readdir(path: string, options: { recursive?: boolean; withFileTypes: true }): Promise<object[]>;
  mkdir(path: string, options?: number | { recursive?: boolean; mode?: number }): Promise<unknown>;
  rm(path: string, options?: { recursive?: boolean; force?: boolean }): Promise<void>;
  rmdir(path: string): Promise<void>;
  unlink(path: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  copyFile(from: string, to: string): Promise<void>;
  stat(path: string): Promise<object>;
  lstat(path: string): Promise<object>;
  access(path: string, mode?: number): Promise<void>;
  chmod(path: string, mode: number): Promise<void>;
  readlink(path: string): Promise<string>;
  symlink(target: string, path: string): Promise<void>;
  truncate(path: string, length?: number): Promise<void>;
  realpath(path: string): Promise<string>;
}

/** Makes, in the directory that is its argument, what the paths below name. */
export const GROUND = `
cd "$1" || exit 1
umask 022
mkdir full full/below empty unwritable unwritable/full locked unreadable
echo content >file
echo content >full/entry
echo content >unwritable/entry
echo content >unwritable/full/entry
echo content >locked/entry
echo content >unreadable/entry
echo content >secret
echo content >readonly
echo content >-dash
echo content >"quote's \\" and \\$(dollar)"
echo content >"$(printf 'two\\nlines: Permission denied')"
ln -s loop loop
ln -s nothing dangling
ln -s file link
ln -s full way
chmod 0555 unwritable unwritable/full
chmod 0000 locked secret
chmod 0333 unreadable
chmod 0444 readonly
`;

/** Gives everything back to its owner, so that it can be removed. */
export const CLEARED = 'chmod -R u+rwX "$1"';

/** The paths, by what is wrong about them. */
export const PATHS: Readonly<Record<string, string>> = {
  'a file': 'file',
  'a directory': 'full',
  'an empty directory': 'empty',
  nothing: 'missing',
  'something in nothing': 'missing/x',
  'something in a file': 'file/x',
  'a file as if it were a directory': 'file/',
  'nothing as if it were a directory': 'missing/',
  'a link': 'link',
  'a link to a directory': 'way',
  'a link to nothing': 'dangling',
  'a link to itself': 'loop',
  'something behind a link to itself': 'loop/x',
  'a name that is too long': 'n'.repeat(300),
  'a path that is too long': 'full/'.repeat(1000),
  'a file nobody may read': 'secret',
  'a file nobody may write': 'readonly',
  'nothing in a directory nobody may write': 'unwritable/new',
  'a file in a directory nobody may write': 'unwritable/entry',
  'a directory in a directory nobody may write': 'unwritable/full',
  'a file in a directory nobody may enter': 'locked/entry',
  'a directory nobody may enter': 'locked',
  'a directory nobody may list': 'unreadable',
  'a directory by its dot': 'empty/.',
  'a directory by two dots': 'full/below/..',
  'a name with a dash': '-dash',
  'a name with quotes': `quote's " and $(dollar)`,
  'a name with two lines': 'two\nlines: Permission denied',
};

/** One call, on a path of the table; `root` is where the ground is. */
export type Act = (files: EitherFiles, path: string, root: string) => Promise<unknown>;

/** The calls. */
export const ACTS: Readonly<Record<string, Act>> = {
  readFile: (files, path) => files.readFile(path),
  writeFile: (files, path) => files.writeFile(path, 'new'),
  'writeFile with a mode': (files, path) => files.writeFile(path, 'new', { mode: 0o751 }),
  'writeFile of what is not there': (files, path) => files.writeFile(path, 'new', { flag: 'wx' }),
  'writeFile of what is not there with a mode': (files, path) =>
    files.writeFile(path, 'new', { flag: 'wx', mode: 0o751 }),
  'writeFile at the end': (files, path) => files.writeFile(path, 'more', { flag: 'a' }),
  appendFile: (files, path) => files.appendFile(path, 'more'),
  'appendFile with a mode': (files, path) => files.appendFile(path, 'more', { mode: 0o751 }),
  readdir: (files, path) => files.readdir(path),
  'readdir with types': (files, path) => files.readdir(path, { withFileTypes: true }),
  'readdir of everything': (files, path) => files.readdir(path, { recursive: true }),
  'readdir of everything with types': (files, path) => files.readdir(path, { recursive: true, withFileTypes: true }),
  mkdir: (files, path) => files.mkdir(path),
  'mkdir with a mode': (files, path) => files.mkdir(path, { mode: 0o710 }),
  'mkdir with a mode alone': (files, path) => files.mkdir(path, 0o700),
  'mkdir with parents': (files, path) => files.mkdir(path, { recursive: true }).then(() => null),
  'mkdir deeper': (files, path) => files.mkdir(`${path}/one/two`, { recursive: true }).then(() => null),
  rm: (files, path) => files.rm(path),
  'rm by force': (files, path) => files.rm(path, { force: true }),
  'rm of everything': (files, path) => files.rm(path, { recursive: true }),
  'rm of everything by force': (files, path) => files.rm(path, { recursive: true, force: true }),
  rmdir: (files, path) => files.rmdir(path),
  unlink: (files, path) => files.unlink(path),
  rename: (files, path, root) => files.rename(path, `${root}/renamed`),
  'rename of a file to it': (files, path, root) => files.rename(`${root}/-dash`, path),
  'rename of a directory to it': (files, path, root) => files.rename(`${root}/full`, path),
  'rename into nothing': (files, path, root) => files.rename(path, `${root}/missing/x`),
  'rename into itself': (files, path) => files.rename(path, `${path}/x`),
  'rename to itself': (files, path) => files.rename(path, path),
  copyFile: (files, path, root) => files.copyFile(path, `${root}/copied`),
  'copyFile to it': (files, path, root) => files.copyFile(`${root}/-dash`, path),
  stat: (files, path) => files.stat(path),
  lstat: (files, path) => files.lstat(path),
  access: (files, path) => files.access(path),
  'access to read': (files, path) => files.access(path, constants.R_OK),
  'access to write': (files, path) => files.access(path, constants.W_OK),
  'access to run': (files, path) => files.access(path, constants.X_OK),
  chmod: (files, path) => files.chmod(path, 0o700),
  readlink: (files, path) => files.readlink(path),
  symlink: (files, path) => files.symlink('anything', path),
  truncate: (files, path) => files.truncate(path, 3),
  realpath: (files, path) => files.realpath(path),
};

/** What came of a call, with the ground’s own path left out: a value, or an error in all that node tells of it. */
export async function outcomeOf(act: Act, files: EitherFiles, path: string, root: string): Promise<unknown> {
  try {
    return plain(await act(files, `${root}/${path}`, root), root);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const { code, errno, syscall } = error as NodeJS.ErrnoException;
    return { code, errno, syscall, message: error.message.replaceAll(root, '') };
  }
}

/** Calls whose error names something below the path that was asked for, which is not told from outside. */
export const NAMES_ANOTHER = /everything|deeper|parents/;

// Only what two file systems can have in common.
function plain(value: unknown, root: string): unknown {
  if (Buffer.isBuffer(value)) return value.toString();
  if (typeof value === 'string') return value.replace(root, '');
  if (Array.isArray(value))
    return value
      .map(entry => plain(entry, root))
      .sort((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1));
  if (typeof value !== 'object' || value === null || !('isFile' in value)) return null;
  const facts = value as unknown as Record<string, unknown>;
  const entry = value as { isFile(): boolean; isDirectory(): boolean; isSymbolicLink(): boolean };
  const kind = { file: entry.isFile(), directory: entry.isDirectory(), link: entry.isSymbolicLink() };
  if ('name' in facts) return { ...kind, name: facts['name'], parent: String(facts['parentPath']).replace(root, '') };
  // What a directory itself takes, and how its links are counted, each file system decides for itself.
  const [size, nlink] = entry.isDirectory() ? [null, null] : [facts['size'], facts['nlink']];
  return { ...kind, size, nlink, mode: facts['mode'] };
}
