import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { build } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ApplyReport, ForkChange } from '../../contract/fork.ts';
import { applyChanges, pendingApply, resumeApply, rollBackApply } from './apply.ts';
import type { ApplyOptions } from './apply.ts';
import type { AppliedChange } from './plan.ts';
import { decide } from './plan.ts';
import type { TreeEntry } from './tree.ts';

const FACTOR = Number(process.env['ACODE_PROPERTY_FACTOR'] ?? 1);
// With a factor the disk is waited for, as a user’s apply does.
const DURABLE = FACTOR > 1;

/** What is at each path: content of a file, or more about it. */
type Tree = Record<string, string | Entry>;
interface Entry {
  readonly content?: string;
  readonly mode?: number;
  readonly link?: string;
  readonly directory?: true;
}

interface Change {
  readonly change: ForkChange;
  readonly after: string;
  readonly base: string | null;
}

const full = (entry: string | Entry): Entry => (typeof entry === 'string' ? { content: entry } : entry);
const kindOf = (entry: Entry): 'link' | 'directory' | 'file' =>
  entry.link !== undefined ? 'link' : entry.directory ? 'directory' : 'file';
const modeOf = (entry: Entry): number => entry.mode ?? (entry.directory ? 0o755 : 0o644);

// With the directories that paths imply.
function complete(tree: Tree): Map<string, Entry> {
  const all = new Map<string, Entry>();
  for (const [path, entry] of Object.entries(tree)) {
    const names = path.split('/');
    for (let at = 1; at < names.length; at += 1)
      if (!all.has(names.slice(0, at).join('/'))) all.set(names.slice(0, at).join('/'), { directory: true });
    all.set(path, full(entry));
  }
  return new Map([...all].sort(([one], [other]) => (one < other ? -1 : 1)));
}

function make(root: string, tree: Tree): void {
  mkdirSync(root, { recursive: true });
  for (const [path, entry] of complete(tree)) {
    const at = join(root, path);
    if (entry.link !== undefined) symlinkSync(entry.link, at);
    else if (entry.directory) mkdirSync(at);
    else writeFileSync(at, entry.content ?? '');
  }
  for (const [path, entry] of [...complete(tree)].reverse())
    if (entry.link === undefined) chmodSync(join(root, path), modeOf(entry));
}

/** Everything below a directory, with modes. */
function listing(root: string, below = ''): Record<string, string> {
  const all: Record<string, string> = {};
  for (const name of readdirSync(join(root, below)).sort()) {
    const path = below === '' ? name : `${below}/${name}`;
    const at = join(root, path);
    const found = lstatSync(at);
    const mode = (found.mode & 0o7777).toString(8);
    if (found.isSymbolicLink()) all[path] = `→ ${readlinkSync(at)}`;
    else if (found.isFile()) all[path] = `${mode} ${readFileSync(at, 'utf8').slice(0, 200)}`;
    else Object.assign(all, { [path]: `${mode}/` }, listing(root, path));
  }
  return all;
}

const expected = (tree: Tree): Record<string, string> =>
  Object.fromEntries(
    [...complete(tree)].map(([path, entry]) => {
      if (entry.link !== undefined) return [path, `→ ${entry.link}`];
      const mode = modeOf(entry).toString(8);
      return [path, entry.directory ? `${mode}/` : `${mode} ${entry.content ?? ''}`];
    }),
  );

/** The differences of two trees, as a diff gives them. */
function changesBetween(directory: string, before: Tree, after: Tree): Change[] {
  const [old, fresh] = [complete(before), complete(after)];
  mkdirSync(directory, { recursive: true });
  const changes: Change[] = [];
  for (const path of [...new Set([...old.keys(), ...fresh.keys()])].sort()) {
    const [was, is] = [old.get(path), fresh.get(path)];
    const change = changeOf(path, was, is);
    if (!change) continue;
    const number = String(changes.length);
    const files = { after: join(directory, `${number}.after`), base: join(directory, `${number}.base`) };
    if (is && kindOf(is) === 'file') writeFileSync(files.after, is.content ?? '');
    if (was && kindOf(was) === 'file') writeFileSync(files.base, was.content ?? '');
    changes.push({ change, after: files.after, base: was && kindOf(was) === 'file' ? files.base : null });
  }
  return changes;
}

function changeOf(path: string, was: Entry | undefined, is: Entry | undefined): ForkChange | null {
  if (JSON.stringify(was) === JSON.stringify(is)) return null;
  const [before, after] = [was && kindOf(was), is && kindOf(is)];
  const modes = [was && before !== 'link' ? modeOf(was) : undefined, is && after !== 'link' ? modeOf(is) : undefined];
  const sides = <Value>([one, other]: (Value | undefined)[]): { before?: Value; after?: Value } => ({
    ...(one === undefined ? {} : { before: one }),
    ...(other === undefined ? {} : { after: other }),
  });
  return {
    path,
    change: was === undefined ? 'added' : is === undefined ? 'deleted' : 'changed',
    kind: after ?? before ?? 'file',
    ...(before && after && before !== after ? { before } : {}),
    ...(modes[0] === modes[1] ? {} : { mode: sides(modes) }),
    link: sides([was?.link, is?.link]),
    ...(after === 'file'
      ? {
          sha256: createHash('sha256')
            .update(is?.content ?? '')
            .digest('hex'),
        }
      : {}),
  };
}

