// Archives that were made to do harm: what must not happen does not, and the good entry beside it arrives wherever anything may.

import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AcodeError } from '../../contract/errors.ts';
import type { TransferOptions, TransferReport } from '../../contract/sandbox.ts';
import type { Inside } from '../../isolation/backend.ts';
import { filesOf } from './files.ts';

let home: string;
let target: string;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'arrival-'));
  target = join(home, 'target');
  writeFileSync(join(home, 'outside'), 'untouched');
});

afterEach(() => {
  // Whatever was tried, beside the target nothing has changed and nothing was left.
  const beside = readdirSync(home).filter(name => name !== 'target' && name !== 'elsewhere');
  if (beside.join() !== 'outside') throw new Error(`beside the target: ${beside.join()}`);
  if (readFileSync(join(home, 'outside'), 'utf8') !== 'untouched') throw new Error('what is outside was touched');
  rmSync(home, { recursive: true, force: true });
});

interface Raw {
  readonly name: string;
  readonly type?: string;
  readonly content?: string | Buffer;
  readonly mode?: number;
  readonly link?: string;
  /** In place of the size that is right. */
  readonly size?: number | string | Buffer;
  readonly prefix?: string;
  readonly checksum?: number;
}

// By hand, so that whatever a program would not write can be written.
function entry({ name, type = '0', content = '', mode = 0o644, link = '', prefix = '', ...lies }: Raw): Buffer {
  const header = Buffer.alloc(512);
  const body = Buffer.from(content);
  const size = lies.size ?? body.length;
  header.write(name, 0, 100, 'latin1');
  header.write(`${mode.toString(8).padStart(7, '0')}\0`, 100, 'latin1');
  header.write('0000000\0'.repeat(2), 108, 'latin1');
  if (Buffer.isBuffer(size)) size.copy(header, 124);
  else header.write(typeof size === 'string' ? size : `${size.toString(8).padStart(11, '0')}\0`, 124, 'latin1');
  header.write('00000000000\0', 136, 'latin1');
  header.write('        ', 148, 'latin1');
  header.write(type, 156, 'latin1');
  header.write(link, 157, 100, 'latin1');
  header.write('ustar\u000000', 257, 'latin1');
  header.write(prefix, 345, 155, 'latin1');
  const sum = lies.checksum ?? header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return Buffer.concat([header, body, Buffer.alloc((512 - (body.length % 512)) % 512)]);
}

function record(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  let length = Buffer.byteLength(rest) + 1;
  while (Buffer.byteLength(`${length}${rest}`) !== length) length++;
  return `${length}${rest}`;
}

const END = Buffer.alloc(1024);
const GOOD = entry({ name: './good', content: 'good' });

// A sandbox whose tar says whatever is wanted of it. Nothing real would.
function insideSending(bytes: Buffer, exitCode = 0, stderr = ''): Inside {
  return {
    call: () => Promise.reject(new Error('nothing is called')),
    open: () => {
      const stdout = Readable.from(
        (function* () {
          // In chunks whose borders are nowhere in particular.
          for (let at = 0; at < bytes.length; at += 700) yield bytes.subarray(at, at + 700);
        })(),
        { objectMode: false },
      );
      const ended = new Promise<{ exitCode: number; stderr: string }>(resolve => {
        stdout.on('end', () => resolve({ exitCode, stderr }));
        stdout.on('close', () => resolve({ exitCode: 137, stderr }));
      });
      return Promise.resolve({
        stdout,
        ended,
        write: () => Promise.resolve(),
        closeStdin: () => Promise.resolve(),
        destroy: () => void stdout.destroy(),
      });
    },
  };
}

async function take(entries: readonly Buffer[], options: TransferOptions = {}): Promise<TransferReport> {
  return takeBytes(Buffer.concat([...entries, END]), options);
}

async function takeBytes(archive: Buffer, options: TransferOptions = {}): Promise<TransferReport> {
  const bytes = Buffer.concat([Buffer.from('directory\n'), archive]);
  return filesOf(insideSending(bytes), { workdir: '/workspace' }).download('/workspace/out', target, options);
}

