import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  appendFileSync,
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import type { ForkChange } from '../../contract/fork.ts';
import { forgetBase, recordBase } from './base.ts';
import type { BaseLimits, BaseReport } from './base.ts';
import { ForkDiff } from './diff.ts';
import type { ForkDiffEntry } from './diff.ts';
import { home, useLayers, write } from './layered.test.support.ts';
import { LayerStack } from './layers.ts';
import { UnreadableLayersError, makeMarks } from './marks.ts';
import type { NewMark } from './marks.ts';

const signal = new AbortController().signal;

useLayers();
let workspace: string;

beforeEach(() => {
  workspace = join(home, 'w');
});

async function mark(layer: string, ...marks: Pick<NewMark, 'path' | 'kind'>[]): Promise<void> {
  await makeMarks(
    join(home, layer),
    marks.map(one => ({ ...one, mode: 0o755 })),
    { scratch: home, signal },
  );
}

interface Asked {
  readonly uppers?: readonly string[];
  readonly masked?: readonly string[];
  readonly base?: boolean;
  readonly tar?: string;
}

async function open({ uppers = ['1', '2'], masked = [], base = false, tar }: Asked = {}): Promise<ForkDiff> {
  return ForkDiff.open(
    { workspace, uppers: uppers.map(upper => join(home, upper)), masked },
    { scratch: home, signal, ...(base ? { base: join(home, 'base') } : {}), ...(tar === undefined ? {} : { tar }) },
  );
}

async function entries(asked?: Asked): Promise<ForkDiffEntry[]> {
  const diff = await open(asked);
  const found: ForkDiffEntry[] = [];
  for await (const entry of diff) found.push(entry);
  return found;
}

async function changes(asked?: Asked): Promise<readonly ForkChange[]> {
  using diff = await open(asked);
  return (await diff.collect('k7m2x9qd')).changes;
}

async function brief(asked?: Asked): Promise<string[]> {
  return (await changes(asked)).map(({ path, change, kind }) => `${change} ${kind} ${path}`);
}

async function record(
  index: number,
  startedMs: number,
  { isLive = false, ...limits }: Partial<BaseLimits> & { isLive?: boolean } = {},
): Promise<BaseReport> {
  const uppers = ['1', '2'].slice(0, index + 1).map(upper => join(home, upper));
  using stack = await LayerStack.open({ workspace, uppers, masked: [] }, { scratch: home, signal });
  return recordBase(stack, {
    index,
    number: index + 1,
    startedMs,
    directory: join(home, 'base'),
    signal,
    isLive,
    ...(limits.records === undefined ? {} : { limits: limits as BaseLimits }),
  });
}

// Long enough that a later change has a later time by every clock.
async function later(): Promise<number> {
  await setTimeout(40);
  return Date.now();
}