const applied = ({ change, after, base }: Change): AppliedChange => ({
  change,
  open: () => open(after),
  openBase: async () => (base === null ? null : open(base)),
});

interface Scene {
  readonly directory: string;
  readonly workspace: string;
  readonly changes: Change[];
  readonly options: ApplyOptions;
}

const scenes: string[] = [];

function remove(directory: string): void {
  // What a directory without the right to write holds cannot be removed.
  for (const name of ['closed', 'shut'])
    if (existsSync(join(directory, 'ws', name))) chmodSync(join(directory, 'ws', name), 0o700);
  rmSync(directory, { recursive: true, force: true });
}

afterAll(() => scenes.forEach(remove));

// The host is what the fork began with, unless it is given.
function scene({ base, fork, host = base }: { base: Tree; fork: Tree; host?: Tree }): Scene {
  const directory = mkdtempSync(join(tmpdir(), 'acode-apply-'));
  scenes.push(directory);
  const workspace = join(directory, 'ws');
  make(workspace, host);
  return {
    directory,
    workspace,
    changes: changesBetween(join(directory, 'layers'), base, fork),
    options: {
      stateDirectory: join(directory, 'state'),
      workspace,
      forkId: 'k7m2pqrt',
      diffId: 'd',
      startedAt: 1,
      durable: DURABLE,
      signal: new AbortController().signal,
    },
  };
}

const apply = ({ changes, options }: Scene, more: Partial<ApplyOptions> = {}): Promise<ApplyReport> =>
  applyChanges(changes.map(applied), { ...options, ...more });

// Nothing but empty directories and locks is left of an apply that has ended.
const leftovers = ({ directory, workspace }: Scene): string[] =>
  [join(directory, 'state'), workspace]
    .filter(path => existsSync(path))
    .flatMap(path => readdirSync(path, { recursive: true, encoding: 'utf8' }))
    .filter(path => /journal|applied|rolled-back|area|\.acode/.test(path));

const TEXT = 'one\ntwo\nthree\nfour\nfive\n';
const BASE: Tree = {
  'a.txt': TEXT,
  'run.sh': { content: '#!/bin/sh\n', mode: 0o755 },
  link: { link: 'a.txt' },
  'src/index.ts': 'index\n',
  'src/deep/old.ts': 'old\n',
  'src/deep/older.ts': 'older\n',
  'was-file': 'file\n',
  'was-directory/inner': 'inner\n',
  closed: { directory: true, mode: 0o700 },
};
const FORK: Tree = {
  'a.txt': 'one\nTWO\nthree\nfour\nfive\n',
  'run.sh': { content: '#!/bin/sh\n', mode: 0o700 },
  link: { link: 'src' },
  'src/index.ts': 'index, changed\n',
  'src/new.ts': { content: 'new\n', mode: 0o755 },
  'was-file/now/directory': 'in it\n',
  'was-directory': 'a file now\n',
  closed: { directory: true, mode: 0o500 },
  'closed/in': 'in\n',
  shut: { directory: true, mode: 0o500 },
  'shut/in': 'in\n',
  'new-link': { link: '/etc/passwd' },
};

