// Nothing that was asked for is ignored: whatever a call does not know is refused before anything is done.

import { describe, expect, it } from 'vitest';
import { Sandbox, SandboxPaginator } from './index.ts';
import { Commands, Pty } from './commands.ts';
import { InvalidArgumentError, TemplateError } from './errors.ts';
import { Filesystem } from './filesystem.ts';

const untouched = (): never => {
  throw new Error('it was asked for inside');
};
const PARTS: Readonly<Record<string, object>> = {
  Sandbox,
  commands: new Commands(untouched),
  pty: new Pty(untouched),
  files: new Filesystem(untouched),
};
const DAY = 86_400_000;

async function call(part: string, name: string, words: readonly unknown[]): Promise<unknown> {
  const on = PARTS[part] ?? {};
  const method: unknown = Reflect.get(on, name);
  if (typeof method !== 'function') throw new Error(`there is no ${part}.${name}`);
  return Reflect.apply(method, on, words);
}

const UNKNOWN: readonly (readonly [part: string, name: string, words: readonly unknown[], said: string])[] = [
  ['Sandbox', 'create', [{ lifecycle: { onTimeout: 'pause' } }], 'lifecycle'],
  ['Sandbox', 'create', [{ volumeMounts: { '/data': 'volume' } }], 'volumeMounts'],
  ['Sandbox', 'create', [{ foo: 1 }], 'foo'],
  ['Sandbox', 'create', [{ proxy: new URL('http://127.0.0.1') }], 'proxy'],
  ['Sandbox', 'create', ['node:20-alpine', { foo: 1 }], 'foo'],
  ['Sandbox', 'create', [{ metadata: { a: 'b' } }], 'metadata'],
  ['Sandbox', 'create', [{ secure: false }], 'only this user'],
  ['Sandbox', 'create', [{ timeoutMs: DAY + 1 }], 'more than a day'],
  ['Sandbox', 'connect', ['id', { foo: 1 }], 'foo'],
  ['Sandbox', 'connect', ['id', { timeoutMs: DAY + 1 }], 'more than a day'],
  ['Sandbox', 'kill', ['id', { foo: 1 }], 'foo'],
  ['Sandbox', 'getInfo', ['id', { foo: 1 }], 'foo'],
  ['Sandbox', 'setTimeout', ['id', 1000, { foo: 1 }], 'foo'],
  ['Sandbox', 'setTimeout', ['id', DAY + 1], 'more than a day'],
  ['Sandbox', 'list', [{ nextToken: 'x' }], 'nextToken'],
  ['Sandbox', 'list', [{ query: { name: 'x' } }], 'query.name'],
  ['Sandbox', 'list', [{ query: { metadata: { a: 'b' } } }], 'query.metadata'],
  ['Sandbox', 'list', [{ limit: 0 }], 'limit'],
  ['commands', 'run', ['echo', { foo: 1 }], 'foo'],
  ['commands', 'run', ['echo', 'text'], 'options'],
  ['commands', 'list', [{ foo: 1 }], 'foo'],
  ['commands', 'connect', [7, { timeoutMs: 1 }], 'timeoutMs'],
  ['commands', 'kill', [7, { foo: 1 }], 'foo'],
  ['commands', 'sendStdin', [7, 'x', { foo: 1 }], 'foo'],
  ['commands', 'closeStdin', [7, { foo: 1 }], 'foo'],
  ['pty', 'create', [{ cols: 1, rows: 1, onData: () => undefined, foo: 1 }], 'foo'],
  ['pty', 'sendInput', [7, new Uint8Array(), { foo: 1 }], 'foo'],
  ['pty', 'resize', [7, { cols: 1, rows: 1, pixels: 1 }], 'size.pixels'],
  ['pty', 'kill', [7, { foo: 1 }], 'foo'],
  ['files', 'read', ['p', { gzip: true }], 'gzip'],
  ['files', 'write', ['p', 'x', { gzip: true }], 'gzip'],
  ['files', 'write', [[{ path: 'p', data: 'x', mode: 1 }]], 'files.mode'],
  ['files', 'writeFiles', [[{ path: 'p', data: 'x' }], { foo: 1 }], 'foo'],
  ['files', 'list', ['p', { foo: 1 }], 'foo'],
  ['files', 'exists', ['p', { foo: 1 }], 'foo'],
  ['files', 'makeDir', ['p', { foo: 1 }], 'foo'],
  ['files', 'remove', ['p', { foo: 1 }], 'foo'],
  ['files', 'rename', ['p', 'q', { foo: 1 }], 'foo'],
  ['files', 'getInfo', ['p', { foo: 1 }], 'foo'],
  ['files', 'watchDir', ['p', () => undefined, { includeEntry: true }], 'includeEntry'],
];

describe('what a call does not know', () => {
  it.each(UNKNOWN)('is refused: %s.%s of %j', async (part, name, words, said) => {
    const error: unknown = await call(part, name, words).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(InvalidArgumentError);
    expect(String(error)).toContain(said);
  });

  it('is a template by its name, but for the one that is E2B’s own', async () => {
    await expect(Sandbox.create('my-template')).rejects.toThrow(TemplateError);
    // The control: this one fails for another reason than its template.
    await expect(Sandbox.create('base', { timeoutMs: DAY + 1 })).rejects.toThrow(InvalidArgumentError);
  });

  // The controls.
  it('is nothing that was left undefined, or empty', async () => {
    await expect(call('commands', 'run', ['echo', { foo: undefined }])).rejects.toThrow('asked for inside');
    expect(new SandboxPaginator({ query: { metadata: {} }, limit: 1 }).hasNext).toBe(true);
  });
});
