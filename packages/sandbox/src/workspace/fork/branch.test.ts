import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  closeSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { deflateSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { holderText, thisHolder } from '../../lifecycle/lock.ts';
import { BRANCH_LIMITS, branchNameProblem, conflictingRef, parseBundleHeader, parsePackedRefs } from './branch.ts';
import { HostRepository } from './branch-host.ts';
import { Quarantine } from './branch-quarantine.ts';
import type { CheckedCommits } from './branch-quarantine.ts';

const signal = new AbortController().signal;
const uid = process.getuid?.() ?? 0;
let home: string;
let work: string;

beforeEach(() => {
  home = realpathSync(mkdtempSync(join(tmpdir(), 'acode-branch-')));
  work = join(home, 'work');
  mkdirSync(work);
  git('init', '-q', '-b', 'main');
  write('a.txt', 'one\n');
  commit('first');
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

function git(...argv: string[]): string {
  const who = { GIT_AUTHOR_NAME: 'a', GIT_AUTHOR_EMAIL: 'a@b', GIT_COMMITTER_NAME: 'a', GIT_COMMITTER_EMAIL: 'a@b' };
  const env = {
    PATH: process.env['PATH'],
    HOME: home,
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    ...who,
  };
  return execFileSync('git', argv, { cwd: work, env, stdio: 'pipe', timeout: 30_000, encoding: 'utf8' }).trim();
}

function write(path: string, content: string): void {
  mkdirSync(dirname(join(work, path)), { recursive: true });
  writeFileSync(join(work, path), content);
}

function commit(message: string): string {
  git('add', '-A', '-f');
  git('commit', '-q', '-m', message);
  return git('rev-parse', 'HEAD');
}

type Entry = readonly [type: 'commit' | 'tree' | 'blob', content: Buffer];

function idOf([type, content]: Entry): string {
  return createHash('sha1').update(`${type} ${content.length}\0`).update(content).digest('hex');
}

const NUMBERS = { commit: 1, tree: 2, blob: 3, delta: 7 };

function entryOf(type: keyof typeof NUMBERS, size: number, body: Buffer): Buffer {
  const header = [(NUMBERS[type] << 4) | (size & 15)];
  for (let rest = Math.floor(size / 16); rest > 0; rest = Math.floor(rest / 128)) {
    header[header.length - 1] = (header.at(-1) ?? 0) | 0x80;
    header.push(rest % 128);
  }
  return Buffer.concat([Buffer.from(header), body]);
}

function packOf(entries: readonly Buffer[], count = entries.length): Buffer {
  const header = Buffer.from('PACK\0\0\0\x02\0\0\0\0', 'latin1');
  header.writeUInt32BE(count, 8);
  const pack = Buffer.concat([header, ...entries]);
  return Buffer.concat([pack, createHash('sha1').update(pack).digest()]);
}

/** A bundle with a commit whose tree has these entries, as no git would write it. */
function bundle(
  tree: readonly (readonly [mode: string, name: string, content: string])[],
  change: { header?: (tip: string) => string; pack?: (pack: Buffer) => Buffer; extra?: Buffer[]; count?: number } = {},
): Buffer {
  const blobs = tree.map(([, , content]): Entry => ['blob', Buffer.from(content)]);
  const lines = tree.map(([mode, name], at) =>
    Buffer.concat([
      Buffer.from(`${mode} ${name}\0`, 'latin1'),
      Buffer.from(idOf(blobs[at] ?? ['blob', Buffer.of()]), 'hex'),
    ]),
  );
  const top: Entry = ['tree', Buffer.concat(lines)];
  const parent = git('rev-parse', 'HEAD');
  const text = `tree ${idOf(top)}\nparent ${parent}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nx\n`;
  const made: Entry = ['commit', Buffer.from(text)];
  const all = [made, top, ...blobs].map(([type, content]) => entryOf(type, content.length, deflateSync(content)));
  const entries = [...all, ...(change.extra ?? [])];
  const tip = idOf(made);
  const header = change.header?.(tip) ?? `# v2 git bundle\n-${parent} first\n${tip} refs/heads/acode\n\n`;
  const pack = packOf(entries, change.count ?? entries.length);
  return Buffer.concat([Buffer.from(header), change.pack?.(pack) ?? pack]);
}

async function quarantine(
  content: Buffer,
  then?: (taken: CheckedCommits, made: Quarantine) => Promise<void>,
): Promise<CheckedCommits> {
  writeFileSync(join(home, 'bundle'), content);
  using repository = HostRepository.open(work, uid);
  await using made = await Quarantine.make(join(home, 'q'), repository.history(), signal);
  const file = openSync(join(home, 'bundle'), 'r');
  try {
    const taken = await made.take(file);
    await then?.(taken, made);
    return taken;
  } finally {
    closeSync(file);
  }
}

/** What is taken from a work tree that a fork would have. */
function written(...range: string[]): Buffer {
  git('branch', '-f', 'acode');
  git('bundle', 'create', '-q', join(home, 'made'), 'refs/heads/acode', ...range);
  git('branch', '-q', '-D', 'acode');
  return readFileSync(join(home, 'made'));
}

describe('the name of a branch', () => {
  it('is one that git takes, and that cannot be taken for something else', () => {
    const good = ['fix', 'fix/one', 'a.b', 'añb', 'x-1_2', 'feature/#12', 'headers', 'deadbee-f', 'a@b'];
    const bad = [
      ...[
        '',
        'HEAD',
        '@',
        'a/HEAD',
        'head',
        'FETCH_HEAD',
        'refs/heads/x',
        'heads/x',
        '-x',
        '.x',
        'a/.x',
        'x.',
        'x.lock',
        'x.lock/y',
      ],
      ...[
        'a..b',
        'a b',
        'a~b',
        'a^b',
        'a:b',
        'a?b',
        'a*b',
        'a[b',
        'a\\b',
        'a//b',
        '/a',
        'a/',
        'a@{b',
        'a\nb',
        'a\0b',
        'a\x7fb',
      ],
      ...['../x', 'a/../../x', 'a\u202eb', 'x\ud800', 'deadbeef', 'x'.repeat(201)],
    ];
    expect(good.filter(name => branchNameProblem(name) !== null)).toEqual([]);
    expect(bad.filter(name => branchNameProblem(name) === null)).toEqual([]);
    for (const name of good) expect(git('check-ref-format', '--branch', name)).toBe(name);
    // What git itself refuses is refused.
    const refusedByGit = [
      'HEAD',
      '-x',
      '.x',
      'a/.x',
      'x.',
      'x.lock',
      'a..b',
      'a b',
      'a~b',
      'a[b',
      'a//b',
      'a@{b',
      'a\nb',
    ];
    for (const name of refusedByGit)
      expect(() => git('check-ref-format', '--branch', name)).toThrow(/not a valid branch name|failed/);
  });

  it('is refused where a ref has it, or is a directory of it', () => {
    const names = ['refs/heads/main', 'refs/heads/a/b'];
    expect(conflictingRef('refs/heads/main', names)).toBe('refs/heads/main');
    expect(conflictingRef('refs/heads/a', names)).toBe('refs/heads/a/b');
    expect(conflictingRef('refs/heads/main/x', names)).toBe('refs/heads/main');
    expect(conflictingRef('refs/heads/mainx', names)).toBeNull();
  });
});

describe('the header of a bundle', () => {
  it('has exactly what acode asked for', () => {
    const id = 'a'.repeat(40);
    const pack = packOf([]);
    const read = (text: string, of = pack): string => {
      try {
        return parseBundleHeader(Buffer.concat([Buffer.from(text, 'latin1'), of])).tip;
      } catch (error) {
        return error instanceof Error ? error.message : '';
      }
    };
    expect(read(`# v2 git bundle\n-${id} x\n${id} refs/heads/acode\n\n`)).toBe(id);
    expect(read(`# v3 git bundle\n@object-format=sha1\n${id} refs/heads/acode\n\n`)).toBe(id);
    const hostile = [
      `# v2 git bundle\n${id} refs/heads/main\n\n`,
      `# v2 git bundle\n${id} refs/heads/acode\n${id} refs/heads/main\n\n`,
      `# v2 git bundle\n${id} refs/heads/acode\n${id} refs/heads/acode\n\n`,
      `# v2 git bundle\n${id} refs/heads/acode\r\n\n`,
      `# v3 git bundle\n@object-format=sha256\n${id} refs/heads/acode\n\n`,
      `# v3 git bundle\n@filter=blob:none\n${id} refs/heads/acode\n\n`,
      `# v2 git bundle\n-${id} x\n\n`,
      `# v9 git bundle\n${id} refs/heads/acode\n\n`,
      `${id} refs/heads/acode\n\n`,
      `# v2 git bundle\n${id} refs/heads/acode\n`,
    ];
    for (const text of hostile) expect(read(text)).not.toBe(id);
    const header = `# v2 git bundle\n${id} refs/heads/acode\n\n`;
    expect(read(header, packOf([], BRANCH_LIMITS.objects))).toBe(id);
    expect(read(header, packOf([], BRANCH_LIMITS.objects + 1))).toContain('500001 objects');
    expect(read(header, Buffer.from('PAC'))).toContain('no pack');
  });
});

describe('commits in quarantine', () => {
  it('are taken with everything they change, and nothing else of the bundle', async () => {
    const base = git('rev-parse', 'HEAD');
    write('b/c.txt', 'new\n');
    symlinkSync('../a.txt', join(work, 'b/link'));
    commit('second');
    write('.vscode/tasks.json', '{}');
    commit('third');
    rmSync(join(work, '.vscode'), { recursive: true });
    write('a.txt', 'two\n');
    const tip = commit('fourth');
    const content = written(`^${base}`);
    git('reset', '-q', '--hard', base);
    const taken = await quarantine(content);
    expect(taken).toMatchObject({ tip });
    expect(taken.commits).toHaveLength(3);
    const paths = taken.changes.map(({ path, change, kind }) => `${change} ${kind} ${path}`).sort();
    // What a later commit takes back is listed too: it can be checked out.
    expect(paths).toEqual([
      'added file .vscode/tasks.json',
      'added file b/c.txt',
      'added link b/link',
      'changed file a.txt',
      'deleted file .vscode/tasks.json',
    ]);
    expect([...taken.links.values()]).toEqual(['../a.txt']);
  });

  it('of a merge change only what no parent has', async () => {
    const base = git('rev-parse', 'HEAD');
    git('checkout', '-q', '-b', 'side');
    write('side.txt', 'side\n');
    commit('side');
    git('checkout', '-q', 'main');
    git('checkout', '-q', '--detach');
    write('inside.txt', 'inside\n');
    commit('inside');
    git('merge', '-q', '--no-commit', '--no-ff', 'side');
    write('Makefile', 'all:\n');
    commit('merge');
    const content = written(`^${base}`);
    git('checkout', '-q', '-f', 'main');
    const { changes } = await quarantine(content);
    expect(changes.map(({ path }) => path).sort()).toEqual(['Makefile', 'inside.txt']);
  });

  it('are refused where git, or a person, would be tricked', async () => {
    // The control: the same bundle, with an ordinary file.
    expect((await quarantine(bundle([['100644', 'file', 'x']]))).changes).toMatchObject([
      { path: 'a.txt', change: 'deleted' },
      { path: 'file', change: 'added' },
    ]);
    const blob = Buffer.from('x');
    const eight = [0x80, 0x80, 0x80, 0x80, 0x20];
    const delta = Buffer.from([1, ...eight, 1, 0x58]);
    const bomb = entryOf(
      'delta',
      delta.length,
      Buffer.concat([Buffer.from(idOf(['blob', blob]), 'hex'), deflateSync(delta)]),
    );
    const hostile: readonly (readonly [what: string, content: Buffer, reason: RegExp])[] = [
      ['a .git directory', bundle([['100644', '.git', 'x']]), /hasDotgit|git directory/],
      ['a .GIT directory', bundle([['100644', '.GIT', 'x']]), /hasDotgit|git directory/],
      ['a path that climbs', bundle([['100644', '..', 'x']]), /hasDotdot|leaves/],
      ['a path with a slash', bundle([['100644', 'a/../../x', 'x']]), /fullPathname|leaves/],
      ['a link as .gitmodules', bundle([['120000', '.gitmodules', '/etc/passwd']]), /gitmodulesSymlink/],
      ['a .gitmodules with an option for a URL', bundle([['100644', '.gitmodules', '[submodule "a"]\n\tpath = a\n\turl = --upload-pack=x\n']]), /gitmodulesUrl/],
      ['the same name twice', bundle([['100644', 'a', 'x'], ['100755', 'a', 'x']]), /duplicateEntries/],
      ['too many objects', bundle([['100644', 'file', 'x']], { count: 600_000 }), /600000 objects/],
      ['another checksum', bundle([['100644', 'file', 'x']], { pack: pack => Buffer.concat([pack.subarray(0, -1), Buffer.of((pack.at(-1) ?? 0) ^ 1)]) }), /corrupt/],
      ['no commit as its tip', bundle([['100644', 'file', 'x']], { header: () => `# v2 git bundle\n${idOf(['blob', blob])} refs/heads/acode\n\n` }), /commit/],
      ['a line end in a ref', bundle([['100644', 'file', 'x']], { header: tip => `# v2 git bundle\n${tip} refs/heads/acode\n${tip} refs/heads/x\n\n` }), /did not ask for/],
      ['a delta that unpacks to 8 GiB', bundle([['100644', 'file', 'x']], { extra: [bomb] }), /emory/],
      ['a missing object', Buffer.from(bundle([['100644', 'file', 'x']]).toString('latin1'), 'latin1').subarray(0, -30), /early EOF|corrupt|EOF/],
    ]; // prettier-ignore
    for (const [what, content, reason] of hostile) {
      const refused = await quarantine(content).catch((error: unknown) => error);
      expect(refused, what).toMatchObject({ name: 'BranchRefusal', kind: 'hostile' });
      expect(String(refused), what).toMatch(reason);
    }
    expect(existsSync(join(home, 'q'))).toBe(false);
  });
});

describe('the repository of the host', () => {
  async function add(name: string): Promise<string> {
    const { tip } = await quarantine(bundle([['100644', 'b.txt', 'new\n']]), async (taken, made) => {
      using repository = HostRepository.open(work, uid);
      repository.addBranch(`refs/heads/${name}`, taken.tip, await made.pack(taken));
    });
    return tip;
  }

  it('gets a branch that git reads, and its work tree and index are what they were', async () => {
    const index = readFileSync(join(work, '.git/index'));
    const head = readFileSync(join(work, '.git/HEAD'));
    const tip = await add('fix/one');
    expect(git('rev-parse', 'fix/one')).toBe(tip);
    expect(git('show', 'fix/one:b.txt')).toBe('new');
    expect(git('fsck', '--strict', '--full')).toBe('');
    expect(git('status', '--porcelain')).toBe('');
    expect(existsSync(join(work, 'b.txt'))).toBe(false);
    expect(readFileSync(join(work, '.git/HEAD'))).toEqual(head);
    expect(readFileSync(join(work, '.git/index')).length).toBe(index.length);
    expect(readdirSync(join(work, '.git/refs/heads/fix'))).toEqual(['one']);
  });

  it('is never changed by a program that its own configuration names', async () => {
    const marker = join(home, 'marker');
    writeFileSync(join(home, 'run.sh'), `#!/bin/sh\necho ran >> ${marker}\n`, { mode: 0o755 });
    const program = join(home, 'run.sh');
    mkdirSync(join(home, 'hooks'));
    for (const hook of ['reference-transaction', 'post-commit', 'pre-receive', 'post-index-change'])
      writeFileSync(join(home, 'hooks', hook), `#!/bin/sh\necho ran >> ${marker}\n`, { mode: 0o755 });
    const base = git('rev-parse', 'HEAD');
    write('b.txt', 'new\n');
    const tip = commit('second');
    const content = written(`^${base}`);
    git('reset', '-q', '--hard', base);
    for (const [key, value] of [
      ['core.fsmonitor', program],
      ['core.hooksPath', join(home, 'hooks')],
      ['filter.x.clean', program],
      ['core.alternateRefsCommand', program],
    ] as const)
      // prettier-ignore
      git('config', key, value);
    await quarantine(content, async (taken, made) => {
      using repository = HostRepository.open(work, uid);
      repository.addBranch('refs/heads/fix', taken.tip, await made.pack(taken));
    });
    expect(existsSync(marker)).toBe(false);
    // The control: git itself runs them.
    expect(git('rev-parse', 'fix')).toBe(tip);
    git('status');
    expect(readFileSync(marker, 'utf8')).toContain('ran');
  });

  it('keeps every branch that it has, packed or not, and every lock', async () => {
    git('branch', 'loose');
    git('branch', 'packed');
    git('pack-refs', '--all');
    git('branch', 'deep/er');
    writeFileSync(join(work, '.git/refs/heads/held.lock'), '');
    const packs = join(work, '.git/objects/pack');
    const before = readdirSync(packs);
    await quarantine(bundle([['100644', 'file', 'x']]), async (taken, made) => {
      const pack = await made.pack(taken);
      using repository = HostRepository.open(work, uid);
      const adding = (name: string): void => repository.addBranch(`refs/heads/${name}`, taken.tip, pack);
      for (const name of ['loose', 'packed', 'deep', 'packed/x', 'deep/er/x', 'main'])
        expect(() => adding(name), name).toThrow(/the repository has|is not a directory/);
      expect(() => adding('held')).toThrow(/locked/);
      // Nothing of a branch that was refused is left, and the control is one that is not.
      expect(readdirSync(packs)).toEqual(before);
      adding('free');
      expect(git('rev-parse', 'free')).toBe(taken.tip);
    });
    expect(git('rev-parse', 'packed', 'deep/er')).toBe(`${git('rev-parse', 'main')}\n${git('rev-parse', 'main')}`);
  });

  it('goes on where a process of acode was killed over a lock; one of git’s and one of a process that lives stay', async () => {
    const mark = (holder: string): string => join(work, `.git/objects/pack/tmp_acode-lock-${holder}-0123456789abcdef`);
    const locked = (name: string, holder: string): void => {
      writeFileSync(mark(holder), `${'1'.repeat(40)}\n`);
      linkSync(mark(holder), join(work, `.git/refs/heads/${name}.lock`));
    };
    const me = thisHolder();
    // A number that this process has had since another moment is another process’s.
    locked('dead', holderText({ ...me, start: '1' }));
    locked('alive', holderText(me));
    locked('elsewhere', holderText({ ...me, machine: '0'.repeat(8) }));
    writeFileSync(join(work, '.git/refs/heads/git.lock'), '');
    await quarantine(bundle([['100644', 'file', 'x']]), async (taken, made) => {
      const pack = await made.pack(taken);
      using repository = HostRepository.open(work, uid);
      const adding = (name: string): void => {
        repository.removeDeadLock(`refs/heads/${name}`);
        repository.addBranch(`refs/heads/${name}`, taken.tip, pack);
      };
      for (const name of ['alive', 'elsewhere', 'git']) expect(() => adding(name), name).toThrow(/locked/);
      adding('dead');
      expect(git('rev-parse', 'dead')).toBe(taken.tip);
    });
    const left = readdirSync(join(work, '.git/objects/pack')).filter(name => name.includes('acode-lock-'));
    expect(left).toHaveLength(2);
    expect(existsSync(join(work, '.git/refs/heads/dead.lock'))).toBe(false);
  });

  it('moves a branch from the commit that it is known to be at, and no other, and none that is checked out', async () => {
    git('branch', 'loose');
    git('branch', 'packed');
    git('branch', 'linked');
    git('pack-refs', '--all');
    git('branch', '-f', 'loose', 'main');
    git('worktree', 'add', '-q', join(home, 'linked'), 'linked');
    const base = git('rev-parse', 'main');
    const packs = join(work, '.git/objects/pack');
    const before = readdirSync(packs);
    await quarantine(bundle([['100644', 'file', 'x']]), async (taken, made) => {
      const pack = await made.pack(taken);
      using repository = HostRepository.open(work, uid);
      const moving = (name: string, from = base): void =>
        repository.moveBranch(`refs/heads/${name}`, { from, to: taken.tip }, pack);
      expect(() => moving('loose', taken.tip)).toThrow(/another commit/);
      expect(() => moving('absent')).toThrow(/no such branch/);
      for (const name of ['main', 'linked']) expect(() => moving(name), name).toThrow(/checked out/);
      writeFileSync(join(work, '.git/refs/heads/loose.lock'), '');
      expect(() => moving('loose')).toThrow(/locked/);
      rmSync(join(work, '.git/refs/heads/loose.lock'));
      expect(readdirSync(packs)).toEqual(before);
      moving('loose');
      moving('packed');
      expect(git('rev-parse', 'loose', 'packed')).toBe(`${taken.tip}\n${taken.tip}`);
    });
    expect(git('rev-parse', 'main', 'linked')).toBe(`${base}\n${base}`);
    expect(git('fsck', '--strict')).toBe('');
  });

  it('is refused where git keeps it in another way, or a link stands in it', () => {
    const open = (): void => HostRepository.open(work, uid)[Symbol.dispose]();
    open();
    const config = readFileSync(join(work, '.git/config'), 'utf8');
    const formats = ['objectformat = sha256', 'refstorage = reftable', 'partialclone = origin', 'strange = 1'];
    for (const line of formats) {
      writeFileSync(join(work, '.git/config'), `${config}[extensions]\n\t${line}\n`);
      expect(open, line).toThrow(/cannot add a branch/);
    }
    writeFileSync(join(work, '.git/config'), config);
    open();
    mkdirSync(join(home, 'elsewhere'));
    rmSync(join(work, '.git/refs'), { recursive: true });
    symlinkSync(join(home, 'elsewhere'), join(work, '.git/refs'));
    expect(open).toThrow(/cannot add a branch/);
    expect(() => HostRepository.open(home, uid)).toThrow(/not the top of a git repository/);
  });

  it('of a linked worktree is the one that names the worktree, and no other', async () => {
    const main = work;
    git('worktree', 'add', '-q', join(home, 'linked'));
    work = join(home, 'linked');
    const tip = await add('fix');
    expect(git('rev-parse', 'fix')).toBe(tip);
    expect(existsSync(join(main, '.git/refs/heads/fix'))).toBe(true);
    // A directory whose `.git` file names the repository of another one.
    mkdirSync(join(home, 'evil'));
    writeFileSync(join(home, 'evil/.git'), readFileSync(join(work, '.git')));
    expect(() => HostRepository.open(join(home, 'evil'), uid)).toThrow(/does not lead to the repository/);
  });

  it('may be shallow', async () => {
    write('a.txt', 'two\n');
    commit('next');
    git('clone', '-q', '--depth=1', `file://${work}`, join(home, 'shallow'));
    work = join(home, 'shallow');
    const tip = await add('fix');
    expect(git('rev-parse', 'fix')).toBe(tip);
    expect(git('fsck', '--full')).toBe('');
  });

  it('lists packed refs', () => {
    const id = 'b'.repeat(40);
    const text = `# pack-refs with: peeled fully-peeled sorted \n${id} refs/heads/x\n${id} refs/tags/v1\n^${id}\n`;
    expect([...parsePackedRefs(text).keys()]).toEqual(['refs/heads/x', 'refs/tags/v1']);
    expect(() => parsePackedRefs(`${id}\trefs/heads/x\n`)).toThrow(/not a ref/);
  });
});