describe('decisions', () => {
  const file = (mode: number): TreeEntry => ({
    kind: 'file',
    inode: 1n,
    size: 1,
    mode,
    uid: 0,
    gid: 0,
    isSparse: false,
    changedNs: 0n,
  });
  const changed: ForkChange = { path: 'p', change: 'changed', kind: 'file' };
  const directory: TreeEntry = { kind: 'directory', inode: 1n, mode: 0o755 };
  const link: TreeEntry = { kind: 'link', inode: 1n, target: 't' };

  it.each<[string, ForkChange, TreeEntry | null, boolean | null, boolean, unknown]>([
    ['changed, host as it was', changed, file(0o644), true, false, { do: 'put', mode: 0o644 }],
    ['changed, host moved', changed, file(0o644), false, false, { do: 'merge', mode: 0o644 }],
    ['changed, host has it', changed, file(0o644), false, true, { do: 'nothing' }],
    ['changed, base unknown', changed, file(0o644), null, false, { do: 'conflict', reason: 'base-unknown' }],
    ['changed, host deleted it', changed, null, false, false, { do: 'conflict', reason: 'deleted-here' }],
    ['changed, host has a directory', changed, directory, false, false, { do: 'conflict', reason: 'kind' }],
    ['link, host moved', { ...changed, kind: 'link' }, link, false, false, { do: 'conflict', reason: 'changed-here' }],
    ['added', { ...changed, change: 'added', mode: { after: 0o777 } }, null, false, false, { do: 'put', mode: 0o755 }],
    ['added twice', { ...changed, change: 'added' }, file(0o600), false, true, { do: 'nothing' }],
    [
      'added twice, otherwise',
      { ...changed, change: 'added' },
      file(0o600),
      false,
      false,
      { do: 'conflict', reason: 'added-here' },
    ],
    ['deleted', { ...changed, change: 'deleted' }, file(0o644), true, false, { do: 'remove' }],
    ['deleted twice', { ...changed, change: 'deleted' }, null, false, false, { do: 'nothing' }],
    [
      'deleted, host moved',
      { ...changed, change: 'deleted' },
      file(0o644),
      false,
      false,
      { do: 'conflict', reason: 'changed-here' },
    ],
    [
      'deleted, base unknown',
      { ...changed, change: 'deleted' },
      file(0o644),
      null,
      false,
      { do: 'conflict', reason: 'base-unknown' },
    ],
    ['another kind', { ...changed, before: 'link' }, link, true, false, { do: 'put', mode: 0o644 }],
    [
      'another kind, host moved',
      { ...changed, before: 'link' },
      link,
      false,
      false,
      { do: 'conflict', reason: 'changed-here' },
    ],
    [
      'mode',
      { ...changed, mode: { before: 0o644, after: 0o755 } },
      file(0o644),
      true,
      true,
      { do: 'mode', mode: 0o755 },
    ],
    [
      'mode of both',
      { ...changed, mode: { before: 0o644, after: 0o755 } },
      file(0o600),
      true,
      true,
      { do: 'conflict', reason: 'changed-here' },
    ],
    ['setuid', { ...changed, mode: { before: 0o755, after: 0o6755 } }, file(0o755), true, true, { do: 'nothing' }],
    [
      'setuid that was there',
      { ...changed, mode: { before: 0o4755, after: 0o4711 } },
      file(0o4755),
      true,
      true,
      { do: 'mode', mode: 0o4711 },
    ],
    [
      'world-writable',
      { ...changed, mode: { before: 0o644, after: 0o777 } },
      file(0o644),
      true,
      false,
      { do: 'put', mode: 0o755 },
    ],
  ])('%s', (_, change, host, isBase, isAfter, outcome) => {
    expect(decide({ change, host, isBase, isAfter, umask: 0o022 })).toEqual(outcome);
  });
});

