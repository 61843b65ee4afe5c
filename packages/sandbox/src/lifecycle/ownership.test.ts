// Proof of life by a socket: the kernel’s word, not the process’s.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { OwnerSocket, ownerSocketPath, ownerState, removeDeadSockets } from './ownership.ts';

const OWNER = '01234567-89ab-4cde-8f01-23456789abcd';

describe('an owner', () => {
  let directory: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'acode-owner-'));
  });
  afterEach(() => rmSync(directory, { recursive: true, force: true }));

  it('is alive while it listens and dead afterwards, and leaves no socket', async () => {
    const socket = await OwnerSocket.listen(directory, OWNER);
    expect(await ownerState(directory, OWNER)).toBe('alive');
    await socket.close();
    expect(await ownerState(directory, OWNER)).toBe('dead');
    expect(existsSync(socket.path)).toBe(false);
  });

  it.each(['while (true);', 'process.kill(process.pid, "SIGSTOP")'])(
    'is alive however busy or stopped it is (%s), and dead once it is killed',
    async business => {
      const path = ownerSocketPath(directory, OWNER);
      const script = `const fs = require('fs'); fs.mkdirSync(${JSON.stringify(join(directory, 'owners'))});
        require('net').createServer().listen(${JSON.stringify(path)}, () => { console.log('up'); setTimeout(() => { ${business} }, 50); });`;
      const owner = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
      await once(owner.stdout, 'data');
      await new Promise(resolve => setTimeout(resolve, 200));
      expect(await ownerState(directory, OWNER)).toBe('alive');
      owner.kill('SIGKILL');
      await once(owner, 'exit');
      expect(existsSync(path)).toBe(true);
      expect(await ownerState(directory, OWNER)).toBe('dead');
      expect(await removeDeadSockets(directory)).toBe(1);
      expect(existsSync(path)).toBe(false);
    },
  );

  it('listens again, and is alive, where its socket was taken away', async () => {
    const socket = await OwnerSocket.listen(directory, OWNER);
    await socket.ensure();
    const { ino } = lstatSync(socket.path);
    rmSync(socket.path);
    expect(await ownerState(directory, OWNER)).toBe('dead');
    await Promise.all([socket.ensure(), socket.ensure()]);
    expect(await ownerState(directory, OWNER)).toBe('alive');
    rmSync(directory, { recursive: true });
    await socket.ensure();
    expect(await ownerState(directory, OWNER)).toBe('alive');
    // The control: while it is there, it is left as it is.
    const again = lstatSync(socket.path).ino;
    await socket.ensure();
    expect(lstatSync(socket.path).ino).toBe(again);
    expect(ino).toBeGreaterThan(0);
    await socket.close();
    expect(readdirSync(join(directory, 'owners'))).toEqual([]);
  });

  it('is never seen before it answers', async () => {
    const removing = (async () => {
      for (let round = 0; round < 50; round += 1) await removeDeadSockets(directory);
    })();
    const owners = Array.from({ length: 20 }, (_, at) => OWNER.replace(/cd$/, String(10 + at)));
    const sockets = await Promise.all(owners.map(owner => OwnerSocket.listen(directory, owner)));
    await removing;
    const states = await Promise.all(owners.map(owner => ownerState(directory, owner)));
    expect(new Set(states)).toEqual(new Set(['alive']));
    await Promise.all(sockets.map(socket => socket.close()));
  });

  it('that died before its socket had its name leaves nothing for long', async () => {
    mkdirSync(join(directory, 'owners'));
    const [old, young] = ['a', 'b'].map(name => join(directory, 'owners', `${name.repeat(32)}~`));
    for (const path of [old, young]) writeFileSync(path ?? '', '');
    utimesSync(old ?? '', 0, 0);
    await removeDeadSockets(directory);
    expect([old, young].map(path => existsSync(path ?? ''))).toEqual([false, true]);
  });

  it('is unknown, and so alive, where the id is none', async () => {
    expect(await ownerState(directory, undefined)).toBe('unknown');
    expect(await ownerState(directory, '../../etc')).toBe('unknown');
  });

  it('cannot listen below a path that is too long, and says so', async () => {
    await expect(OwnerSocket.listen(join(directory, 'x'.repeat(100)), OWNER)).rejects.toMatchObject({
      code: 'ACODE-SBX-013',
    });
  });
});
