// A project that tests of forks change, and the fingerprint that shows whether the host’s tree was.

import { createHash } from 'node:crypto';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

/** Everything of a tree: names, kinds, modes, times and contents. */
export function fingerprint(root: string): string {
  const hash = createHash('sha256');
  const visit = (path: string): void => {
    const { mode, mtimeMs, ino } = lstatSync(path);
    hash.update(`${path}\0${mode}\0${mtimeMs}\0${ino}\0`);
    if ((mode & 0o170000) === 0o120000) hash.update(readlinkSync(path));
    else if ((mode & 0o170000) === 0o040000) for (const name of readdirSync(path).sort()) visit(join(path, name));
    else hash.update(readFileSync(path));
  };
  visit(root);
  return hash.digest('hex');
}

/** A small project with a repository, a link and a program. */
export function project(root: string): void {
  mkdirSync(join(root, '.git/hooks'), { recursive: true });
  mkdirSync(join(root, 'src/deep'), { recursive: true });
  writeFileSync(join(root, '.git/config'), '[core]\n');
  writeFileSync(join(root, 'a.txt'), 'one\n');
  writeFileSync(join(root, 'src/deep/b.txt'), 'two\n');
  writeFileSync(join(root, 'run.sh'), 'echo hi\n');
  chmodSync(join(root, 'run.sh'), 0o755);
  symlinkSync('a.txt', join(root, 'link'));
}

/** A script that changes, removes, replaces and plants what it can. */
export const EVERYTHING = [
  'echo more >> a.txt; rm -r src; mkdir src; echo new > src/c; chmod 600 run.sh; rm link; ln -s /etc/passwd link',
  'echo evil > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout; echo "[alias] x = !sh" >> .git/config',
  'mkfifo pipe; touch -d 2001-01-01 a.txt; ln a.txt hard; mkdir -p .vscode .agent; echo x > .vscode/tasks.json',
].join('; ');
