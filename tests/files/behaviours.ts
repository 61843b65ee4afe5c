// What files of a sandbox can do besides failing, for whatever the sandbox is.

import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { FileChange, Files } from '../../packages/sandbox/src/contract/sandbox.ts';

/** A sandbox with files. */
export interface FileTarget extends AsyncDisposable {
  readonly files: Files;
  /** An empty directory inside, which is also where relative paths begin. */
  readonly root: string;
  /** Runs a command inside, to its end. */
  sh(script: string): Promise<void>;
}

const ODD_NAMES = [
  '-n',
  '--help',
  'with space',
  "quote's",
  '"double"',
  '$(touch escaped)',
  '`touch escaped`',
  'new\nline',
  'back\\slash',
  'star*',
  'ünïcode ✓',
  ' ',
];

/** Shows them of a sandbox. */
export function behaviours(open: () => Promise<FileTarget>): void {
  let ground: FileTarget;
  let files: Files;
  let host: string;

  beforeAll(async () => {
    ground = await open();
    files = ground.files;
    host = mkdtempSync('/var/tmp/acode-test-transfer-');
  });

  afterAll(async () => {
    rmSync(host, { recursive: true, force: true });
    await ground[Symbol.asyncDispose]();
  });

  describe('content', () => {
    it('is the same bytes after writing, appending and reading', async () => {
      const bytes = randomBytes(300_000);
      await files.writeFile('bytes', bytes);
      await files.appendFile('bytes', '\0\r\n');
      expect(await files.readFile('bytes')).toEqual(Buffer.concat([bytes, Buffer.from('\0\r\n')]));
      await files.writeFile('bytes', 'ü');
      expect(await files.readFile(`${ground.root}/bytes`, { encoding: 'utf8' })).toBe('ü');
      await files.writeFile('bytes', '');
      expect(await files.readFile('bytes')).toHaveLength(0);
    });

    it('streams in and out', async () => {
      const pieces = Array.from({ length: 40 }, () => randomBytes(100_000));
      await files.writeFile('streamed', Readable.from(pieces));
      const back: Buffer[] = [];
      for await (const chunk of files.createReadStream('streamed')) back.push(chunk as Buffer);
      expect(Buffer.concat(back).equals(Buffer.concat(pieces))).toBe(true);
    });

    it('that fails on its way in fails the call', async () => {
      const broken = Readable.from(
        (function* () {
          yield randomBytes(10);
          throw new Error('the source broke');
        })(),
      );
      await expect(files.writeFile('broken', broken)).rejects.toThrow('the source broke');
      // The control, and proof that nothing is stuck.
      await files.writeFile('broken', 'whole');
      expect(await files.readFile('broken', { encoding: 'utf8' })).toBe('whole');
    });

    it('that cannot be written fails a large write as well as a small one', async () => {
      const source = Readable.from(Array.from({ length: 100 }, () => randomBytes(100_000)));
      await expect(files.writeFile('missing/x', source)).rejects.toMatchObject({ code: 'ENOENT', syscall: 'open' });
      await expect(files.writeFile('missing/x', randomBytes(1_000_000))).rejects.toMatchObject({ code: 'ENOENT' });
    });

    it('that cannot be read is an error of the stream', async () => {
      const stream = files.createReadStream('missing');
      await expect(stream.toArray()).rejects.toMatchObject({ code: 'ENOENT', syscall: 'open', path: 'missing' });
    });

    it('that nobody reads any more is let go of', async () => {
      await files.writeFile('large', randomBytes(5_000_000));
      const stream = files.createReadStream('large');
      for await (const chunk of stream) if ((chunk as Buffer).length > 0) break;
      expect(stream.destroyed).toBe(true);
    });

    it('that never comes is waited for until the signal fires', async () => {
      await ground.sh(`mkfifo '${ground.root}/pipe'`);
      const call = files.readFile('pipe', { signal: AbortSignal.timeout(200) });
      await expect(call).rejects.toMatchObject({ name: 'AbortError', code: 'ABORT_ERR' });
      const stream = files.createReadStream('pipe', { signal: AbortSignal.timeout(200) });
      await expect(stream.toArray()).rejects.toMatchObject({ name: 'AbortError' });
    });
  });

  describe('names', () => {
    it.each(ODD_NAMES)('such as %j are names and nothing else', async name => {
      await files.mkdir('odd', { recursive: true });
      await files.writeFile(`odd/${name}`, name);
      expect(await files.readFile(`odd/${name}`, { encoding: 'utf8' })).toBe(name);
      await files.rename(`odd/${name}`, `odd/${name}2`);
      await files.copyFile(`odd/${name}2`, `odd/${name}`);
      await files.symlink(name, `odd/${name}3`);
      expect(await files.readlink(`odd/${name}3`)).toBe(name);
      expect(await files.realpath(`odd/${name}3`)).toBe(`${await files.realpath('odd')}/${name}`);
      expect(await files.readdir('odd')).toEqual([name, `${name}2`, `${name}3`]);
      const entries = await files.readdir('odd', { withFileTypes: true });
      expect(entries.map(entry => [entry.name, entry.isFile(), entry.isSymbolicLink()])).toEqual([
        [name, true, false],
        [`${name}2`, true, false],
        [`${name}3`, false, true],
      ]);
      expect((await files.lstat(`odd/${name}3`)).isSymbolicLink()).toBe(true);
      await files.rm('odd', { recursive: true });
      expect(await files.readdir('.')).not.toContain('escaped');
    });

    it('of a whole tree are told with where they are', async () => {
      await files.mkdir('tree/a/b', { recursive: true });
      await files.writeFile('tree/a/b/c\nd', '');
      expect(await files.readdir('tree', { recursive: true })).toEqual(['a', 'a/b', 'a/b/c\nd']);
      const entries = await files.readdir('tree/', { recursive: true, withFileTypes: true });
      expect(entries.map(({ name, parentPath }) => [parentPath, name])).toEqual([
        ['tree/', 'a'],
        ['tree/a', 'b'],
        ['tree/a/b', 'c\nd'],
      ]);
    });

    it('with a NUL are refused before anything is asked', async () => {
      await expect(files.readFile('a\0b')).rejects.toMatchObject({ code: 'ERR_INVALID_ARG_VALUE' });
      await expect(files.rename('a', 'a\0b')).rejects.toMatchObject({ code: 'ERR_INVALID_ARG_VALUE' });
    });
  });

  describe('watching', () => {
    it('tells what came, changed and went, and ends with the signal', async () => {
      await files.mkdir('watched/deep', { recursive: true });
      await files.writeFile('watched/old', 'old');
      const stop = new AbortController();
      const seen: FileChange[] = [];
      const until = async (eventType: string, filename: string): Promise<void> => {
        const end = performance.now() + 60_000;
        while (!seen.some(change => change.eventType === eventType && change.filename === filename)) {
          if (performance.now() > end) throw new Error(`not seen: ${eventType} ${filename}: ${JSON.stringify(seen)}`);
          await new Promise(resolve => void setTimeout(resolve, 50));
        }
      };
      const watching = (async () => {
        for await (const change of files.watch('watched', { recursive: true, signal: stop.signal })) seen.push(change);
      })();
      // The first listing is over as soon as something new is told.
      for (let count = 0; seen.length === 0; count += 1) await files.writeFile(`watched/first-${count}`, '');
      await files.writeFile('watched/deep/new', '1');
      await until('rename', 'deep/new');
      await files.appendFile('watched/deep/new', '2');
      await until('change', 'deep/new');
      await files.unlink('watched/old');
      await until('rename', 'old');
      stop.abort();
      await expect(watching).resolves.toBeUndefined();
    });

    it('of nothing is node’s error', async () => {
      const changes = files.watch('missing')[Symbol.asyncIterator]();
      await expect(changes.next()).rejects.toMatchObject({ code: 'ENOENT', syscall: 'watch', path: 'missing' });
    });
  });

  describe('transfers', () => {
    it('bring a tree in and out again, and no link with it', async () => {
      const source = join(host, 'source');
      const long = `${'long '.repeat(20)}/${'name '.repeat(30)}`;
      mkdirSync(join(source, 'sub', long), { recursive: true });
      writeFileSync(join(source, 'sub', long, 'ü\n'), 'deep');
      writeFileSync(join(source, 'large'), randomBytes(3_000_001));
      writeFileSync(join(source, 'run'), '#!/bin/sh\n');
      chmodSync(join(source, 'run'), 0o755);
      writeFileSync(join(host, 'precious'), 'precious');
      symlinkSync('../precious', join(source, 'link'));
      symlinkSync('..', join(source, 'sub/up'));

      const up = await files.upload(source, 'parent/tree');
      expect(up).toMatchObject({ files: 3, directories: 3, bytes: 3_000_015 });
      expect(up.skipped.map(({ path }) => path).sort()).toEqual(['link', 'sub/up']);
      expect((await files.readdir('parent/tree')).sort()).toEqual(['large', 'run', 'sub']);

      await files.symlink('/etc/passwd', 'parent/tree/link');
      const target = join(host, 'target');
      const down = await files.download('parent/tree', target);
      expect(down).toMatchObject({ files: 3, directories: 3, bytes: 3_000_015 });
      expect(down.skipped).toEqual([{ path: 'link', reason: 'it is a symbolic link' }]);
      expect(readFileSync(join(target, 'large')).equals(readFileSync(join(source, 'large')))).toBe(true);
      expect(readFileSync(join(target, 'sub', long, 'ü\n'), 'utf8')).toBe('deep');
      expect(lstatSync(join(target, 'run')).mode & 0o111).toBe(0o111);
    });

    it('bring one file in and out again', async () => {
      const content = randomBytes(700_000);
      writeFileSync(join(host, 'one'), content, { mode: 0o755 });
      expect(await files.upload(join(host, 'one'), 'new/one')).toMatchObject({ files: 1, bytes: 700_000 });
      expect((await files.stat('new/one')).mode & 0o777).toBe(0o755);
      expect(await files.download('new/one', join(host, 'deep/back'))).toMatchObject({ files: 1, bytes: 700_000 });
      expect(readFileSync(join(host, 'deep/back')).equals(content)).toBe(true);
      expect(readdirSync(join(host, 'deep'))).toEqual(['back']);
    });

    it('of one file arrive whole or not at all', async () => {
      await files.mkdir('whole');
      writeFileSync(join(host, 'big'), randomBytes(30_000_000), { mode: 0o755 });
      // In the middle of it: when something of it is there.
      const cancelled = async (path: string): Promise<void> => {
        const stop = new AbortController();
        const going = files.upload(join(host, 'big'), path, { signal: stop.signal });
        let isOver = false;
        const over = going.catch(() => undefined).then(() => (isOver = true));
        while (!isOver && !(await files.readdir('whole')).some(name => name.startsWith('.acode-')));
        stop.abort();
        await over;
        await expect(going).rejects.toMatchObject({ name: 'AbortError' });
      };
      await ground.sh(`cd '${ground.root}/whole' && echo old >there && chmod 640 there`);
      await cancelled('whole/new');
      await cancelled('whole/there');
      expect(await files.readdir('whole')).toEqual(['there']);
      expect(await files.readFile('whole/there', 'utf8')).toBe('old\n');
      // The control.
      expect(await files.upload(join(host, 'big'), 'whole/new')).toMatchObject({ files: 1, bytes: 30_000_000 });
      expect((await files.readdir('whole')).sort()).toEqual(['new', 'there']);
    });

    it('of one file leave modes, links and other names of what is there as they were', async () => {
      await ground.sh(
        `mkdir '${ground.root}/kept' && cd '${ground.root}/kept' && echo old >narrow && chmod 640 narrow && echo old >one && ln one other && ln -s one link && ln -s nothing dangling`,
      );
      writeFileSync(join(host, 'small'), 'new', { mode: 0o644 });
      for (const name of ['narrow', 'link', 'dangling', 'fresh'])
        await files.upload(join(host, 'small'), `kept/${name}`);
      expect((await files.stat('kept/narrow')).mode & 0o777).toBe(0o640);
      expect((await files.stat('kept/one')).nlink).toBe(2);
      expect(await files.readlink('kept/link')).toBe('one');
      for (const name of ['narrow', 'one', 'other', 'nothing', 'fresh'])
        expect(await files.readFile(`kept/${name}`, 'utf8'), name).toBe('new');
      expect(await files.readdir('kept')).toHaveLength(7);
      await expect(files.upload(join(host, 'small'), 'kept')).rejects.toMatchObject({ code: 'EISDIR' });
      await expect(files.upload(join(host, 'small'), 'kept/one/x')).rejects.toMatchObject({ syscall: 'mkdir' });
    });

    it('of a link of the host are refused, and of what it leads to are not', async () => {
      writeFileSync(join(host, 'secret'), 'secret');
      symlinkSync('secret', join(host, 'planted'));
      await expect(files.upload(join(host, 'planted'), 'stolen')).rejects.toMatchObject({ code: 'ELOOP' });
      await expect(files.stat('stolen')).rejects.toMatchObject({ code: 'ENOENT' });
      await files.upload(join(host, 'secret'), 'given');
    });

    it('end at their bounds, and leave nothing', async () => {
      await files.mkdir('bounded', { recursive: true });
      await files.writeFile('bounded/file', randomBytes(10_000));
      const [tree, file] = [join(host, 'bounded-tree'), join(host, 'bounded-file')];
      const refused = { code: 'ACODE-FIL-003' };
      await expect(files.download('bounded', tree, { maxBytes: 9999 })).rejects.toMatchObject(refused);
      await expect(files.download('bounded/file', file, { maxBytes: 9999 })).rejects.toMatchObject(refused);
      expect(readdirSync(host).filter(name => name.includes('bounded') || name.startsWith('.acode'))).toEqual([]);
      await files.download('bounded', tree, { maxBytes: 10_000 });
      await files.download('bounded/file', file, { maxBytes: 10_000 });
    });

    it('of what is neither file nor directory are refused, and of nothing are node’s error', async () => {
      await ground.sh(`mkfifo '${ground.root}/fifo'`);
      await expect(files.download('fifo', join(host, 'fifo'))).rejects.toMatchObject({ code: 'ACODE-FIL-002' });
      await expect(files.download('missing', join(host, 'x'))).rejects.toMatchObject({ code: 'ENOENT' });
      await expect(files.upload(join(host, 'nothing'), 'x')).rejects.toMatchObject({ code: 'ENOENT' });
    });

    it('leave out what only special files are, and take the rest', async () => {
      await ground.sh(
        `mkdir '${ground.root}/mixed' && cd '${ground.root}/mixed' && mkfifo fifo && echo x >file && ln file hard`,
      );
      const report = await files.download('mixed', join(host, 'mixed'));
      expect(report.skipped.map(({ path }) => path)).toContain('fifo');
      expect(report.files).toBeGreaterThanOrEqual(1);
      expect(readdirSync(join(host, 'mixed'))).not.toContain('fifo');
    });
  });
}
