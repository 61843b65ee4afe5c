import { execFileSync } from 'node:child_process';
import { appendFileSync, chmodSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { settleBase } from './base.ts';
import { ForkDiff } from './diff.ts';
import type { ForkDiffEntry } from './diff.ts';
import { home, useLayers, write } from './layered.test.support.ts';
import { makeMarks } from './marks.ts';
import { ForkRisks } from './risk.ts';

const signal = new AbortController().signal;

useLayers();

function open(): Promise<ForkDiff> {
  const layers = { workspace: join(home, 'w'), uppers: ['1', '2'].map(one => join(home, one)), masked: [] };
  return ForkDiff.open(layers, { scratch: home, signal, base: join(home, 'base') });
}

async function risks(below = ''): Promise<string[]> {
  using diff = await open();
  const found = new ForkRisks(diff.layers);
  for await (const entry of diff) if (entry.change.path.startsWith(below)) found.add(entry);
  return found.finish().map(({ kind, path }) => `${kind} ${path}`);
}

describe('risky changes of a fork', () => {
  // Each with what the workspace has, what a layer has, and what is reported. Without the layer nothing is.
  const table: readonly (readonly [
    what: string,
    workspace: Readonly<Record<string, string>>,
    layer: Readonly<Record<string, string>>,
    found: readonly string[],
  ])[] = [
    ['ordinary files', { 'src/a.ts': '1' }, { 'src/a.ts': '2', 'docs/b.md': '3', 'src/.keep': '' }, []],
    ['a git hook', { '.git/config': '' }, { '.git/hooks/pre-commit': 'x' }, ['git-repository .git']],
    ['a nested repository', {}, { 'sub/.git/config': '[core]' }, ['git-repository sub/.git']],
    ['a bare repository', {}, { 'b/HEAD': 'ref', 'b/config': '[core]' }, ['git-repository b']],
    ['one that becomes bare', { 'b/config': '' }, { 'b/HEAD': 'ref' }, ['git-repository b']],
    ['one split by commondir', {}, { 'b/HEAD': 'r', 'b/commondir': '../c' }, ['git-repository b']],
    ['the top as a bare repository', {}, { HEAD: 'r', config: '' }, ['git-repository .']],
    ['a .git file', {}, { 'sub/.git': 'gitdir: ../x\n' }, ['git-repository sub/.git']],
    [
      'what a .git file of the host leads to',
      { '.git': 'gitdir: mod/x\n' },
      { 'mod/x/hooks/h': '1', 'mod/y': '1' },
      ['git-repository mod/x/hooks/h'],
    ],
    [
      'names that tools obey',
      {},
      {
        'package.json': '{}',
        '.github/workflows/x.yml': '1',
        '.vscode/tasks.json': '1',
        '.envrc': '1',
        'AGENTS.md': '1',
      },
      [
        'shell-startup .envrc',
        'ci-file .github/workflows/x.yml',
        'editor-config .vscode/tasks.json',
        'agent-config AGENTS.md',
        'package-scripts package.json',
      ],
    ],
    [
      'installed packages',
      {},
      { 'node_modules/x/package.json': '{}', 'node_modules/.bin/git': 'x', 'node_modules/x/.git/config': '' },
      ['shadowed-program node_modules/.bin/git', 'git-repository node_modules/x/.git'],
    ],
    ['a virtual environment', { 'e/pyvenv.cfg': '' }, { 'e/bin/ls': 'x' }, ['shadowed-program e/bin']],
    [
      'links out',
      { 'in.txt': '' },
      { a: '→/etc/passwd', b: '→../../x', c: '→in.txt', 'd/e': '→../in.txt', f: '→a' },
      ['symlink-out a', 'symlink-out b', 'symlink-out f'],
    ],
    [
      'a link with the name of a risky directory',
      {},
      { '.githooks': '→g', 'g/pre-commit': 'x' },
      ['git-settings .githooks', 'git-settings g/pre-commit'],
    ],
    ['what such a link of the host leads to', { '.githooks': '→g' }, { 'g/x': '1' }, ['git-settings g/x']],
    [
      'what a part of one leads to',
      { '.github': '→gh' },
      { 'gh/workflows/x': '1', 'gh/y': '' },
      ['ci-file gh/workflows/x'],
    ],
    [
      'what the configuration of the host’s repository names',
      { '.git/config': '[core]\n\thooksPath = tools/hooks\n[filter "x"]\n\tclean = sh tools/clean.sh\n' },
      { 'tools/hooks/pre-commit': 'x', 'tools/clean.sh': 'x', 'tools/other': 'x' },
      ['git-settings tools/clean.sh', 'git-settings tools/hooks/pre-commit'],
    ],
    [
      'what a configuration that the fork changed names',
      { '.git/config': '' },
      { '.git/config': '[core]\n\thooksPath = h\n', 'h/pre-push': 'x' },
      ['git-repository .git', 'git-settings h/pre-push'],
    ],
  ];

  it.each(table)('%s', async (_, workspace, layer, found) => {
    write('w', workspace);
    expect(await risks()).toEqual([]);
    write('1', layer);
    expect(await risks()).toEqual(found);
  });

  it('setuid files, FIFOs and deletions in a repository are among them', async () => {
    write('w', { '.git/config': '', 'a.txt': '', tool: '' });
    write('1', { tool: '' });
    chmodSync(join(home, '1/tool'), 0o4755);
    execFileSync('mkfifo', [join(home, '1/.env')]);
    mkdirSync(join(home, '1/.git'));
    await makeMarks(
      join(home, '1'),
      [
        { path: '.git/config', kind: 'whiteout', mode: 0 },
        { path: 'a.txt', kind: 'whiteout', mode: 0 },
      ],
      {
        scratch: home,
        signal,
      },
    );
    expect(await risks()).toEqual(['special-file .env', 'git-repository .git', 'privileged-file tool']);
  });

  it('only those of the chosen changes are', async () => {
    write('2', { 'package.json': '{}', 'src/a': '1', 'src/Makefile': '' });
    expect(await risks('src')).toEqual(['build-file src/Makefile']);
  });

  it('links to one directory cannot multiply the work', async () => {
    const many = Array.from({ length: 300 }, (_, at) => at);
    write('1', Object.fromEntries(many.map(at => [`t/${at}.txt`, ''])));
    write('1', Object.fromEntries(many.map(at => [`l/${at}/.vscode`, '→../../t'])));
    const found = await risks();
    expect(found.filter(one => one.startsWith('editor-config'))).toHaveLength(600);
  });
});

describe('changes that were applied', () => {
  async function listed(): Promise<ForkDiffEntry[]> {
    using diff = await open();
    const entries: ForkDiffEntry[] = [];
    for await (const entry of diff) entries.push(entry);
    return entries;
  }
  const paths = async (): Promise<string[]> =>
    (await listed()).map(({ change: { change, path } }) => `${change} ${path}`);

  it('are not listed again, also if the workspace changes at their paths; the others are', async () => {
    write('w', { 'a.txt': '1', gone: '', 'd/x': '', link: '→a.txt' });
    write('1', { 'a.txt': '2', 'new/b.txt': '3', 'new/c.txt': '4', link: '→gone', 'rest.txt': '' });
    await makeMarks(
      join(home, '1'),
      [
        { path: 'gone', kind: 'whiteout', mode: 0 },
        { path: 'd', kind: 'whiteout', mode: 0 },
      ],
      {
        scratch: home,
        signal,
      },
    );
    const all = await listed();
    expect(all).toHaveLength(9);
    const chosen = all.filter(({ change: { path } }) => path !== 'rest.txt' && path !== 'new/c.txt');
    settleBase(join(home, 'base'), {
      workspace: join(home, 'w'),
      layer: 1,
      atMs: Date.now(),
      isLive: false,
      paths: chosen.map(({ bytes: path, change, mode, target, source }) => ({
        path,
        after:
          change.change === 'deleted'
            ? null
            : {
                kind: change.kind,
                mode: mode ?? 0,
                size: change.bytes?.after ?? 0,
                link: target,
                file: change.kind === 'file' ? source : null,
              },
      })),
    });
    const rest = ['added new/c.txt', 'added rest.txt'];
    expect(await paths()).toEqual(rest);
    appendFileSync(join(home, 'w/a.txt'), 'edited on the host');
    expect(await paths()).toEqual(rest);
    // A later command changes one of them again: that is a change of its own.
    write('2', { 'a.txt': '5' });
    expect(await paths()).toEqual(['changed a.txt', ...rest]);
    expect(readFileSync(join(home, 'base/1'), 'utf8')).toBe('2');
  });
});