describe('apply', () => {
  it('makes every kind of change, and leaves nothing of its own', async () => {
    const here = scene({ base: BASE, fork: FORK });
    const report = await apply(here);
    expect(report).toMatchObject({ outcome: 'applied', already: 0, conflicts: [], refused: [], kept: [] });
    expect(report.applied).toBe(here.changes.length);
    expect(listing(here.workspace)).toEqual(expected(FORK));
    expect(leftovers(here)).toEqual([]);
    expect(await apply(here)).toMatchObject({ outcome: 'applied', applied: 0, already: here.changes.length });
  });

  it('merges what both changed, and takes what only one changed', async () => {
    const host = { ...BASE, 'a.txt': 'one\ntwo\nthree\nfour\nFIVE\n', 'own.txt': 'own\n' };
    const here = scene({ base: BASE, fork: FORK, host });
    expect(await apply(here, { check: true })).toMatchObject({ outcome: 'checked', merged: ['a.txt'] });
    expect(listing(here.workspace)).toEqual(expected(host));
    expect(await apply(here)).toMatchObject({ outcome: 'applied', merged: ['a.txt'] });
    const after = { ...FORK, 'a.txt': 'one\nTWO\nthree\nfour\nFIVE\n', 'own.txt': 'own\n' };
    expect(listing(here.workspace)).toEqual(expected(after));
  });

  it('changes nothing where one change is in conflict', async () => {
    const host: Tree = { ...BASE, 'a.txt': 'one\nzwei\nthree\nfour\nfive\n', 'src/index.ts': 'i\0\n' };
    delete host['src/deep/old.ts'];
    host['src/deep/older.ts'] = 'older, changed\n';
    const here = scene({ base: BASE, fork: FORK, host });
    expect(await apply(here)).toMatchObject({
      outcome: 'refused',
      applied: 0,
      conflicts: [
        { path: 'a.txt', reason: 'overlap' },
        { path: 'src/deep/older.ts', reason: 'changed-here' },
        { path: 'src/index.ts', reason: 'binary' },
      ],
    });
    expect(listing(here.workspace)).toEqual(expected(host));
  });

  it('leaves a removed directory that holds a file of the host, and refuses to put a file in its place', async () => {
    const host = { ...BASE, 'src/deep/mine': 'mine\n' };
    const here = scene({ base: BASE, fork: FORK, host });
    expect(await apply(here)).toMatchObject({ outcome: 'applied', kept: [{ path: 'src/deep', reason: 'not-empty' }] });
    expect(listing(here.workspace)).toEqual(expected({ ...FORK, 'src/deep/mine': 'mine\n' }));
    const other = scene({ base: BASE, fork: FORK, host: { ...BASE, 'was-directory/mine': 'mine\n' } });
    expect(await apply(other)).toMatchObject({
      outcome: 'refused',
      conflicts: [{ path: 'was-directory', reason: 'not-empty' }],
    });
  });

  it('applies named paths alone, with the directories they need', async () => {
    const here = scene({ base: BASE, fork: FORK });
    expect(await apply(here, { only: ['./src/', 'was-file/now/directory'] })).toMatchObject({ outcome: 'applied' });
    const after: Tree = {
      ...BASE,
      ...Object.fromEntries(Object.entries(FORK).filter(([path]) => /^src|^was-file/.test(path))),
    };
    for (const path of ['src/deep/old.ts', 'src/deep/older.ts', 'was-file']) delete after[path];
    expect(listing(here.workspace)).toEqual(expected(after));
    expect(await apply(here, { only: ['nowhere'] })).toMatchObject({
      outcome: 'refused',
      refused: [{ path: 'nowhere', reason: 'no-such-change' }],
    });
  });

  it('refuses protected paths that are not named themselves, special files, names and contents that cannot be read', async () => {
    const fork: Tree = {
      ...BASE,
      '.git/hooks/pre-commit': 'evil\n',
      'sub/.git/config': 'evil\n',
      '.vscode/tasks.json': '{}\n',
      '.acode-apply/old/0': 'x\n',
    };
    const here = scene({ base: BASE, fork });
    const add = (change: Partial<ForkChange>): void =>
      void here.changes.push({
        change: { path: 'x', change: 'added', kind: 'file', ...change },
        after: '/nowhere',
        base: null,
      });
    for (const kind of ['fifo', 'socket', 'device'] as const) add({ path: kind, kind });
    add({ path: 'bad\\377', unreadableName: true });
    add({ path: '../outside' });
    add({ path: 'hole', gap: 'sparse' });
    const { outcome, refused } = await apply(here, { only: ['.'] });
    expect(outcome).toBe('refused');
    const by = (reason: string): string[] => refused.filter(each => each.reason === reason).map(({ path }) => path);
    expect(by('protected')).toEqual([
      '.acode-apply',
      '.acode-apply/old',
      '.acode-apply/old/0',
      '.git',
      '.git/hooks',
      '.git/hooks/pre-commit',
      '.vscode',
      '.vscode/tasks.json',
      'sub/.git',
      'sub/.git/config',
    ]);
    expect(by('special')).toEqual(['fifo', 'socket', 'device']);
    expect(by('name')).toEqual(['bad\\377', '../outside']);
    expect(by('content')).toEqual(['hole']);
    expect(await apply(here, { only: ['.vscode'] })).toMatchObject({ outcome: 'applied', applied: 2 });
    expect(listing(here.workspace)).toEqual(expected({ ...BASE, '.vscode/tasks.json': '{}\n' }));
  });

  it('refuses a file that is mostly a hole before it copies it', async () => {
    const here = scene({ base: BASE, fork: { ...BASE, big: 'x\n' } });
    truncateSync(here.changes[0]!.after, 2 ** 40);
    expect(await apply(here)).toMatchObject({ outcome: 'refused', refused: [{ path: 'big', reason: 'sparse' }] });
    expect(leftovers(here)).toEqual([]);
  });

  it('copies content alone: no set-user-id, no permission beyond the umask, holes stay holes', async () => {
    const fork: Tree = { ...BASE, tool: { content: `${'\0'.repeat(1024 ** 2)}end`, mode: 0o6777 } };
    const here = scene({ base: BASE, fork });
    const previous = process.umask(0o027);
    try {
      await apply(here);
    } finally {
      process.umask(previous);
    }
    const { mode, nlink, blocks, size } = statSync(join(here.workspace, 'tool'));
    expect({ mode: mode & 0o7777, nlink, size }).toEqual({ mode: 0o750, nlink: 1, size: 1024 ** 2 + 3 });
    expect(blocks * 512).toBeLessThan(64 * 1024);
  });

  it('breaks a hard link of the host rather than write through it', async () => {
    const here = scene({ base: BASE, fork: FORK });
    linkSync(join(here.workspace, 'a.txt'), join(here.directory, 'second'));
    await apply(here);
    expect(readFileSync(join(here.directory, 'second'), 'utf8')).toBe(TEXT);
  });

  it('stops when the fork is not what its diff said', async () => {
    const here = scene({ base: BASE, fork: FORK });
    writeFileSync(here.changes.find(({ change }) => change.path === 'src/new.ts')!.after, 'other\n');
    await expect(apply(here)).rejects.toMatchObject({ code: 'ACODE-FRK-013', context: { state: 'unchanged' } });
    expect(listing(here.workspace)).toEqual(expected(BASE));
    expect(leftovers(here)).toEqual([]);
  });

  it('runs once at a time in a workspace', async () => {
    const here = scene({ base: BASE, fork: FORK });
    const outcomes = await Promise.allSettled([apply(here), apply(here)]);
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    const failed = outcomes.find(outcome => outcome.status === 'rejected');
    expect(failed?.reason).toMatchObject({ code: 'ACODE-FRK-011', context: { pid: process.pid } });
  });
});

