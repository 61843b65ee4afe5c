// Git's index, read without git: files that real git wrote, and bytes that nobody meant to be an index.

import { execFileSync } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fromText } from '../directory-look.ts';
import { findRepository, findSubmodule, readGitIndex } from './git-index.ts';
import type { GitIndex } from './git-index.ts';

const base = realpathSync(mkdtempSync(join(tmpdir(), 'acode-git-index-')));
afterAll(() => rmSync(base, { recursive: true, force: true }));

let number = 0;
const ENVIRONMENT = {
  ...process.env,
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_CONFIG_SYSTEM: '/dev/null',
  GIT_AUTHOR_NAME: 'a',
  GIT_AUTHOR_EMAIL: 'a@b.invalid',
  GIT_COMMITTER_NAME: 'a',
  GIT_COMMITTER_EMAIL: 'a@b.invalid',
};

function git(cwd: string, ...words: string[]): string {
  const options = ['-c', 'protocol.file.allow=always', '-c', 'init.defaultBranch=main'];
  return execFileSync('git', [...options, ...words], { cwd, env: ENVIRONMENT, encoding: 'latin1', stdio: 'pipe' });
}

function put(root: string, path: string, content = path): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), content);
}

const LONG = 'n'.repeat(255);
const FILES = ['.env', 'a', 'a.b/c', 'a/b/c/d/e', 'a b/c,d:e\\f', 'new\nline/x\ty', `deep/${LONG}`, `${LONG}/é/ü`, 'z'];

function repository(paths: readonly string[], ...init: string[]): string {
  number += 1;
  const root = join(base, `repository-${number}`);
  mkdirSync(root);
  git(root, 'init', '--quiet', ...init);
  for (const path of paths) put(root, path === 'a' ? 'plain' : path);
  git(root, 'add', '--all');
  return root;
}

const everything = () => true;

async function read(gitdir: string, request: Partial<Parameters<typeof readGitIndex>[1]> = {}): Promise<GitIndex> {
  const answer = await readGitIndex(gitdir, { keeps: everything, ...request });
  if ('fault' in answer) throw new Error(answer.fault);
  return answer.index;
}

const fault = async (gitdir: string, request = {}): Promise<string> => {
  const answer = await readGitIndex(gitdir, { keeps: everything, ...request });
  return 'fault' in answer ? answer.fault : 'none';
};

function listed(root: string, ...options: string[]): string[] {
  return git(root, 'ls-files', '-z', ...options)
    .split('\0')
    .filter(Boolean)
    .sort();
}

function directoriesOf(paths: readonly string[]): string[] {
  const all = new Set(['']);
  for (const path of paths)
    for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1)) all.add(path.slice(0, at));
  return [...all].sort();
}