async function refused(work: Promise<unknown>, code: 'ACODE-FIL-002' | 'ACODE-FIL-003'): Promise<string> {
  const error = await work.then(
    () => null,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(AcodeError);
  expect(error).toMatchObject({ code });
  // All or nothing: the good entry before it has not arrived either.
  expect(lstatSync(target, { throwIfNoEntry: false })).toBeUndefined();
  return (error as Error).message;
}

function arrived(): string[] {
  return readdirSync(target, { recursive: true, encoding: 'utf8' }).sort();
}

describe('a good archive', () => {
  it('arrives with files, directories, permissions and times', async () => {
    const report = await take([
      entry({ name: './', type: '5', mode: 0o700 }),
      entry({ name: './bin/', type: '5', mode: 0o755 }),
      entry({ name: './bin/run', content: 'x'.repeat(5000), mode: 0o755 }),
      entry({ name: './deep/er/file', content: '' }),
      GOOD,
    ]);
    expect(arrived()).toEqual(['bin', 'bin/run', 'deep', 'deep/er', 'deep/er/file', 'good']);
    expect(report).toEqual({ files: 3, directories: 1, bytes: 5004, skipped: [] });
    expect(lstatSync(join(target, 'bin/run')).mode & 0o700).toBe(0o700);
    expect(lstatSync(join(target, 'good')).mtimeMs).toBe(0);
  });

  it('arrives with long names in each form there is for them', async () => {
    const long = `${'d'.repeat(70)}/${'e'.repeat(70)}`;
    await take([
      entry({ name: '././@LongLink', type: 'L', content: `${long}/gnu\0` }),
      entry({ name: 'clipped', content: 'gnu' }),
      entry({ name: 'PaxHeader', type: 'x', content: record('path', `${long}/pax ü`) + record('size', '3') }),
      entry({ name: 'clipped', content: 'pax', size: 0 }),
      entry({ name: 'ustar', prefix: long, content: 'ustar' }),
      GOOD,
    ]);
    expect(readdirSync(join(target, long)).sort()).toEqual(['gnu', 'pax ü', 'ustar']);
    expect(readFileSync(join(target, long, 'pax ü'), 'utf8')).toBe('pax');
  });

  it('arrives with names that are no text', async () => {
    await take([Buffer.from(entry({ name: 'not \xff\xfe text', content: 'x' })), GOOD]);
    const names = readdirSync(target, { encoding: 'buffer' }).map(name => name.toString('latin1'));
    expect(names.sort()).toEqual(['good', 'not \xff\xfe text']);
  });

  it('is merged into a directory that is there, and replaces a link instead of following it', async () => {
    mkdirSync(join(target, 'sub'), { recursive: true });
    writeFileSync(join(target, 'sub/kept'), 'kept');
    writeFileSync(join(target, 'good'), 'old');
    symlinkSync('../outside', join(target, 'file'));
    await take([entry({ name: 'sub/new', content: 'new' }), entry({ name: 'file', content: 'new' }), GOOD]);
    expect(arrived()).toEqual(['file', 'good', 'sub', 'sub/kept', 'sub/new']);
    expect(readFileSync(join(target, 'good'), 'utf8')).toBe('good');
    expect(lstatSync(join(target, 'file')).isFile()).toBe(true);
  });
});

describe('names that lead elsewhere refuse all of it', () => {
  it.each([
    ['up', '../outside'],
    ['up from below', 'a/../../outside'],
    ['up and down again', 'a/../good'],
    ['up at the end', 'a/..'],
    ['from the root', '/tmp/outside'],
    ['from the root with many slashes', '//tmp/outside'],
  ])('%s', async (_, name) => {
    expect(await refused(take([GOOD, entry({ name, content: 'evil' })]), 'ACODE-FIL-002')).toContain('called');
    await expect(take([GOOD])).resolves.toMatchObject({ files: 1 });
  });

  it.each([
    ['of a directory', [entry({ name: '../evil/', type: '5' })]],
    ['of a link', [entry({ name: '../evil', type: '2', link: '/etc/passwd' })]],
    ['in a long form', [entry({ name: 'x', type: 'L', content: '../evil\0' }), entry({ name: 'fine', content: 'x' })]],
    ['in a record', [entry({ name: 'x', type: 'x', content: record('path', '../evil') }), entry({ name: 'fine' })]],
    ['in a prefix', [entry({ name: 'evil', prefix: '..', content: 'x' })]],
    ['with a NUL', [entry({ name: 'x', type: 'x', content: record('path', 'a\0/../evil') }), entry({ name: 'fine' })]],
  ])('%s', async (_, entries) => {
    expect(await refused(take([GOOD, ...entries]), 'ACODE-FIL-002')).toMatch(/called|NUL/);
  });
});

describe('what is neither a file nor a directory is left out and reported', () => {
  it.each([
    ['symbolic link', '2'],
    ['hard link', '1'],
    ['device', '3'],
    ['device', '4'],
    ['FIFO', '6'],
    ['entry of another kind', 'Z'],
  ])('a %s (%s)', async (kind, type) => {
    const report = await take([entry({ name: 'bad', type, link: '../outside' }), GOOD]);
    expect(report.skipped).toEqual([{ path: 'bad', reason: `it is ${kind.startsWith('e') ? 'an' : 'a'} ${kind}` }]);
    expect(arrived()).toEqual(['good']);
  });

  it('so that nothing is written through a link that came before', async () => {
    mkdirSync(join(home, 'elsewhere'));
    const report = await take([
      entry({ name: 'way', type: '2', link: '../elsewhere' }),
      entry({ name: 'way/evil', content: 'evil' }),
      entry({ name: 'file', type: '2', link: '../outside' }),
      entry({ name: 'file', content: 'evil' }),
      GOOD,
    ]);
    expect(readdirSync(join(home, 'elsewhere'))).toEqual([]);
    expect(report.skipped.map(({ path }) => path)).toEqual(['way', 'file']);
    // What the names say is made, and is a file and a directory of its own.
    expect(arrived()).toEqual(['file', 'good', 'way', 'way/evil']);
  });

  it('and bits that give privileges are dropped', async () => {
    await take([
      entry({ name: 'root', mode: 0o6755, content: 'x' }),
      entry({ name: 'd/', type: '5', mode: 0o7777 }),
      GOOD,
    ]);
    expect(lstatSync(join(target, 'root')).mode & 0o7000).toBe(0);
    expect(lstatSync(join(target, 'd')).mode & 0o7000).toBe(0);
    expect(lstatSync(join(target, 'root')).mode & 0o700).toBe(0o700);
  });

  it('a second entry of the same name, so that the first stands', async () => {
    const report = await take([GOOD, entry({ name: 'good', content: 'other' })]);
    expect(readFileSync(join(target, 'good'), 'utf8')).toBe('good');
    expect(report).toMatchObject({ files: 1, skipped: [{ path: 'good' }] });
  });

  it('a name that leads through a file', async () => {
    const report = await take([GOOD, entry({ name: 'good/below', content: 'x' }), entry({ name: 'good/', type: '5' })]);
    expect(report.skipped.map(({ path }) => path)).toEqual(['good/below', 'good']);
    expect(arrived()).toEqual(['good']);
  });
});

describe('bounds', () => {
  const three = [entry({ name: 'a', content: 'x'.repeat(100) }), entry({ name: 'b/', type: '5' }), GOOD];

  it.each([
    ['bytes', { maxBytes: 103 }, { maxBytes: 104 }],
    ['entries', { maxEntries: 2 }, { maxEntries: 3 }],
  ])('of %s hold exactly', async (_, less, enough) => {
    await refused(take(three, less), 'ACODE-FIL-003');
    await expect(take(three, enough)).resolves.toMatchObject({ files: 2, directories: 1 });
  });

  it('hold for what a header only says', async () => {
    const lying = Buffer.concat([GOOD, entry({ name: 'x', size: 8 ** 11 - 1 })]);
    expect(await refused(takeBytes(lying), 'ACODE-FIL-003')).toContain('4294967296 bytes');
  });

  it('hold for what is left out', async () => {
    const links = Array.from({ length: 20 }, (_, index) => entry({ name: `l${index}`, type: '2', link: 'x' }));
    await refused(take([GOOD, ...links], { maxEntries: 20 }), 'ACODE-FIL-003');
    const odd = [
      entry({ name: 'o', type: 'Z', content: 'x'.repeat(60) }),
      entry({ name: 'p', type: 'Z', content: 'x'.repeat(60) }),
    ];
    await refused(take([GOOD, ...odd], { maxBytes: 100 }), 'ACODE-FIL-003');
    await expect(take([GOOD, ...odd], { maxBytes: 124 })).resolves.toMatchObject({ files: 1 });
  });

  it('hold for the names of what is left out', async () => {
    const long = `${'n'.repeat(200)}/`.repeat(20);
    const links = (count: number): Buffer[] =>
      Array.from({ length: count }, (_, at) => [
        entry({ name: 'long', type: 'L', content: `${long}${at}\0` }),
        entry({ name: 'x', type: '2', link: 'y' }),
      ]).flat();
    expect(await refused(take([GOOD, ...links(4300)]), 'ACODE-FIL-003')).toContain('16 MiB of names');
    const { skipped } = await take([GOOD, ...links(3000)]);
    expect(skipped).toHaveLength(3000);
  });

  it('hold for directories that only names speak of', async () => {
    const deep = (top: string) => entry({ name: `${top}/${'d/'.repeat(20)}x`, content: 'x' });
    await refused(take([GOOD, deep('a'), deep('b')], { maxEntries: 30 }), 'ACODE-FIL-003');
    await expect(take([GOOD, deep('a')], { maxEntries: 30 })).resolves.toMatchObject({ files: 2 });
  });

  it('hold for headers that announce without end', async () => {
    const announced = Array.from({ length: 100 }, () => entry({ name: 'x', type: 'L', content: 'long\0' }));
    const taking = take([GOOD, ...announced], { maxEntries: 3 });
    expect(await refused(taking, 'ACODE-FIL-002')).toContain('too many headers');
  });
});

describe('an invalid archive is refused', () => {
  const negative = Buffer.alloc(12, 0xff);
  const beyond = Buffer.concat([Buffer.from([0x80]), Buffer.alloc(11, 0xee)]);
  it.each([
    [
      'one that ends in a content',
      Buffer.concat([GOOD, entry({ name: 'x', content: 'x'.repeat(2000) })]).subarray(0, -1024),
    ],
    ['one that ends in a header', Buffer.concat([GOOD, GOOD.subarray(0, 300)])],
    ['one that ends without an end', GOOD],
    ['one with half an end', Buffer.concat([GOOD, Buffer.alloc(512)])],
    ['one that is empty', Buffer.alloc(0)],
    ['one with a wrong sum', Buffer.concat([GOOD, entry({ name: 'x', checksum: 4711 }), END])],
    [
      'one whose size is too small',
      Buffer.concat([GOOD, entry({ name: 'x', content: 'y'.repeat(2000), size: 3 }), END]),
    ],
    ['one whose size is too large', Buffer.concat([GOOD, entry({ name: 'x', content: 'y', size: 5000 }), END])],
    ['one with a negative size', Buffer.concat([GOOD, entry({ name: 'x', size: negative }), END])],
    ['one with a size beyond all bounds', Buffer.concat([GOOD, entry({ name: 'x', size: beyond }), END])],
    ['one with a size that is not a number', Buffer.concat([GOOD, entry({ name: 'x', size: '12a45678901' }), END])],
    ['one with a link that has content', Buffer.concat([GOOD, entry({ name: 'x', type: '2', content: 'y' }), END])],
    ['one with an invalid record', Buffer.concat([GOOD, entry({ name: 'x', type: 'x', content: '99 path=x\n' }), END])],
    [
      'one with a record of an invalid size',
      Buffer.concat([GOOD, entry({ name: 'x', type: 'x', content: record('size', '-5') }), END]),
    ],
    [
      'one with a name longer than any path',
      Buffer.concat([GOOD, entry({ name: 'x', type: 'L', content: `${'n'.repeat(200)}/`.repeat(25) }), GOOD, END]),
    ],
    [
      'one with an entry that is nested too deep',
      Buffer.concat([GOOD, entry({ name: 'x', type: 'L', content: `${'d/'.repeat(300)}x\0` }), GOOD, END]),
    ],
    ['one with endless words', Buffer.concat([GOOD, entry({ name: 'x', type: 'L', size: 2 ** 22 }), END])],
    ['one that continues after its end', Buffer.concat([GOOD, END, Buffer.alloc(2 ** 21)])],
    ['noise', Buffer.from('noise'.repeat(1000))],
  ])('%s', async (_, bytes) => {
    await refused(takeBytes(bytes), 'ACODE-FIL-002');
    await expect(takeBytes(Buffer.concat([GOOD, END]))).resolves.toMatchObject({ files: 1 });
  });
});

describe('the place on the host', () => {
  it('is not a link', async () => {
    mkdirSync(join(home, 'elsewhere'));
    symlinkSync('elsewhere', target);
    await expect(take([GOOD])).rejects.toMatchObject({ code: 'ELOOP', path: target });
    expect(readdirSync(join(home, 'elsewhere'))).toEqual([]);
  });

  it('is not a file where a directory comes', async () => {
    writeFileSync(target, 'a file');
    await expect(take([GOOD])).rejects.toMatchObject({ code: 'ENOTDIR' });
    expect(readFileSync(target, 'utf8')).toBe('a file');
  });

  it('keeps everything as it was where something of it is in the way', async () => {
    mkdirSync(join(target, 'good'), { recursive: true });
    symlinkSync('..', join(target, 'link'));
    await expect(take([entry({ name: 'a', content: 'x' }), GOOD])).rejects.toMatchObject({ code: 'EISDIR' });
    await expect(take([entry({ name: 'link/evil', content: 'x' })])).rejects.toMatchObject({ code: 'ENOTDIR' });
    expect(readdirSync(target).sort()).toEqual(['good', 'link']);
  });
});