describe('something that happens during an apply', () => {
  // Called before each step: the one at which a test interferes is named by its path.
  const at = (path: string, interfere: () => void): Partial<ApplyOptions> => {
    let isDone = false;
    return {
      onProgress: progress => {
        if (progress.path !== path || isDone) return;
        isDone = true;
        interfere();
      },
    };
  };

  it('does not lead out of the workspace when a directory becomes a link', async () => {
    const here = scene({ base: BASE, fork: FORK });
    const outside = join(here.directory, 'outside');
    make(outside, { 'index.ts': 'index\n', 'deep/old.ts': 'old\n', 'deep/older.ts': 'older\n' });
    const before = listing(outside);
    const report = await apply(
      here,
      at('src/index.ts', () => {
        renameSync(join(here.workspace, 'src'), join(here.workspace, 'moved'));
        symlinkSync(outside, join(here.workspace, 'src'));
      }),
    );
    expect(listing(outside)).toEqual(before);
    expect(report).toMatchObject({ outcome: 'refused', conflicts: [{ path: 'src/index.ts', reason: 'parent' }] });
    // What had been taken from there is not lost with the way to it.
    expect(readFileSync(join(here.workspace, 'old.ts.acode-before'), 'utf8')).toBe('old\n');
  });

  it.each(['replaced', 'written'] as const)(
    'keeps a file that is %s before its turn, and undoes the rest',
    async how => {
      const here = scene({ base: BASE, fork: FORK });
      const path = join(here.workspace, 'src/index.ts');
      const report = await apply(
        here,
        at('src/index.ts', () => {
          writeFileSync(how === 'replaced' ? `${path}.tmp` : path, 'saved\n');
          if (how === 'replaced') renameSync(`${path}.tmp`, path);
        }),
      );
      expect(report).toMatchObject({ outcome: 'refused', conflicts: [{ path: 'src/index.ts', reason: 'meanwhile' }] });
      expect(listing(here.workspace)).toEqual(expected({ ...BASE, 'src/index.ts': 'saved\n' }));
      expect(leftovers(here)).toEqual([]);
    },
  );

  it('undoes all where a process still has a replaced file open for writing', async () => {
    const here = scene({ base: BASE, fork: FORK });
    const path = join(here.workspace, 'a.txt');
    const writer = spawn(
      'sh',
      ['-c', 'exec 3>>"$1"; echo open; read x; echo late >&3; echo done; read x', 'sh', path],
      {
        stdio: ['pipe', 'pipe', 'inherit'],
      },
    );
    await once(writer.stdout, 'data');
    const report = await apply(here);
    expect(report).toMatchObject({
      outcome: 'refused',
      conflicts: [{ path: 'a.txt', reason: 'open', pid: writer.pid }],
    });
    expect(listing(here.workspace)).toEqual(expected(BASE));
    writer.stdin.write('go\n');
    await once(writer.stdout, 'data');
    expect(readFileSync(path, 'utf8')).toBe(`${TEXT}late\n`);
    writer.kill();
  });

  it('gives directories their times back when it undoes them', async () => {
    const here = scene({ base: BASE, fork: FORK });
    const times = (): [string, number][] =>
      ['.', 'src', 'src/deep', 'was-directory'].map(path => [path, statSync(join(here.workspace, path)).mtimeMs]);
    for (const path of ['src/deep', 'src', 'was-directory', '.']) utimesSync(join(here.workspace, path), 5, 1234.5);
    const before = times();
    const report = await apply(
      here,
      at('a.txt', () => writeFileSync(join(here.workspace, 'a.txt'), 'saved\n')),
    );
    expect(report.outcome).toBe('refused');
    expect(times()).toEqual(before);
  });
});

