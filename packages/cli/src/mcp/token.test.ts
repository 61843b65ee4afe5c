// The token is the user’s own, from where nobody else can read it, or a new one.

import { chmod, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { tokenFrom } from './token.ts';

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
  it('is made anew where nobody gave one, long and never the same', async () => {
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
