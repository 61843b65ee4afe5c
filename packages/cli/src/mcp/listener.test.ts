// Only who knows the token comes in, and no page that a browser was led to.

import { chmod, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isToken, turnedAway } from './listener.ts';
import type { Arrival } from './listener.ts';
import { tokenFrom } from './serve-mcp.ts';

const TOKEN = 'a-token-that-nobody-can-guess-0123456789';
const WELCOME: Arrival = { path: '/mcp', host: '127.0.0.1:8931', origin: undefined, authorization: `Bearer ${TOKEN}` };

describe('a request', () => {
  it.each([{}, { host: 'localhost:8931' }, { host: 'LOCALHOST:8931' }, { origin: 'http://127.0.0.1:8931' }])(
    'with the token comes in: %o',
    part => {
      expect(turnedAway({ ...WELCOME, ...part }, 8931, TOKEN)).toBeNull();
    },
  );

  it.each([
    [{ host: undefined }, 403],
    [{ host: 'evil.example:8931' }, 403],
    [{ host: '127.0.0.1' }, 403],
    [{ host: '127.0.0.1:8932' }, 403],
    [{ host: '127.0.0.1.evil.example:8931' }, 403],
    [{ origin: 'https://evil.example' }, 403],
    [{ origin: 'http://localhost:3000' }, 403],
    [{ origin: 'null' }, 403],
    [{ authorization: undefined }, 401],
    [{ authorization: '' }, 401],
    [{ authorization: 'Bearer ' }, 401],
    [{ authorization: `Bearer ${TOKEN}x` }, 401],
    [{ authorization: `Bearer ${TOKEN.slice(1)}` }, 401],
    [{ authorization: `Basic ${TOKEN}` }, 401],
    [{ authorization: TOKEN }, 401],
    [{ path: '/' }, 404],
    [{ path: '/mcp/../etc' }, 404],
  ] as const)('with %o is turned away with %i', (part, status) => {
    expect(turnedAway({ ...WELCOME, ...part }, 8931, TOKEN)?.status).toBe(status);
  });

  it('is never let in by an empty token on both sides', () => {
    expect(isToken('Bearer ', '')).toBe(false);
    expect(isToken(undefined, '')).toBe(false);
  });
});

const GOOD = 'abcdefghijklmnopqrstuvwxyz0123456789';
const uid = process.getuid?.();
let directory: string;
let file: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'acode-token-'));
  file = join(directory, 'token');
  await writeFile(file, `${GOOD}\n`, { mode: 0o600 });
});

afterEach(() => rm(directory, { recursive: true }));

describe('a token', () => {
  it('is generated where none was given, long and never the same', async () => {
    const [one, other] = [await tokenFrom(undefined, {}, uid), await tokenFrom(undefined, {}, uid)];
    expect(one.isNew).toBe(true);
    expect(one.value).toMatch(/^[\w-]{43}$/);
    expect(one.value).not.toBe(other.value);
  });

  it('is the environment’s, or that of a private file', async () => {
    expect(await tokenFrom(undefined, { ACODE_MCP_TOKEN: GOOD }, uid)).toEqual({ value: GOOD, isNew: false });
    expect(await tokenFrom(file, { ACODE_MCP_TOKEN: 'ignored' }, uid)).toEqual({ value: GOOD, isNew: false });
  });

  it.each(['short', 'x'.repeat(513), `${GOOD} ${GOOD}`, `${GOOD}\u00e9`])('is not %s', async text => {
    await expect(tokenFrom(undefined, { ACODE_MCP_TOKEN: text }, uid)).rejects.toMatchObject({ code: 'ACODE-MCP-011' });
  });

  it('is not taken from a file that others may read, a link, a directory or nothing', async () => {
    await chmod(file, 0o640);
    await expect(tokenFrom(file, {}, uid)).rejects.toMatchObject({ code: 'ACODE-MCP-011' });
    await chmod(file, 0o600);
    const link = join(directory, 'link');
    await symlink(file, link);
    for (const path of [link, directory, join(directory, 'none')])
      await expect(tokenFrom(path, {}, uid)).rejects.toMatchObject({ code: 'ACODE-MCP-011' });
    await expect(tokenFrom(file, {}, (uid ?? 0) + 1)).rejects.toMatchObject({ code: 'ACODE-MCP-011' });
  });
});