describe('an interrupted apply', () => {
  class Cut extends Error {}

  // Ends before the step of a path, with nothing tidied up.
  async function cutAt(path: string, more: Partial<ApplyOptions> = {}): Promise<Scene> {
    const first = scene({ base: BASE, fork: FORK });
    const here = { ...first, options: { ...first.options, ...more } };
    const onProgress: NonNullable<ApplyOptions['onProgress']> = progress => {
      if (progress.path === path) throw new Cut();
    };
    await expect(apply(here, { onProgress })).rejects.toThrow(Cut);
    expect(pendingApply(here.options)).toEqual({
      forkId: 'k7m2pqrt',
      diffId: 'd',
      startedAt: 1,
      changes: here.changes.length,
    });
    return here;
  }

  const save = ({ workspace }: Scene, path: string): void => {
    writeFileSync(join(workspace, `${path}.tmp`), 'saved\n');
    renameSync(join(workspace, `${path}.tmp`), join(workspace, path));
  };

  it('is finished with what was saved since left in its place, and the earlier file beside it', async () => {
    const here = await cutAt('src/index.ts');
    save(here, 'a.txt');
    const kept = [{ path: 'a.txt', reason: 'saved', earlier: 'a.txt.acode-before' }];
    expect(await resumeApply(here.options)).toMatchObject({ outcome: 'applied', kept });
    const own = { 'a.txt': 'saved\n', 'a.txt.acode-before': TEXT };
    expect(listing(here.workspace)).toEqual(expected({ ...FORK, ...own }));
    expect(leftovers(here)).toEqual(['a.txt.acode-before']);
    await expect(resumeApply(here.options)).rejects.toMatchObject({ code: 'ACODE-FRK-012' });
  });

  it('is undone with what was saved since left in its place, and the earlier file beside it', async () => {
    const here = await cutAt('src/index.ts');
    save(here, 'a.txt');
    writeFileSync(join(here.workspace, 'was-file'), 'not before its turn\n');
    const kept = [{ path: 'a.txt', reason: 'saved', earlier: 'a.txt.acode-before' }];
    expect(await rollBackApply(here.options)).toMatchObject({ outcome: 'rolled-back', applied: 0, kept });
    const own = { 'a.txt': 'saved\n', 'a.txt.acode-before': TEXT, 'was-file': 'not before its turn\n' };
    expect(listing(here.workspace)).toEqual(expected({ ...BASE, ...own }));
  });

  it('is undone by a resume that finds something else than it was to replace', async () => {
    const here = await cutAt('src/index.ts');
    save(here, 'src/index.ts');
    expect(await resumeApply(here.options)).toMatchObject({
      outcome: 'refused',
      conflicts: [{ path: 'src/index.ts', reason: 'meanwhile' }],
      kept: [],
    });
    expect(listing(here.workspace)).toEqual(expected({ ...BASE, 'src/index.ts': 'saved\n' }));
  });
});

// A process of its own that applies, resumes or rolls back, and is killed at its nth call of the file system.
const CHILD = `
import fs from 'node:fs';
import { open } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { applyChanges, resumeApply, rollBackApply } from './apply.ts';
const { what, changes, options, at, cut } = JSON.parse(process.argv[2]);
let calls = 0;
const CALLS = 'chmodSync closeSync fsyncSync ftruncateSync linkSync mkdirSync openSync renameSync rmdirSync symlinkSync unlinkSync utimesSync writeFileSync writeSync';
for (const name of CALLS.split(' ')) {
  const original = fs[name];
  fs[name] = (...words) => {
    calls += 1;
    if (calls === at) process.kill(process.pid, 'SIGKILL');
    return original(...words);
  };
}
syncBuiltinESMExports();
const signal = new AbortController().signal;
let began = 0;
const onProgress = ({ path }) => {
  began ||= calls;
  if (path === cut) process.kill(process.pid, 'SIGKILL');
};
if (what === 'resume') await resumeApply(options);
else if (what === 'roll back') await rollBackApply(options);
else
  await applyChanges(
    changes.map(({ change, after, base }) => ({
      change,
      open: () => open(after),
      openBase: async () => (base === null ? null : open(base)),
    })),
    { ...options, signal, onProgress },
  );
console.log(JSON.stringify({ began, calls }));
`;

