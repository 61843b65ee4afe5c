// Downloads from a sandbox are scanned like the files that a run leaves.

import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { riskyArrivals } from './arrival.ts';

let top: string;
beforeEach(async () => {
  top = await mkdtemp('/var/tmp/acode-arrivals-');
});
afterEach(async () => rm(top, { recursive: true, force: true }));

const found = async (path: string): Promise<string[]> =>
  (await riskyArrivals(join(top, path), Date.now() - 60_000)).map(one => `${one.kind} ${one.path}`).sort();

describe('what came out of a sandbox', () => {
  it('is named where tools here might execute it, and not where they would not', async () => {
    await mkdir(join(top, 'copy', '.git', 'hooks'), { recursive: true });
    await mkdir(join(top, 'copy', '.vscode'));
    await writeFile(join(top, 'copy', '.git', 'config'), 'x');
    await writeFile(join(top, 'copy', '.vscode', 'tasks.json'), 'x');
    await writeFile(join(top, 'copy', 'notes.txt'), 'x');
    expect(await found('copy')).toEqual(['editor-config .vscode/tasks.json', 'git-repository .git']);
    expect(await found('copy/notes.txt')).toEqual([]);
  });

  it('is found by way of a link, and said not to be scanned where it cannot be', async () => {
    await mkdir(join(top, 'real', 'copy', '.vscode'), { recursive: true });
    await writeFile(join(top, 'real', 'copy', '.vscode', 'tasks.json'), 'x');
    await symlink('real', join(top, 'link'));
    await symlink('real/copy', join(top, 'direct'));
    expect(await found('link/copy')).toEqual(['editor-config .vscode/tasks.json']);
    expect(await found('direct')).toEqual(['editor-config .vscode/tasks.json']);
    expect(await found('absent')).toEqual(['scan-incomplete .']);
  });

  it('is named by what it is called itself, directory or file', async () => {
    await mkdir(join(top, '.git'));
    await writeFile(join(top, '.git', 'config'), 'x');
    await writeFile(join(top, 'Makefile'), 'x');
    expect(await found('.git')).toContain('git-repository .');
    expect(await found('Makefile')).toEqual(['build-file .']);
  });
});