describe('an index that git wrote', () => {
  it.each([2, 3, 4])('of version %i gives the paths that git lists, and their directories', async version => {
    const root = repository(FILES);
    git(root, 'update-index', '--index-version', String(version));
    if (version === 3) {
      put(root, 'later/on');
      git(root, 'add', '--intent-to-add', 'later/on');
    }
    const index = await read(join(root, '.git'));
    const paths = listed(root);
    expect(index.version).toBe(version);
    expect([...index.tracked].sort()).toEqual(paths);
    expect([...index.directories].sort()).toEqual(directoriesOf(paths));
    expect(index).toMatchObject({ entries: paths.length, submodules: [], sparse: [], isSplit: false });
  });

  it('is read in pieces, whatever lies on their borders', async () => {
    const paths = Array.from({ length: 20_000 }, (_, at) => `d${at % 700}/${'x'.repeat(at % 90)}${at}`);
    const root = repository([]);
    const input = paths.map(path => `100644 e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\t${path}\n`).join('');
    execFileSync('git', ['update-index', '--index-info'], { cwd: root, env: ENVIRONMENT, input });
    for (const version of [2, 4]) {
      git(root, 'update-index', '--index-version', String(version));
      const index = await read(join(root, '.git'));
      expect(index.tracked.size).toBe(paths.length);
      expect(index.directories.size).toBe(701);
      expect(paths.every(path => index.tracked.has(path))).toBe(true);
    }
  });

  it('that is split has the entries of the shared one, without those that were removed since', async () => {
    const root = repository(FILES);
    git(root, 'commit', '--quiet', '-m', 'x');
    git(root, 'update-index', '--split-index');
    expect((await read(join(root, '.git'))).isSplit).toBe(true);
    git(root, 'rm', '--quiet', '--cached', '.env', 'z');
    put(root, 'plain', 'other content');
    put(root, 'fresh/one');
    git(root, 'add', 'plain', 'fresh/one');
    const index = await read(join(root, '.git'));
    expect(index.isSplit).toBe(true);
    expect([...index.tracked].sort()).toEqual(listed(root));
    expect(index.tracked.has('.env')).toBe(false);
    expect(index.tracked.has('fresh/one')).toBe(true);
    // Without the shared one, nothing is believed.
    const shared = git(root, 'rev-parse', '--shared-index-path').trim();
    renameSync(join(root, shared), join(base, 'elsewhere'));
    expect(await fault(join(root, '.git'))).toBe('damaged');
  });

  it('that is sparse names the directories that it does not list', async () => {
    const root = repository(['top', 'in/x', 'in/y', 'out/a/b', 'out/c', 'also/d']);
    git(root, 'commit', '--quiet', '-m', 'x');
    git(root, 'sparse-checkout', 'set', '--cone', '--sparse-index', 'in');
    const index = await read(join(root, '.git'));
    expect([...index.sparse].sort()).toEqual(['also', 'out']);
    expect([...index.tracked].sort()).toEqual(['in/x', 'in/y', 'top']);
    expect([...index.directories].sort()).toEqual(['', 'in']);
  });

  it('of a SHA-256 repository is read by its longer ids', async () => {
    const root = repository(FILES, '--object-format=sha256');
    const found = findRepository(root);
    expect(found).toMatchObject({ hashBytes: 32, prefix: '' });
    const index = await read(join(root, '.git'), { hashBytes: 32 });
    expect([...index.tracked].sort()).toEqual(listed(root));
    expect(await fault(join(root, '.git'))).not.toBe('none');
  });

  it('gives only what is below the workspace, relative to it, where the repository is above', async () => {
    const root = repository(['app/.env', 'app/src/x', 'apple/y', 'z']);
    const found = findRepository(join(root, 'app'));
    expect(found).toMatchObject({ gitdir: join(root, '.git'), prefix: 'app', isProtected: true });
    const index = await read(join(root, '.git'), { prefix: found?.prefix ?? '' });
    expect([...index.tracked].sort()).toEqual(['.env', 'src/x']);
    expect([...index.directories].sort()).toEqual(['', 'src']);
  });

  it('keeps only the names that are asked for', async () => {
    const root = repository(FILES);
    const index = await read(join(root, '.git'), { keeps: name => name === '.env' });
    expect([...index.tracked]).toEqual(['.env']);
  });

  it('in conflict lists each path once', async () => {
    const root = repository(['x']);
    const blob = git(root, 'hash-object', '-w', 'x').trim();
    const input = [1, 2, 3].map(stage => `100644 ${blob} ${stage}\tboth/x\n`).join('');
    execFileSync('git', ['update-index', '--index-info'], { cwd: root, env: ENVIRONMENT, input });
    expect([...(await read(join(root, '.git'))).tracked].sort()).toEqual(['both/x', 'x']);
  });
});