describe('an apply that is killed', () => {
  const child = join(mkdtempSync(join(tmpdir(), 'acode-apply-child-')), 'child.mjs');
  beforeAll(async () => {
    await build({
      stdin: { contents: CHILD, resolveDir: import.meta.dirname, loader: 'ts' },
      bundle: true,
      platform: 'node',
      target: 'node20',
      format: 'esm',
      outfile: child,
    });
  }, 120_000);

  type What = 'apply' | 'resume' | 'roll back';

  // The number of its calls, and of those before the first step; null where it was killed.
  function runChild(
    { changes, options }: Scene,
    what: What,
    { at = 0, cut, prefix = [] }: { at?: number; cut?: string; prefix?: string[] } = {},
  ): { began: number; calls: number } | null {
    const [program, ...words] = [...prefix, process.execPath, child];
    const input = JSON.stringify({ what, changes, options, at, cut });
    const { stdout, stderr, signal, status } = spawnSync(program, [...words, input], { encoding: 'utf8' });
    if (signal === 'SIGKILL') return null;
    if (status !== 0) throw new Error(`${what}: ${stderr}`);
    return JSON.parse(stdout) as { began: number; calls: number };
  }

  const many = (changed: boolean): Tree =>
    Object.fromEntries(
      Array.from({ length: 24 }, (_, at): [string, string][] => [
        [`many/${at % 5}/file${at}`, changed && at % 3 === 0 ? `changed ${at}\n` : `${at}\n`],
        ...(changed === (at % 2 === 0)
          ? [[`many/${at % 4}/${changed ? 'new' : 'old'}${at}`, 'x\n'] as [string, string]]
          : []),
      ]).flat(),
    );
  const base: Tree = { ...BASE, ...many(false) };
  const fork: Tree = { ...FORK, ...many(true) };
  const [before, after] = [expected(base), expected(fork)];
  const random = (most: number): number => 1 + Math.floor(Math.random() * most);
  const choice = (): What => (Math.random() < 0.5 ? 'resume' : 'roll back');
  const finish = (here: Scene, what: What): Promise<ApplyReport> =>
    what === 'resume' ? resumeApply(here.options) : rollBackApply(here.options);

  it(
    'is finished or undone, wherever it was killed, and however often',
    async () => {
      const { began, calls } = runChild(scene({ base, fork }), 'apply') ?? { began: 0, calls: 0 };
      const seen = {
        runs: 20 * FACTOR,
        between: 0,
        resumed: 0,
        rolledBack: 0,
        killedTwice: 0,
        notBegun: 0,
        over: 0,
      };
      const wrong: string[] = [];
      for (let run = 0; run < seen.runs; run += 1) {
        const here = scene({ base, fork });
        // Every fourth anywhere, the others while there are steps to be taken or something to be cleaned up.
        const at = run % 4 === 0 ? random(calls) : began + random(calls - began);
        expect(runChild(here, 'apply', { at })).toBeNull();
        const found = listing(here.workspace);
        const is = (tree: Record<string, string>, now = listing(here.workspace)): boolean =>
          JSON.stringify(now) === JSON.stringify(tree);
        delete found['.acode-apply'];
        if (pendingApply(here.options) === null) {
          // Before the journal or after the mark.
          seen[is(before, found) ? 'notBegun' : 'over'] += 1;
          if (!is(before, found) && !is(after, found)) wrong.push(`killed at ${at}: between, and no journal`);
          expect(await apply(here)).toMatchObject({ outcome: 'applied' });
          if (!is(after)) wrong.push(`killed at ${at}: not applied by the next apply`);
        } else {
          if (!is(before, found) && !is(after, found)) seen.between += 1;
          await expect(apply(here)).rejects.toMatchObject({ code: 'ACODE-FRK-010' });
          // A resume or rollback may be killed too, and the other one may end it.
          for (let kills = run % 4 === 3 ? 2 : 0; kills > 0 && pendingApply(here.options); kills -= 1)
            if (runChild(here, choice(), { at: random(calls / 2) }) === null) seen.killedTwice += 1;
          const what: What = seen.resumed <= seen.rolledBack ? 'resume' : 'roll back';
          const outcome = existsJournal(here) ? (await finish(here, what)).outcome : null;
          if (outcome === 'applied') seen.resumed += 1;
          if (outcome === 'rolled-back') seen.rolledBack += 1;
          const isRight = outcome === null ? is(before) || is(after) : is(outcome === 'applied' ? after : before);
          if (!isRight)
            wrong.push(`killed at ${at}: ${what} ended as ${String(outcome)}, and the workspace is otherwise`);
          // Ended by a process that was killed while it cleaned up: the next one does.
          if (outcome === null) await apply(here);
        }
        if (leftovers(here).length > 0) wrong.push(`killed at ${at}: left ${leftovers(here).join(', ')}`);
        if (FACTOR > 1 && run % 10 === 9)
          process.stderr.write(`killed applies: ${JSON.stringify({ ...seen, wrong })}\n`);
        remove(here.directory);
      }
      if (FACTOR > 1)
        process.stdout.write(`FIGURE killed applies: ${JSON.stringify({ ...seen, wrong, calls, durable: DURABLE })}\n`);
      expect(wrong).toEqual([]);
      // Otherwise the kills came where they show nothing.
      expect(seen.between).toBeGreaterThan(0);
    },
    300_000 * FACTOR,
  );

  // A mount of the workspace on itself: the same disk, and no hard link leads from one mount to the other.
  const onOwnMount = (workspace: string): string[] => [
    'unshare',
    '-Urm',
    'sh',
    '-c',
    'mount --bind "$0" "$0" && exec "$@"',
    workspace,
  ];
  const canMount = spawnSync('unshare', ['-Urm', 'true']).status === 0;

  it.runIf(canMount)(
    'has its files in the workspace where that is another mount, and uses none that was changed',
    async () => {
      const here = scene({ base, fork });
      const prefix = onOwnMount(here.workspace);
      expect(runChild(here, 'apply', { cut: 'src/new.ts', prefix })).toBeNull();
      const area = join(here.workspace, '.acode-apply');
      expect(statSync(area).mode & 0o777).toBe(0o700);
      expect(readFileSync(join(area, '.gitignore'), 'utf8')).toBe('*\n');
      const names = readdirSync(join(area, 'new'));
      const mine = names.find(name => readFileSync(join(area, 'new', name), 'utf8') === 'new\n') ?? '';
      writeFileSync(join(area, 'new', mine), 'evil\n');
      expect(await resumeApply(here.options)).toMatchObject({
        outcome: 'refused',
        conflicts: [{ path: 'src/new.ts' }],
      });
      expect(listing(here.workspace)).toEqual(before);
      expect(runChild(here, 'apply', { prefix })).not.toBeNull();
      expect(listing(here.workspace)).toEqual(after);
    },
  );

  const existsJournal = ({ directory }: Scene): boolean =>
    readdirSync(join(directory, 'state'), { recursive: true, encoding: 'utf8' }).some(path => path.endsWith('journal'));
});

