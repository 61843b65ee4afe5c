// Programs inside whose output a hostile process writes: a typed refusal, with little memory, and without blocking others.

import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { Files } from '../../contract/sandbox.ts';
import type { Inside } from '../../isolation/backend.ts';
import { filesOf } from './files.ts';

const MIB = 1024 ** 2;

// Nothing real writes as fast as this, nor stops exactly there.
class Flood {
  sent = 0;
  readonly #chunks: Iterable<Buffer>;

  constructor(chunks: Iterable<Buffer>) {
    this.#chunks = chunks;
  }

  get files(): Files {
    return filesOf(this.#inside(), { workdir: '/' });
  }

  #inside(): Inside {
    return {
      call: () => Promise.reject(new Error('nothing is held until its end')),
      open: () => {
        const stdout = Readable.from(this.#counted(), { objectMode: false });
        const ended = new Promise<{ exitCode: number; stderr: string }>(resolve => {
          stdout.on('end', () => resolve({ exitCode: 0, stderr: '' }));
          stdout.on('close', () => resolve({ exitCode: 137, stderr: '' }));
        });
        const done = (): Promise<void> => Promise.resolve();
        return Promise.resolve({ stdout, ended, write: done, closeStdin: done, destroy: () => void stdout.destroy() });
      },
    };
  }

  *#counted(): Generator<Buffer> {
    for (const chunk of this.#chunks) {
      this.sent += chunk.length;
      yield chunk;
    }
  }
}

function* forever(text: string | Buffer, first = ''): Generator<Buffer> {
  if (first !== '') yield Buffer.from(first);
  const length = Buffer.byteLength(text);
  const chunk = Buffer.alloc(Math.max(1, Math.floor(65_536 / length)) * length, text);
  for (;;) yield chunk;
}

function once(text: string): Buffer[] {
  return Array.from({ length: Math.ceil(text.length / 65_536) }, (_, at) =>
    Buffer.from(text.slice(at * 65_536, (at + 1) * 65_536), 'latin1'),
  );
}

interface Cost {
  readonly ms: number;
  readonly longestHoldMs: number;
  readonly grownMib: number;
}

async function costOf(work: Promise<unknown>): Promise<Cost> {
  const [began, before] = [performance.now(), process.memoryUsage.rss()];
  let [last, longestHoldMs, most] = [began, 0, before];
  const look = (): void => {
    const now = performance.now();
    longestHoldMs = Math.max(longestHoldMs, now - last);
    last = now;
    most = Math.max(most, process.memoryUsage.rss());
  };
  const timer = setInterval(look, 5);
  await work;
  look();
  clearInterval(timer);
  return { ms: performance.now() - began, longestHoldMs, grownMib: (most - before) / MIB };
}

const FORMS = [{ withFileTypes: false }, { withFileTypes: true }] as const;

async function list(files: Files, options: { withFileTypes: boolean; recursive?: boolean }): Promise<unknown> {
  return options.withFileTypes
    ? files.readdir('/d', { ...options, withFileTypes: true })
    : files.readdir('/d', { ...options, withFileTypes: false });
}