describe('the repository of a workspace', () => {
  it('of a linked worktree is found through its .git file, if that directory names it in turn', async () => {
    const main = repository(['main']);
    git(main, 'commit', '--quiet', '-m', 'x');
    const linked = join(base, 'linked');
    git(main, 'worktree', 'add', '--quiet', linked);
    put(linked, 'only/here');
    git(linked, 'add', '--all');
    const found = findRepository(linked);
    expect(found).toMatchObject({ gitdir: join(main, '.git/worktrees/linked'), isProtected: true, hashBytes: 20 });
    expect([...(await read(found?.gitdir ?? '')).tracked].sort()).toEqual(['main', 'only/here']);
    // Another directory that claims the same is not that worktree.
    const thief = join(base, 'thief');
    mkdirSync(thief);
    writeFileSync(join(thief, '.git'), readFileSync(join(linked, '.git')));
    expect(findRepository(thief)).toBeNull();
  });

  it('of a submodule is protected in the repository around it, and only for its own directory', async () => {
    const inner = repository(['.env', 'src/inner']);
    git(inner, 'commit', '--quiet', '-m', 'x');
    const outer = repository(['top', 'other/.env']);
    git(outer, 'submodule', '--quiet', 'add', inner, 'libs/inner');
    const index = await read(join(outer, '.git'));
    expect(index.submodules).toEqual(['libs/inner']);
    expect(index.tracked.has('libs/inner')).toBe(false);
    const repo = findRepository(outer);
    if (!repo) throw new Error('no repository');
    const path = join(outer, 'libs/inner');
    const sub = findSubmodule(repo, outer, path);
    expect(sub).toMatchObject({ gitdir: join(outer, '.git/modules/libs/inner'), isProtected: true });
    expect([...(await read(sub?.gitdir ?? '')).tracked].sort()).toEqual(['.env', 'src/inner']);
    // A command cannot write the index in .git, but it can point a directory to it.
    writeFileSync(join(outer, 'other/.git'), `gitdir: ../.git/modules/libs/inner\n`);
    expect(findSubmodule(repo, outer, join(outer, 'other'))).toBeNull();
    // Nor is a repository that lies in the submodule itself believed.
    rmSync(join(path, '.git'));
    git(path, 'init', '--quiet');
    expect(findSubmodule(repo, outer, path)).toMatchObject({ isProtected: false });
  });

  it('is none where .git is a link, a broken file or missing', () => {
    for (const [name, make] of Object.entries({
      link: (at: string) => symlinkSync('/', join(at, '.git')),
      text: (at: string) => writeFileSync(join(at, '.git'), 'gitdir: /nowhere/worktrees/x\n'),
      self: (at: string) => writeFileSync(join(at, '.git'), 'gitdir: .git\n'),
      empty: (at: string) => writeFileSync(join(at, '.git'), ''),
    })) {
      const at = join(base, `none-${name}`);
      mkdirSync(at);
      make(at);
      expect([name, findRepository(at)]).toEqual([name, null]);
    }
  });

  it('that is not at the top can be written from inside', () => {
    const root = join(base, 'deep-git');
    mkdirSync(join(root, 'a'), { recursive: true });
    git(root, 'init', '--quiet', '--bare', 'a/b.git');
    writeFileSync(join(root, '.git'), 'gitdir: a/b.git\n');
    expect(findRepository(root)).toMatchObject({ isProtected: false });
  });
});

