// Options of file calls: an unknown or invalid one is refused before anything runs inside.

import { describe, expect, it } from 'vitest';
import type { Inside } from '../../isolation/backend.ts';
import { filesOf } from './files.ts';

let asked = 0;
const inside: Inside = {
  call: () => Promise.reject(new Error(`asked ${++asked}`)),
  open: () => Promise.reject(new Error(`asked ${++asked}`)),
};

// The option that the error names comes last.
const REFUSED: readonly (readonly [call: string, words: readonly unknown[], field: string])[] = [
  ['readFile', ['p', { flag: 'r+' }], 'flag'],
  ['readFile', ['p', { encodin: 'utf8' }], 'encodin'],
  ['readFile', ['p', 5], 'options'],
  ['writeFile', ['p', 'x', { flag: 'r+' }], 'flag'],
  ['writeFile', ['p', 'x', { flush: true }], 'flush'],
  ['writeFile', ['p', 'x', { mode: 0o4755 }], 'mode'],
  ['writeFile', ['p', 'x', () => undefined], 'options'],
  ['appendFile', ['p', 'x', { flag: 'a+' }], 'flag'],
  ['appendFile', ['p', 'x', { flush: true }], 'flush'],
  ['createReadStream', ['p', { start: 1, end: 2 }], 'start'],
  ['createReadStream', ['p', { highWaterMark: 1 }], 'highWaterMark'],
  ['createReadStream', ['p', { flags: 'w' }], 'flags'],
  ['readdir', ['.', { encoding: 'buffer' }], 'encoding'],
  ['readdir', ['.', 'utf8'], 'options'],
  ['readdir', ['.', { maxBytes: Number.NaN }], 'maxBytes'],
  ['mkdir', ['p', { mode: 0o1777 }], 'mode'],
  ['mkdir', ['p', '0700'], 'options'],
  ['rm', ['p', { maxRetries: 1 }], 'maxRetries'],
  ['rmdir', ['p', { recursive: true }], 'recursive'],
  ['unlink', ['p', { force: true }], 'force'],
  ['rename', ['p', 'q', { overwrite: false }], 'overwrite'],
  ['copyFile', ['p', 'q', 1], 'options'],
  ['stat', ['p', { bigint: true }], 'bigint'],
  ['lstat', ['p', { bigint: true }], 'bigint'],
  ['access', ['p', 0, { mode: 1 }], 'mode'],
  ['chmod', ['p', 0o700, { recursive: true }], 'recursive'],
  ['readlink', ['p', { encoding: 'buffer' }], 'encoding'],
  ['symlink', ['p', 'q', 'dir'], 'options'],
  ['truncate', ['p', 0, { flag: 'w' }], 'flag'],
  ['realpath', ['p', 'buffer'], 'options'],
  ['watch', ['p', { persistent: false }], 'persistent'],
  ['upload', ['/nowhere', 'p', { maxByte: 1 }], 'maxByte'],
  ['upload', ['/nowhere', 'p', { maxBytes: '1' }], 'maxBytes'],
  ['download', ['p', '/nowhere/x', { maxEntry: 1 }], 'maxEntry'],
  ['download', ['p', '/nowhere/x', { maxEntries: -1 }], 'maxEntries'],
];

describe('an option that is not understood', () => {
  const files = filesOf(inside, { workdir: '/w' });

  it.each(REFUSED)('is refused: %s of %j', async (call, words, field) => {
    const method: unknown = Reflect.get(files, call);
    if (typeof method !== 'function') throw new Error(`there is no ${call}`);
    const calling = async (): Promise<unknown> => Reflect.apply(method, files, words);
    await expect(calling()).rejects.toMatchObject({ code: 'ACODE-SBX-017', context: { field } });
    expect(asked).toBe(0);
  });

  it('is refused where it is inherited', async () => {
    const options: object = Object.create({ flush: true });
    await expect(files.writeFile('p', 'x', options)).rejects.toMatchObject({ context: { field: 'flush' } });
  });

  it('is node’s error where node has one', async () => {
    const wrong = { recursive: 'yes', signal: 5 } as unknown as { recursive: boolean };
    await expect(files.rm('p', wrong)).rejects.toMatchObject({ code: 'ERR_INVALID_ARG_TYPE' });
    await expect(files.readFile('p', 'utf9' as BufferEncoding)).rejects.toMatchObject({
      code: 'ERR_INVALID_ARG_VALUE',
    });
    expect(asked).toBe(0);
  });
});

// The control: a valid request is sent inside.
describe('an option that is undefined', () => {
  it('is as if it was not there', async () => {
    const files = filesOf(inside, { workdir: '/w' });
    const options: object = { flush: undefined, mode: undefined };
    await expect(files.writeFile('p', 'x', options)).rejects.toThrow(/^asked/);
  });
});