describe.each(FORMS)('a listing with %o', form => {
  it.each([
    ['NULs without end', '\0', ''],
    ['a name without end', 'x', ''],
    ['names of nothing below it', '/elsewhere\0', ''],
    ['another listing after it', '\0', '/d/a\0\0\0\0'],
  ])('of %s is refused at once', async (_, text, first) => {
    const flood = new Flood(forever(text, first));
    // Names are known to lie elsewhere when all of their portion is there.
    const sent = form.withFileTypes && text.startsWith('/') ? once('/elsewhere\0\0\0\0') : null;
    const { files } = sent ? new Flood(sent) : flood;
    await expect(list(files, form)).rejects.toMatchObject({ code: 'ACODE-FIL-002' });
    expect(flood.sent).toBeLessThan(2 * MIB);
  });

  it('of too many names is refused without waiting for the end', async () => {
    const { files } = new Flood(forever('/d/a\0'));
    const refusal = expect(list(files, form)).rejects.toMatchObject({
      code: 'ACODE-FIL-003',
      context: { path: '/d', limit: '2000000 entries' },
    });
    const { ms, longestHoldMs } = await costOf(refusal);
    expect(ms).toBeLessThan(20_000);
    expect(longestHoldMs).toBeLessThan(1000);
  });

  it.each(['/d/../up', '/d/a/../../up', '/d/.', '/d/', '/d//a', '/d/a/'])('with the name %s is refused', async name => {
    const { files } = new Flood(once(form.withFileTypes ? `${name}\0\0\0\0` : `${name}\0`));
    await expect(list(files, { ...form, recursive: true })).rejects.toMatchObject({ code: 'ACODE-FIL-002' });
  });

  it('has ways through directories only where they were asked for', async () => {
    const sent = once(form.withFileTypes ? '/d/a/b\0\0\0\0' : '/d/a/b\0');
    await expect(list(new Flood(sent).files, form)).rejects.toMatchObject({ code: 'ACODE-FIL-002' });
    await expect(list(new Flood(sent).files, { ...form, recursive: true })).resolves.toHaveLength(1);
  });

  it('that is cut off is refused', async () => {
    await expect(list(new Flood(once('/d/a')).files, form)).rejects.toMatchObject({ code: 'ACODE-FIL-002' });
  });

  it('of half a million names blocks no other work', async () => {
    const names = Array.from({ length: 500_000 }, (_, at) => `/d/${(at * 7919) % 500_009}`);
    const portions: string[] = [];
    for (let at = 0; at < names.length; at += 1000) portions.push(`${names.slice(at, at + 1000).join('\0')}\0`);
    const { files } = new Flood(
      once(form.withFileTypes ? `${portions.map(portion => `${portion}\0\0`).join('')}\0` : portions.join('')),
    );
    const { longestHoldMs } = await costOf(expect(list(files, form)).resolves.toHaveLength(500_000));
    expect(longestHoldMs).toBeLessThan(1000);
  });
});

describe('what is known of names', () => {
  it('takes time by its length, whatever it says', async () => {
    const names = Array.from({ length: 20_000 }, (_, at) => `/d/${at}\0`).join('');
    const { files } = new Flood(once(`${names}\0${'f'.repeat(15 * MIB)}\0\0`));
    const { ms } = await costOf(expect(list(files, { withFileTypes: true })).resolves.toHaveLength(20_000));
    expect(ms).toBeLessThan(10_000);
  });

  it('is refused where it has no end', async () => {
    const flood = new Flood(forever('f', '/d/a\0\0'));
    await expect(list(flood.files, { withFileTypes: true })).rejects.toMatchObject({ code: 'ACODE-FIL-002' });
    expect(flood.sent).toBeLessThan(20 * MIB);
  });

  it('may come byte by byte', async () => {
    function* bytes(): Generator<Buffer> {
      const chunk = Buffer.alloc(65_536, 'f');
      yield Buffer.from('/d/a\0\0');
      for (let at = 0; at < 50_000; at++) yield Buffer.from(chunk.buffer, chunk.byteOffset + (at % chunk.length), 1);
      yield Buffer.from('\0\0');
    }
    await expect(list(new Flood(bytes()).files, { withFileTypes: true })).resolves.toHaveLength(1);
  });
});

describe('a watch', () => {
  const next = async (files: Files): Promise<unknown> =>
    files.watch('/d', { recursive: true })[Symbol.asyncIterator]().next();

  it.each([
    ['long names', Buffer.concat([Buffer.alloc(65_535, 'n'), Buffer.of(0)]), 'ACODE-FIL-002'],
    ['NULs', '\0', 'ACODE-FIL-002'],
    ['names as long as they may be', `${'/d/'.padEnd(8191, 'n')}\0`, 'ACODE-FIL-003'],
    ['short names', '/d/a\0', 'ACODE-FIL-003'],
  ])('of %s without end is refused with bounded memory', async (_, text, code) => {
    const flood = new Flood(forever(text));
    const { grownMib } = await costOf(expect(next(flood.files)).rejects.toMatchObject({ code }));
    expect(flood.sent).toBeLessThan(130 * MIB);
    expect(grownMib).toBeLessThan(500);
  });
});