describe('bytes that are not an index', () => {
  const place = join(base, 'hostile');
  const samples: Buffer[] = [];
  beforeAll(() => {
    mkdirSync(place);
    for (const version of [2, 3, 4]) {
      const root = repository(FILES);
      git(root, 'commit', '--quiet', '-m', 'x');
      git(root, 'update-index', '--index-version', String(version));
      if (version === 4) {
        git(root, 'update-index', '--split-index');
        git(root, 'rm', '--quiet', '--cached', '.env');
        writeFileSync(join(place, 'shared-name'), git(root, 'rev-parse', '--shared-index-path').trim().slice(5));
        const shared = git(root, 'rev-parse', '--shared-index-path').trim();
        writeFileSync(join(place, shared.slice(5)), readFileSync(join(root, shared)));
      }
      samples.push(readFileSync(join(root, '.git/index')));
    }
  });

  const asked = async (content: Buffer, request = {}): Promise<string> => {
    writeFileSync(join(place, 'index'), content);
    return fault(place, request);
  };

  it('are answered with a fault: absent, a link, a directory, empty, too large', async () => {
    expect(await fault(join(base, 'nowhere'))).toBe('absent');
    const odd = join(base, 'odd');
    mkdirSync(join(odd, 'index'), { recursive: true });
    expect(await fault(odd)).toBe('unreadable');
    rmSync(join(odd, 'index'), { recursive: true });
    symlinkSync(join(place, 'index'), join(odd, 'index'));
    expect(await fault(odd)).toBe('unreadable');
    expect(await asked(Buffer.alloc(0))).toBe('damaged');
    expect(await asked(samples[0] ?? Buffer.alloc(0), { maxBytes: 100 })).toBe('too-large');
    rmSync(join(odd, 'index'));
    execFileSync('mkfifo', [join(odd, 'index')]);
    expect(await fault(odd)).toBe('unreadable');
  });

  const header = (version: number, count: number): Buffer => {
    const bytes = Buffer.alloc(12);
    bytes.write('DIRC');
    bytes.writeUInt32BE(version, 4);
    bytes.writeUInt32BE(count, 8);
    return bytes;
  };
  const entry = (name: string, mode = 0o100644): Buffer => {
    const bytes = Buffer.alloc((62 + name.length + 8) & ~7);
    bytes.writeUInt32BE(mode, 24);
    bytes.writeUInt16BE(Math.min(name.length, 0xfff), 60);
    bytes.write(name, 62, 'latin1');
    return bytes;
  };
  const packed = (strip: number[], rest: string, length: number): Buffer => {
    const bytes = Buffer.alloc(62);
    bytes.writeUInt32BE(0o100644, 24);
    bytes.writeUInt16BE(length, 60);
    return Buffer.concat([bytes, Buffer.from(strip), Buffer.from(`${rest}\0`)]);
  };
  const extension = (name: string, content: Buffer, size = content.length): Buffer => {
    const head = Buffer.alloc(8);
    head.write(name);
    head.writeUInt32BE(size, 4);
    return Buffer.concat([head, content]);
  };
  const end = Buffer.alloc(20);

  it.each<[string, string, () => Buffer[]]>([
    ['damaged', 'more entries than bytes', () => [header(2, 0xffffffff), entry('a')]],
    ['damaged', 'one entry too few', () => [header(2, 2), entry('a')]],
    ['unsupported', 'a version of the future', () => [header(5, 0)]],
    ['unsupported', 'an extension that must be understood', () => [header(2, 0), extension('abcd', Buffer.alloc(0))]],
    ['damaged', 'an extension longer than the file', () => [header(2, 0), extension('TREE', Buffer.alloc(4), 5000)]],
    ['damaged', 'an extension without its size', () => [header(2, 0), Buffer.from('TREE')]],
    ['damaged', 'a way out', () => [header(2, 1), entry('../x')]],
    ['damaged', 'a way out in the middle', () => [header(2, 1), entry('a/../../x')]],
    ['damaged', 'an absolute path', () => [header(2, 1), entry('/etc/passwd')]],
    ['damaged', 'a path into the git directory', () => [header(2, 1), entry('.git/config')]],
    ['damaged', 'an empty name', () => [header(2, 1), entry('a//b')]],
    ['damaged', 'no name, and no shared index', () => [header(2, 1), entry('')]],
    ['damaged', 'a longer name than any path', () => [header(2, 1), entry('x'.repeat(5000))]],
    ['damaged', 'another length than the name has', () => [header(4, 1), packed([0], 'abc', 4)]],
    ['damaged', 'more removed than there was', () => [header(4, 2), packed([0], 'a', 1), packed([2], 'b', 1)]],
    ['damaged', 'a number without an end', () => [header(4, 1), packed([255, 255, 255, 255, 255], 'a', 1)]],
    [
      'damaged',
      'names that grow without end',
      () => [
        header(4, 3),
        packed([0], 'a/'.repeat(2000), 4000),
        packed([0], 'a/'.repeat(2000), 4095),
        packed([0], 'b', 4095),
      ],
    ],
    ['damaged', 'a sparse directory without a slash', () => [header(2, 1), entry('a', 0o40000)]],
    ['damaged', 'a shared index that is not there', () => [header(2, 0), extension('link', Buffer.alloc(20, 7))]],
    [
      'damaged',
      'two shared indexes',
      () => [header(2, 0), extension('link', Buffer.alloc(20)), extension('link', Buffer.alloc(20))],
    ],
    ['none', 'no shared index after all', () => [header(2, 1), entry('a'), extension('link', Buffer.alloc(20))]],
    ['none', 'nothing', () => [header(2, 0)]],
  ])('are %s: %s', async (expected, _, make) => {
    expect(await asked(Buffer.concat([...make(), end]))).toBe(expected);
  });

  it('are damaged where a shared index names itself, or its bits are too many', async () => {
    const id = Buffer.alloc(20, 0xab);
    const circle = Buffer.concat([header(2, 0), extension('link', id), end]);
    writeFileSync(join(place, `sharedindex.${id.toString('hex')}`), circle);
    expect(await asked(circle)).toBe('damaged');
    const bits = (size: number, words: bigint[]): Buffer => {
      const bytes = Buffer.alloc(8 + words.length * 8 + 4);
      bytes.writeUInt32BE(size, 0);
      bytes.writeUInt32BE(words.length, 4);
      for (const [at, word] of words.entries()) bytes.writeBigUInt64BE(word, 8 + at * 8);
      return bytes;
    };
    writeFileSync(join(place, `sharedindex.${id.toString('hex')}`), Buffer.concat([header(2, 1), entry('a'), end]));
    const link = (packedBits: Buffer): Buffer =>
      Buffer.concat([header(2, 0), extension('link', Buffer.concat([id, packedBits])), end]);
    // A run of four thousand million words, for one bit.
    expect(await asked(link(bits(1, [(0xffffffffn << 1n) | 1n])))).toBe('damaged');
    expect(await asked(link(bits(0xffffffff, [])))).toBe('damaged');
    expect(await asked(link(bits(64, [7n << 33n, 0n])))).toBe('damaged');
    expect(await asked(link(bits(1, [1n << 33n, 1n])))).toBe('none');
    writeFileSync(join(place, 'index'), link(bits(1, [1n << 33n, 1n])));
    expect((await read(place)).tracked.size).toBe(0);
    writeFileSync(join(place, 'index'), link(bits(1, [1n << 33n, 0n])));
    expect([...(await read(place)).tracked]).toEqual(['a']);
  });

  it('never make it throw, hang or give a path that leads out', async () => {
    const factor = Number(process.env['ACODE_PROPERTY_FACTOR'] ?? 1);
    const change = fc.record({
      at: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
      to: fc.oneof(fc.integer({ min: 0, max: 255 }), fc.constantFrom(0, 0x2f, 0x2e, 0xff)),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.nat({ max: 2 }),
        fc.array(change, { minLength: 1, maxLength: 12 }),
        fc.option(fc.double({ min: 0, max: 1, noNaN: true })),
        async (which, changes, cut) => {
          const content = Buffer.from(samples[which] ?? Buffer.alloc(0));
          for (const { at, to } of changes) content[Math.floor(at * content.length)] = to;
          writeFileSync(
            join(place, 'index'),
            cut === null ? content : content.subarray(0, Math.floor(cut * content.length)),
          );
          const answer = await readGitIndex(place, { keeps: everything });
          if ('fault' in answer) return;
          for (const path of [...answer.index.tracked, ...answer.index.directories, ...answer.index.submodules])
            expect(path).not.toMatch(/(?:^|\/)(?:\.\.?|\.git)(?:\/|$)|\/\/|^\/|\0/);
        },
      ),
      { numRuns: 400 * factor },
    );
  });

  it('are not read beyond what is asked for: names outside ASCII stay bytes', async () => {
    const name = fromText('é/ü');
    expect(await asked(Buffer.concat([header(2, 1), entry(name), end]))).toBe('none');
    expect([...(await read(place)).tracked]).toEqual([name]);
  });
});