describe('the diff of a fork', () => {
  it('takes marks of every layer into account', async () => {
    write('w', {
      'kept/a': 'a',
      'gone/a': 'a',
      'gone/b/c': 'c',
      'emptied/a': 'a',
      'twice/a': 'a',
      file: 'x',
      same: 's',
    });
    write('1', { 'emptied/new': 'n', same: 's', 'kept/added': '1' });
    await mark(
      '1',
      { path: 'gone', kind: 'whiteout' },
      { path: 'emptied', kind: 'opaque' },
      { path: 'twice', kind: 'whiteout' },
    );
    // A directory over a whiteout of the layer below is not opaque itself.
    write('2', { 'twice/b': 'b', 'file/inside': 'i', 'kept/added': '2' });
    expect(await brief()).toEqual([
      'deleted file emptied/a',
      'added file emptied/new',
      'changed directory file',
      'added file file/inside',
      'deleted directory gone',
      'deleted file gone/a',
      'deleted directory gone/b',
      'deleted file gone/b/c',
      'added file kept/added',
      'deleted file twice/a',
      'added file twice/b',
    ]);
  });

  it('compares contents, and believes no time', async () => {
    write('w', { equal: 'same', other: 'abcd', mode: 'm', 'data.bin': 'x' });
    write('1', { equal: 'same', other: 'efgh', mode: 'm', 'data.bin': Buffer.from([1, 0, 2]) });
    for (const layer of ['w', '1']) utimesSync(join(home, layer, 'other'), 1000, 1000);
    chmodSync(join(home, 'w/mode'), 0o644);
    chmodSync(join(home, '1/mode'), 0o4755);
    symlinkSync('to', join(workspace, 'link'));
    symlinkSync('fro', join(home, '1/link'));
    const [data, link, mode, other, ...more] = await changes();
    expect(more).toEqual([]);
    expect(data).toMatchObject({ path: 'data.bin', binary: true, bytes: { before: 1, after: 3 } });
    expect(link).toEqual({ path: 'link', change: 'changed', kind: 'link', link: { before: 'to', after: 'fro' } });
    expect(mode).toMatchObject({ path: 'mode', mode: { before: 0o644, after: 0o4755 } });
    expect(other).toMatchObject({ path: 'other', change: 'changed', binary: false });
  });

  it('lists FIFOs, sockets, holes and odd names without opening, reading or mangling them', async () => {
    const odd = Buffer.concat([Buffer.from(join(home, '1')), Buffer.from('/\xff\\é\n', 'latin1')]);
    writeFileSync(odd, 'x');
    write('1', { hole: '', 'new\nline': 'n', ['n'.repeat(255)]: '', ä: '' });
    truncateSync(join(home, '1/hole'), 2 ** 42);
    execFileSync('mkfifo', [join(home, '1/fifo')]);
    const server = createServer().listen(join(home, '1/socket'));
    const found = await changes();
    server.close();
    expect(found.map(({ path, kind, gap, unreadableName }) => [path, kind, gap ?? unreadableName ?? null])).toEqual([
      ['fifo', 'fifo', null],
      ['hole', 'file', 'sparse'],
      ['new\nline', 'file', null],
      ['n'.repeat(255), 'file', null],
      ['socket', 'socket', null],
      ['ä', 'file', null],
      [String.raw`\377\\` + '\\351\n', 'file', true],
    ]);
  });

  it.skipIf(process.getuid?.() === 0)('follows no link on the way, and reports what it may not read', async () => {
    write('w', { 'd/a': 'a' });
    mkdirSync(join(home, 'secret'));
    write('secret', { a: 'outside' });
    symlinkSync(join(home, 'secret'), join(home, '1/d'));
    write('1', { closed: 'c', 'shut/in': 'i' });
    chmodSync(join(home, '1/closed'), 0);
    chmodSync(join(home, '1/shut'), 0);
    expect(await changes()).toMatchObject([
      { path: 'closed', gap: 'unreadable' },
      { path: 'd', change: 'changed', kind: 'link', before: 'directory' },
      { path: 'd/a', change: 'deleted' },
      { path: 'shut', kind: 'directory', gap: 'unreadable' },
    ]);
  });

  it('has an id that changes with any content, and with nothing else', async () => {
    write('1', { a: 'one' });
    const id = async (): Promise<string> => {
      using diff = await open();
      return (await diff.collect('k7m2x9qd')).id;
    };
    const first = await id();
    utimesSync(join(home, '1/a'), 1000, 1000);
    expect(await id()).toBe(first);
    write('2', { a: 'one' });
    expect(await id()).toBe(first);
    write('2', { a: 'two' });
    expect(await id()).not.toBe(first);
  });

  it('keeps masked paths apart', async () => {
    write('w', { '.env': 'secret', 'gone/.env': 'secret', 'gone/a': 'a' });
    write('1', { '.env': 'written' });
    await mark('1', { path: 'gone', kind: 'whiteout' });
    using diff = await open({ masked: ['.env', 'gone/.env'] });
    const { changes: found, masked } = await diff.collect('k7m2x9qd');
    expect(found.map(({ path, change }) => `${change} ${path}`)).toEqual(['deleted gone/a']);
    expect(masked).toEqual(['.env', 'gone/.env']);
  });

  it('fails where marks cannot be read', async () => {
    write('w', { 'a/b': 'b' });
    write('1', { 'a/c': 'c' });
    // A program that knows nothing of extended attributes.
    writeFileSync(
      join(home, 'tar'),
      '#!/bin/sh\nfor word; do shift; case $word in --xattrs*) ;; *) set -- "$@" "$word" ;; esac; done\nexec tar "$@"\n',
    );
    chmodSync(join(home, 'tar'), 0o755);
    await expect(open({ tar: join(home, 'tar') })).rejects.toThrow(UnreadableLayersError);
    await expect(open({ tar: join(home, 'missing') })).rejects.toThrow(UnreadableLayersError);
    expect(await brief()).toEqual(['added file a/c']);
  });

  it('reads the program that reads marks to its end, and does not wait for one that has none', async () => {
    write('w', { 'a/b': 'b' });
    write('1', { 'a/c': 'c' });
    const tar = join(home, 'tar');
    writeFileSync(tar, '#!/bin/sh\ntar "$@" && case $1 in -c) head -c 1000000 /dev/zero ;; esac\n', { mode: 0o755 });
    expect(await brief({ tar })).toEqual(['added file a/c']);
    writeFileSync(tar, '#!/bin/sh\nsleep 5\n');
    const controller = new AbortController();
    const layers = { workspace, uppers: [join(home, '1')], masked: [] };
    const opened = ForkDiff.open(layers, { scratch: home, signal: controller.signal, tar });
    controller.abort(new Error('enough'));
    await expect(opened).rejects.toThrow('enough');
  });

  it('reports a file that changes while it is read, and ends', async () => {
    write('1', { growing: Buffer.alloc(64 * 1024 ** 2, 1), still: 'still' });
    using diff = await open();
    let isOver = false;
    const collected = diff.collect('k7m2x9qd').finally(() => {
      isOver = true;
    });
    while (!isOver) {
      appendFileSync(join(home, '1/growing'), 'more');
      await setImmediate();
    }
    const { changes: found, gaps } = await collected;
    expect(found.map(({ path, gap }) => [path, gap])).toEqual([
      ['growing', 'unstable'],
      ['still', undefined],
    ]);
    expect(gaps).toBe(1);
  });

  it('stops at a signal', async () => {
    write('1', { a: 'a' });
    const controller = new AbortController();
    using diff = await ForkDiff.open(
      { workspace, uppers: [join(home, '1')], masked: [] },
      { scratch: home, signal: controller.signal },
    );
    controller.abort(new Error('enough'));
    await expect(diff.collect('k7m2x9qd')).rejects.toThrow('enough');
  });

  it('leaves nothing of its own beside the layers', async () => {
    write('w', { 'a/b': 'b' });
    write('1', { 'a/c': 'c' });
    await changes();
    expect(readdirSync(home).sort()).toEqual(['1', '2', 'base', 'w']);
  });
});

