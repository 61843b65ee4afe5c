// Server presence: only where a process accepts connections, in a directory that is the user’s alone.

import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { identityOf } from './identity.ts';
import type { IdentityParts } from './identity.ts';
import { isServed } from './presence.ts';

describe('a server', () => {
  let runtime: string;
  let socket: string;
  let parts: IdentityParts;

  beforeEach(() => {
    runtime = mkdtempSync(join(tmpdir(), 'acode-presence-'));
    mkdirSync(join(runtime, 'acode'), { mode: 0o700 });
    parts = { root: '/w', cwd: '/w', env: { XDG_RUNTIME_DIR: runtime }, uid: process.getuid?.() ?? -1, inherited: '' };
    socket = join(runtime, 'acode', identityOf(parts).socketName);
  });
  afterEach(() => rmSync(runtime, { recursive: true }));

  const listening = async (): Promise<AsyncDisposable> => {
    const server = createServer(one => one.destroy()).listen(socket);
    await once(server, 'listening');
    chmodSync(socket, 0o600);
    return server;
  };

  it('is there while it listens, for exactly such calls', async () => {
    await using _server = await listening();
    expect(await isServed(parts)).toBe(true);
    expect(await isServed({ ...parts, root: '/other' })).toBe(false);
  });

  it('is not there where nothing is, nor where only a file is', async () => {
    expect(await isServed(parts)).toBe(false);
    writeFileSync(socket, '', { mode: 0o600 });
    expect(await isServed(parts)).toBe(false);
  });

  it('is not there where others could have put it', async () => {
    await using _server = await listening();
    chmodSync(join(runtime, 'acode'), 0o777);
    expect(await isServed(parts)).toBe(false);
  });
});
