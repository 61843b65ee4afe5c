// Socket directory: only a directory and a socket of the user’s own, closed to others, are trusted.

import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SocketDirectory } from './socket-path.ts';

const uid = process.getuid?.() ?? 0;

describe('the place of a socket', () => {
  let top: string;
  let directory: string;
  let server: Server;

  beforeEach(async () => {
    top = mkdtempSync(join(tmpdir(), 'acode-place-'));
    directory = join(top, 'own');
    mkdirSync(directory, { mode: 0o700 });
    server = createServer();
    await new Promise<void>(resolve => server.listen(join(directory, 's.sock'), resolve));
    chmodSync(join(directory, 's.sock'), 0o600);
  });

  afterEach(() => {
    server.close();
    rmSync(top, { recursive: true, force: true });
  });

  const opened = (path = directory, own = uid): SocketDirectory => {
    const place = SocketDirectory.open(path, own);
    if ('unsafe' in place) throw new Error(place.unsafe);
    return place;
  };

  it('is good where both are the user’s alone', () => {
    using place = opened();
    expect(place.whyUnsafe('s.sock', uid)).toBeNull();
  });

  it('is not where the directory belongs to another user', () => {
    expect(() => opened(directory, uid + 1)).toThrow(`belongs to user ${uid}`);
  });

  it.each([0o750, 0o705, 0o777])('is not where the directory has mode %o', mode => {
    chmodSync(directory, mode);
    expect(() => opened()).toThrow('can be used by others');
  });

  it('is not where the directory is a link, or a file', () => {
    symlinkSync(directory, join(top, 'link'));
    writeFileSync(join(top, 'file'), '');
    for (const name of ['link', 'file', 'none']) expect(() => opened(join(top, name))).toThrow('not a directory');
  });

  it('is not where the socket belongs to another user, can be used by others, or is none', () => {
    using place = opened();
    expect(place.whyUnsafe('s.sock', uid + 1)).toContain(`belongs to user ${uid}`);
    chmodSync(join(directory, 's.sock'), 0o620);
    expect(place.whyUnsafe('s.sock', uid)).toContain('mode 0620');
    symlinkSync('s.sock', join(directory, 'link'));
    writeFileSync(join(directory, 'file'), '', { mode: 0o600 });
    for (const name of ['link', 'file', 'none']) expect(place.whyUnsafe(name, uid)).toContain('is not a socket');
  });

  it('remains the directory it was, whatever replaces it', () => {
    using place = opened();
    rmSync(directory, { recursive: true });
    mkdirSync(directory, { mode: 0o700 });
    writeFileSync(join(directory, 's.sock'), '');
    expect(place.whyUnsafe('s.sock', uid)).toContain('is not a socket');
  });
});
