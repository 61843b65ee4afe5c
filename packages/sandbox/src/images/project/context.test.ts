// Build context of a project image: on a real file system, with everything in it that tries to escape.

import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { archiveStream } from './building.ts';
import { hashContents } from './contents.ts';
import { MAX_BYTES, MAX_FILES, readContext, readIgnoreFile } from './context.ts';
import type { Context } from './context.ts';
import { IgnoreRules } from './pattern.ts';
import { Stage } from './stage.ts';

const signal = new AbortController().signal;
let top = '';
let root = '';

beforeEach(() => {
  top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-context-')));
  root = join(top, 'project');
  mkdirSync(root);
});

afterEach(() => rmSync(top, { recursive: true, force: true }));

function put(path: string, content = path, mode = 0o644): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), content, { mode });
  chmodSync(join(root, path), mode);
}

async function look(more: Partial<Parameters<typeof readContext>[1]> = {}): Promise<Context> {
  const ignore = IgnoreRules.parse(await readIgnoreFile(root));
  return readContext(root, { mostBytes: MAX_BYTES, mostFiles: MAX_FILES, ignore, linksOut: false, ...more }, signal);
}

function store(): { file: string; uid: number } {
  return { file: join(top, 'state', 'x.hashes'), uid: process.getuid?.() ?? 0 };
}