describe('the base of a fork', () => {
  it('is what the fork began with, whatever the host does later', async () => {
    write('w', { changed: 'old', removed: 'old', 'dir/a': 'a', 'dir/b': 'b' });
    const started = await later();
    write('1', { changed: 'fork', added: 'fork' });
    await mark('1', { path: 'removed', kind: 'whiteout' }, { path: 'dir', kind: 'whiteout' });
    expect(await record(0, started)).toMatchObject({ copied: 1, unknown: 0, isComplete: true });
    const before = await changes({ base: true });
    expect(before.map(({ path, baseUnknown }) => [path, baseUnknown])).toEqual(
      ['added', 'changed', 'dir', 'dir/a', 'dir/b', 'removed'].map(path => [path, undefined]),
    );
    await later();
    write('w', { changed: 'host', removed: 'host', added: 'host', 'dir/a': 'host', 'dir/c': 'host' });
    const found = await entries({ base: true });
    expect(found.map(({ change: { path, change, baseUnknown } }) => [path, change, baseUnknown])).toEqual([
      ['added', 'added', undefined],
      ['changed', 'changed', undefined],
      ['dir', 'deleted', undefined],
      // The host’s own, of which the fork knew nothing.
      ['dir/a', 'deleted', true],
      ['dir/b', 'deleted', undefined],
      ['dir/c', 'deleted', true],
      ['removed', 'deleted', true],
    ]);
    const contents = await Promise.all(
      found.slice(0, 2).map(async entry => {
        await using base = await entry.openBase();
        await using own = await entry.open();
        return [await base?.readFile('utf8'), await own.readFile('utf8')];
      }),
    );
    expect(contents).toEqual([
      [undefined, 'fork'],
      ['old', 'fork'],
    ]);
  });

  it('is unknown for what changed while the command ran', async () => {
    const started = await later();
    write('w', { raced: 'host' });
    write('1', { raced: 'fork' });
    expect(await record(0, started)).toMatchObject({ unknown: 1, copied: 0 });
    expect(await changes({ base: true })).toMatchObject([{ path: 'raced', baseUnknown: true }]);
  });

  it('is unknown for files of a directory that the host put there while the command ran', async () => {
    write('w', { 'sub/f': 'old', 'new/f': 'new' });
    const started = await later();
    write('1', { 'sub/f': 'fork' });
    execFileSync('sh', ['-c', 'mv sub gone && mv new sub'], { cwd: workspace });
    await record(0, started);
    expect(await changes({ base: true })).toMatchObject([{ path: 'sub/f', baseUnknown: true }]);
  });

  it('belongs to the first layer that changed a path, and goes with it', async () => {
    write('w', { a: 'first' });
    const first = await later();
    write('1', { a: 'one' });
    await record(0, first);
    await later();
    write('w', { a: 'second', b: 'second' });
    const second = await later();
    write('2', { a: 'two', b: 'two' });
    expect(await record(1, second)).toMatchObject({ recorded: 1 });
    expect(await record(1, second)).toMatchObject({ recorded: 0 });
    const baseOf = async (): Promise<(string | undefined)[]> =>
      Promise.all(
        (await entries({ base: true })).map(async entry => {
          await using base = await entry.openBase();
          return base?.readFile('utf8');
        }),
      );
    expect(await baseOf()).toEqual(['first', 'second']);
    await forgetBase(join(home, 'base'), 2);
    expect(existsSync(join(home, 'base/2'))).toBe(false);
    expect(await record(1, second)).toMatchObject({ recorded: 1, copied: 1 });
    expect(await baseOf()).toEqual(['first', 'second']);
  });

  it('keeps within its limits, and says so', async () => {
    write('w', { a: 'aaaa', b: 'bb', c: 'c' });
    const started = await later();
    write('1', { a: 'A', b: 'B', c: 'C' });
    const report = await record(0, started, { records: 2, fileBytes: 3, totalBytes: 100, unmergeableBytes: 100 });
    expect(report).toEqual({ recorded: 2, copied: 1, unknown: 0, isComplete: false });
    expect((await changes({ base: true })).every(change => change.baseUnknown === undefined)).toBe(true);
    await later();
    write('w', { a: 'host', b: 'host', c: 'host' });
    const found = await changes({ base: true });
    expect(found.map(({ path, baseUnknown }) => [path, baseUnknown])).toEqual([
      ['a', true],
      ['b', undefined],
      ['c', true],
    ]);
  });

  it('takes little space where most of a file stays, and is the whole file where a sandbox goes on writing', async () => {
    const lines = Array.from({ length: 4000 }, (_, line) => `line ${line}\n`);
    const files = Array.from({ length: 20 }, (_, at) => [`f${at}`, `${at}\n${lines.join('')}`] as const);
    write('w', Object.fromEntries(files));
    const started = await later();
    write(
      '1',
      Object.fromEntries(files.map(([name, text]) => [name, `${text.replace('line 2000', 'changed')}more\n`])),
    );
    await record(0, started);
    const stored = (): number =>
      readdirSync(join(home, 'base'))
        .filter(name => !name.endsWith('.own'))
        .reduce((sum, name) => sum + lstatSync(join(home, 'base', name)).size, 0);
    expect(stored()).toBeLessThan(20_000 * files.length);
    await later();
    write('w', Object.fromEntries(files.map(([name]) => [name, 'host'])));
    const contents = async (): Promise<(string | undefined)[]> =>
      Promise.all(
        (await entries({ base: true })).map(async entry => {
          await using base = await entry.openBase();
          return base?.readFile('utf8');
        }),
      );
    const wanted = [...files].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, text]) => text);
    expect(await contents()).toEqual(wanted);
    // What a live layer has now is not what it will have.
    rmSync(join(home, 'base'), { recursive: true });
    mkdirSync(join(home, 'base'));
    write('w', Object.fromEntries(files));
    await record(0, (await later()) + 1, { isLive: true });
    expect(readdirSync(join(home, 'base')).filter(name => name.endsWith('.own'))).toEqual([]);
    write('1', Object.fromEntries(files.map(([name]) => [name, 'written later'])));
    expect(await contents()).toEqual(wanted);
  });

  it('survives half a line', async () => {
    write('w', { a: 'a' });
    const started = await later();
    write('1', { a: 'A' });
    await record(0, started);
    const index = join(home, 'base/index');
    writeFileSync(index, readFileSync(index, 'utf8').slice(0, -20));
    await record(0, started);
    await later();
    write('w', { a: 'host' });
    expect(await changes({ base: true })).toMatchObject([{ path: 'a', bytes: { before: 1 } }]);
    expect(lstatSync(index).mode & 0o777).toBe(0o600);
  });

  it('is known by its digest where a file was replaced as a whole, of which there are many', async () => {
    const random = (): string => randomBytes(150_000).toString('hex');
    const names = ['a', 'b', 'c', 'd'];
    const files = Object.fromEntries(names.map(name => [name, random()]));
    write('w', files);
    const started = await later();
    write('1', Object.fromEntries(names.map(name => [name, random()])));
    expect(await record(0, started)).toMatchObject({ recorded: 4, copied: 1 });
    await later();
    // The same content in a new file, and another one.
    for (const name of names) unlinkSync(join(workspace, name));
    write('w', { ...files, d: random() });
    const found = await entries({ base: true });
    expect(found.map(({ change: { path, change, baseUnknown } }) => [path, change, baseUnknown])).toEqual(
      names.map(name => [name, 'changed', undefined]),
    );
    const contents = await Promise.all(
      found.map(async entry => {
        await using base = await entry.openBase();
        return base?.readFile('utf8');
      }),
    );
    expect(contents).toEqual([files['a'], files['b'], files['c'], undefined]);
    // A later command that puts it back has changed nothing.
    write('2', { b: files['b'] ?? '', d: files['d'] ?? '' });
    expect((await changes({ base: true })).map(({ path }) => path)).toEqual(['a', 'c']);
  });
});