// An editor that saves in a loop, in three ways, and says before and after each save which one it is.
const EDITOR = `
const fs = require('node:fs');
const [path, log] = process.argv.slice(1);
// In one step: this process is stopped at any moment, and the last line must be whole then.
const say = line => {
  fs.writeFileSync(log + '.tmp', line);
  fs.renameSync(log + '.tmp', log);
};
let text = fs.readFileSync(path, 'utf8');
const pause = ms => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
for (let save = 1; ; save += 1) {
  try { text = fs.readFileSync(path, 'utf8') || text; } catch {}
  text = text.replace(/^.*\\n/, 'saved ' + String(save).padStart(6, '0') + '\\n');
  say('begin ' + save);
  if (save % 3 === 0) {
    fs.writeFileSync(path + '.tmp', text);
    fs.renameSync(path + '.tmp', path);
  } else if (save % 3 === 1) {
    fs.writeFileSync(path, text);
  } else {
    let file;
    try { file = fs.openSync(path, 'r+'); } catch { file = fs.openSync(path, 'w'); }
    fs.writeSync(file, text, 0);
    fs.ftruncateSync(file, text.length);
    fs.closeSync(file);
  }
  say('end ' + save);
  pause(Math.random() * 3);
}
`;

describe('an editor that saves during applies', () => {
  it('loses no save', { timeout: 300_000 * FACTOR }, async () => {
    const lines = (first: string, last: string): string =>
      [first, ...'a b c d e f g h'.split(' '), last].map(line => `${line}\n`).join('');
    const here = scene({ base: { 'a.txt': lines('saved 000000', 'fork 0') }, fork: {} });
    const path = join(here.workspace, 'a.txt');
    const log = join(here.directory, 'log');
    const editor = spawn(process.execPath, ['-e', EDITOR, path, log], { stdio: ['ignore', 'ignore', 'inherit'] });
    using _ = { [Symbol.dispose]: () => void editor.kill('SIGKILL') };
    const saves = (): { isOver: boolean; number: number } => {
      const [word, number] = (existsSync(log) ? readFileSync(log, 'utf8') : '').split(' ');
      return { isOver: word === 'end', number: Number(number ?? 0) };
    };
    const savedIn = (text: string): number => Number(/^saved (\d+)\n/.exec(text)?.[1] ?? -1);
    const isStopped = (): boolean => /\) T /.test(readFileSync(`/proc/${editor.pid}/stat`, 'latin1'));
    // A signal is sent before it has an effect: until then the file may change, or be empty in the middle of a save.
    const stopped = async (): Promise<void> => {
      editor.kill('SIGSTOP');
      while (!isStopped()) await sleep(1);
    };
    await expect.poll(() => saves().number).toBeGreaterThan(2);
    const seen = { rounds: 40 * FACTOR, applied: 0, refused: 0, compared: 0, lost: 0 };
    let base = lines('saved 000000', 'fork 0');
    for (let round = 1; round <= seen.rounds; round += 1) {
      const fork = base.replace(/fork .*\n$/, `fork ${round}\n`);
      const changes = changesBetween(join(here.directory, `layers${round}`), { 'a.txt': base }, { 'a.txt': fork });
      // It is stopped somewhere in the middle of the apply, so that no later save hides a lost one.
      const stop = sleep(Math.random() * 12).then(stopped);
      const { outcome } = await applyChanges(changes.map(applied), here.options);
      await stop;
      seen[outcome === 'applied' ? 'applied' : 'refused'] += 1;
      const { isOver, number } = saves();
      if (isOver) {
        seen.compared += 1;
        const now = readFileSync(path, 'utf8');
        if (savedIn(now) < number) seen.lost += 1;
        base = now;
      }
      editor.kill('SIGCONT');
    }
    // The control: a program that puts what it read back in one step loses the save that came in between.
    let read = '';
    while (savedIn(read) < 0) read = readFileSync(path, 'utf8');
    const { number: atRead } = saves();
    await expect.poll(() => saves().number).toBeGreaterThan(atRead + 2);
    await stopped();
    writeFileSync(`${path}.control`, read);
    renameSync(`${path}.control`, path);
    expect(savedIn(readFileSync(path, 'utf8'))).toBeLessThan(saves().number);
    if (FACTOR > 1) process.stdout.write(`FIGURE saves during applies: ${JSON.stringify(seen)}\n`);
    expect(seen.lost).toBe(0);
    expect(seen.compared).toBeGreaterThan(0);
    expect(seen.applied).toBeGreaterThan(0);
  });
});