async function archiveOf(context: Context): Promise<Buffer> {
  const hashes = await hashContents(context, store(), signal);
  const chunks: Buffer[] = [];
  for await (const chunk of archiveStream({ template: 'FROM x\n', context, hashes })) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

const refusal = (path: string): object =>
  expect.objectContaining({
    code: 'ACODE-IMG-002',
    context: expect.objectContaining({ path, remedy: expect.stringMatching(/\.$/) }),
  });

describe('a context', () => {
  it('has the project’s files in order, and none of its secrets, whatever is brought back', async () => {
    put('src/index.js');
    put('run.sh', '#!/bin/sh\n', 0o4755);
    put('private.txt', 'x', 0o600);
    put('.env', 'KEY=secret');
    put('sub/.env.local', 'KEY=secret');
    put('.git/config');
    put('id_rsa');
    put('.dockerignore', '!.env\n!**/.env.local\n!.git/config\n');
    const { entries, withheld, bytes } = await look();
    expect(entries.map(({ path, mode }) => [path, mode.toString(8)])).toEqual([
      ['.dockerignore', '644'],
      ['private.txt', '644'],
      ['run.sh', '755'],
      ['src', '755'],
      ['src/index.js', '644'],
      ['sub', '755'],
    ]);
    expect(withheld).toEqual(['.env', '.git', 'id_rsa', 'sub/.env.local']);
    expect(bytes).toBe(entries.reduce((sum, { size }) => sum + size, 0));
  });

  it('leaves out what is masked, at its path and wherever else it is', async () => {
    for (const path of ['a.txt', 'dir/b.txt', 'c.txt', 'd.txt', 'plain.txt']) put(path, 'x');
    const one = (path: string) => {
      const { dev: device, ino: inode } = lstatSync(join(root, path));
      return { path, device, inode };
    };
    const masked = ['a.txt', 'dir', 'c.txt', 'd.txt'].map(one);
    linkSync(join(root, 'a.txt'), join(root, 'second.txt'));
    // Renamed since it was found, and replaced since.
    renameSync(join(root, 'c.txt'), join(root, 'moved.txt'));
    rmSync(join(root, 'd.txt'));
    put('d.txt', 'y');
    const { entries, withheld } = await look({ masked });
    expect(entries.map(({ path }) => path)).toEqual(['plain.txt']);
    expect(withheld.toSorted()).toEqual(['a.txt', 'd.txt', 'dir', 'moved.txt', 'second.txt']);
    expect((await look()).entries).toHaveLength(7);
  });

  it('has no secret under a second name either', async () => {
    put('.env', 'KEY=secret');
    linkSync(join(root, '.env'), join(root, 'harmless.txt'));
    linkSync(join(root, '.env'), join(root, '.a-first.txt'));
    symlinkSync('.env', join(root, 'link.txt'));
    const context = await look();
    expect(context.entries.map(({ path, target }) => [path, target])).toEqual([['link.txt', '.env']]);
    expect((await archiveOf(context)).includes('KEY=secret')).toBe(false);
  });

  it('has no file of a directory of secrets under a second name', async () => {
    put('.ssh/keys/laptop', 'KEY=secret');
    put('.git/objects/aa/bb', 'KEY=secret');
    put('plain.txt', 'harmless');
    linkSync(join(root, '.ssh/keys/laptop'), join(root, 'notes.txt'));
    linkSync(join(root, '.git/objects/aa/bb'), join(root, 'more.txt'));
    // The control: a second name alone is no reason.
    linkSync(join(root, 'plain.txt'), join(root, 'second.txt'));
    const context = await look();
    expect(context.entries.map(({ path }) => path)).toEqual(['plain.txt', 'second.txt']);
    expect(context.withheld).toEqual(['.git', '.ssh', 'more.txt', 'notes.txt']);
    expect(context.bytes).toBe(16);
    expect((await archiveOf(context)).includes('KEY=secret')).toBe(false);
  });

  it.each(['.wh.passwd', 'sub/.wh..wh..opq', '.wh.'])(
    'with a file called %s is refused: layers mean it',
    async name => {
      put('sub/a');
      put(name);
      await expect(look()).rejects.toEqual(refusal(name));
      // Also where an install command has made it.
      await expect(look({ ignore: null, linksOut: true })).rejects.toEqual(refusal(name));
      // The controls: what is left out does no harm, nor does a name that is only like it.
      put('.dockerignore', `${name}\n`);
      await expect(look()).resolves.toMatchObject({ withheld: [] });
      put('.dockerignore', `${name}\n.dockerignore\n`);
      put('.whatever');
      expect((await look()).entries.map(({ path }) => path)).toEqual(['.whatever', 'sub', 'sub/a']);
    },
  );

  it('honours the .dockerignore, with exceptions', async () => {
    for (const path of ['node_modules/a.js', 'dist/a.js', 'dist/keep/b.js', 'a.log', 'sub/b.log', 'main.js']) put(path);
    put('.dockerignore', 'node_modules\ndist\n!dist/keep\n**/*.log\n.dockerignore\n');
    expect((await look()).entries.map(({ path }) => path)).toEqual(['dist/keep', 'dist/keep/b.js', 'main.js', 'sub']);
  });

  it.each([
    ['/etc/passwd', true],
    ['../outside', true],
    ['sub/../../outside', true],
    ['sub/inside', false],
    ['nowhere', false],
  ])('with a link to %s is refused: %s', async (target, isRefused) => {
    put('sub/inside');
    writeFileSync(join(top, 'outside'), 'of the host');
    symlinkSync(target, join(root, 'a-link'));
    if (isRefused) await expect(look()).rejects.toEqual(refusal('a-link'));
    else expect((await look()).entries[0]).toMatchObject({ kind: 'link', target });
    // What is left out can lead wherever it likes.
    put('.dockerignore', 'a-link\n');
    await expect(look()).resolves.toMatchObject({ bytes: expect.any(Number) });
  });

  it('never follows a directory that is a link', async () => {
    mkdirSync(join(top, 'outside'));
    writeFileSync(join(top, 'outside', 'secret'), 'of the host');
    mkdirSync(join(root, 'inside'));
    writeFileSync(join(root, 'inside', 'x'), 'x');
    symlinkSync('inside', join(root, 'way'));
    expect((await look()).entries.map(({ path }) => path)).toEqual(['inside', 'inside/x', 'way']);
  });

  it('has no FIFO, and does not wait for one', async () => {
    execFileSync('mkfifo', [join(root, 'pipe')]);
    expect(await look()).toMatchObject({ entries: [], withheld: ['pipe'] });
  });

  it('that is too large, or of too many files, is refused with a way on', async () => {
    put('a.bin', 'x'.repeat(1000));
    put('b.bin', 'x'.repeat(1000));
    await expect(look({ mostBytes: 2000, mostFiles: 2 })).resolves.toMatchObject({ bytes: 2000 });
    await expect(look({ mostBytes: 1999 })).rejects.toEqual(refusal('b.bin'));
    await expect(look({ mostFiles: 1 })).rejects.toEqual(refusal('b.bin'));
    put('.dockerignore', 'b.bin\n.dockerignore');
    await expect(look({ mostBytes: 1999, mostFiles: 1 })).resolves.toMatchObject({ bytes: 1000 });
  });

  it('is cancelled when the caller asks, however few and slow the names are', async () => {
    for (let n = 0; n < 40; n += 1) put(`${'a'.repeat(200)}${n}`);
    // Each name takes some milliseconds under these.
    put('.dockerignore', Array.from({ length: 12 }, (_, n) => `${'*a'.repeat(480)}${n}`).join('\n'));
    const rules = { mostBytes: MAX_BYTES, mostFiles: MAX_FILES, linksOut: false };
    const ignore = IgnoreRules.parse(await readIgnoreFile(root));
    // The control: nothing else is wrong with it.
    expect((await readContext(root, { ...rules, ignore }, signal)).entries).toHaveLength(41);
    const controller = new AbortController();
    setImmediate(() => controller.abort(new Error('enough')));
    await expect(readContext(root, { ...rules, ignore }, controller.signal)).rejects.toThrow('enough');
  });

  it('that is deeper than any project is refused', async () => {
    mkdirSync(join(root, 'd/'.repeat(105)), { recursive: true });
    await expect(look()).rejects.toMatchObject({ code: 'ACODE-IMG-002' });
  });

  it('is refused where its .dockerignore is a link, a FIFO or huge', async () => {
    const file = join(root, '.dockerignore');
    symlinkSync('/etc/passwd', file);
    await expect(readIgnoreFile(root)).rejects.toEqual(refusal('.dockerignore'));
    rmSync(file);
    execFileSync('mkfifo', [file]);
    await expect(readIgnoreFile(root)).rejects.toEqual(refusal('.dockerignore'));
    rmSync(file);
    writeFileSync(file, '#'.repeat(300_000));
    await expect(readIgnoreFile(root)).rejects.toEqual(refusal('.dockerignore'));
    rmSync(file);
    await expect(readIgnoreFile(root)).resolves.toBe('');
  });
});

describe('an archive', () => {
  it('is the same bytes for the same files, whatever their times', async () => {
    put('a', 'one');
    put('b/c', 'two');
    const before = await archiveOf(await look());
    utimesSync(join(root, 'a'), 1, 1);
    expect((await archiveOf(await look())).equals(before)).toBe(true);
    put('a', 'other');
    expect((await archiveOf(await look())).equals(before)).toBe(false);
  });

  it('has the template beside the project, never a Dockerfile of the project in its place', async () => {
    put('Dockerfile', 'FROM evil\nRUN id\n');
    const archive = await archiveOf(await look());
    const names = execFileSync('tar', ['-tf', '-'], { input: archive }).toString().trim().split('\n');
    expect(names).toEqual(['Dockerfile', 'project/', 'project/Dockerfile']);
    expect(execFileSync('tar', ['-xOf', '-', 'Dockerfile'], { input: archive }).toString()).toBe('FROM x\n');
  });

  it.each([
    [
      'is another file',
      () => (writeFileSync(join(root, 'a.new'), 'one'), renameSync(join(root, 'a.new'), join(root, 'a'))),
    ],
    ['is a link out', () => (rmSync(join(root, 'a')), symlinkSync('/etc/passwd', join(root, 'a')))],
    ['is written to', () => writeFileSync(join(root, 'a'), 'two')],
    ['was removed', () => rmSync(join(root, 'a'))],
    ['is a FIFO', () => (rmSync(join(root, 'a')), execFileSync('mkfifo', [join(root, 'a')]))],
  ])('fails if a file %s since it was found', async (_what, change) => {
    put('a', 'one');
    const context = await look();
    await expect(archiveOf(context)).resolves.toBeInstanceOf(Buffer);
    await new Promise(resolve => setTimeout(resolve, 20));
    change();
    await expect(archiveOf(context)).rejects.toEqual(refusal('a'));
  });
});

describe('hashing', () => {
  it('of many small files hears between two of them that it is cancelled', async () => {
    for (let n = 0; n < 60; n += 1) put(`file${n}`, `${n}`.padEnd(200_000, 'x'));
    const context = await look();
    const controller = new AbortController();
    let asked = false;
    const [first, ...rest] = context.entries;
    if (!first) throw new TypeError('there are files');
    // Cancelled while it is read: callers cancel while the hashing is under way, and not before.
    const watched = Object.defineProperty({ ...first }, 'size', {
      get: () => {
        if (!asked) setImmediate(() => controller.abort(new Error('enough')));
        asked = true;
        return first.size;
      },
    });
    const hashing = hashContents({ ...context, entries: [watched, ...rest] }, store(), controller.signal);
    await expect(hashing).rejects.toThrow('enough');
    expect((await hashContents(context, store(), signal)).size).toBe(60);
  });
});

describe('hashes that are kept', () => {
  it('are used for what has not changed, and for nothing else', async () => {
    put('a', 'one');
    put('b', 'two');
    // Kept only once nothing can change unnoticed any more.
    await new Promise(resolve => setTimeout(resolve, 2100));
    const first = await hashContents(await look(), store(), signal);
    const kept = readFileSync(store().file, 'utf8');
    expect(kept.trim().split('\n')).toHaveLength(2);
    writeFileSync(store().file, kept.replaceAll(/ [0-9a-f]{64}/g, ` ${'f'.repeat(64)}`));
    const again = await hashContents(await look(), store(), signal);
    expect([...again.values()]).toEqual(['f'.repeat(64), 'f'.repeat(64)]);
    // Same size, and a time of its own choice: the kernel’s own still tells.
    writeFileSync(join(root, 'a'), 'neo');
    utimesSync(join(root, 'a'), 1, 1);
    const third = await hashContents(await look(), store(), signal);
    expect(third.get('a')).not.toBe(first.get('a'));
    expect(third.get('a')).not.toBe('f'.repeat(64));
    expect(third.get('b')).toBe('f'.repeat(64));
    // Written by others, it is no memory.
    chmodSync(store().file, 0o666);
    expect((await hashContents(await look(), store(), signal)).get('b')).toBe(first.get('b'));
  });
});

describe('a stage', () => {
  it('is a copy that is removed afterwards, whatever was done with it', async () => {
    put('sub/run.sh', '#!/bin/sh\n', 0o755);
    symlinkSync('sub/run.sh', join(root, 'way'));
    const context = await look();
    const left: unknown[] = [];
    const stage = await Stage.of(
      context,
      await hashContents(context, store(), signal),
      { host: 'here', left: what => left.push(what) },
      signal,
    );
    const copy = await readContext(stage.root, { mostBytes: 1e6, mostFiles: 10, ignore: null, linksOut: true }, signal);
    expect(copy.entries.map(({ path, mode, target }) => [path, mode, target])).toEqual(
      context.entries.map(({ path, mode, target }) => [path, mode, target]),
    );
    mkdirSync(join(stage.root, 'closed', 'inner'), { recursive: true });
    chmodSync(join(stage.root, 'closed'), 0o000);
    await stage[Symbol.asyncDispose]();
    expect(() => realpathSync(stage.root)).toThrow('ENOENT');
    expect(left).toEqual([]);
  });
});
