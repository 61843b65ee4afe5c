// A user who may not use the engine’s socket hears which group to join.

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { accessRemedy, socketGroup } from './socket-group.ts';

let directory = '';
const gid = process.getgid?.() ?? 0;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'acode-group-'));
  await writeFile(join(directory, 'socket'), '');
  await writeFile(join(directory, 'groups'), `other:x:${gid + 1}:\nengineers:x:${gid}:me,you\n`);
});

afterAll(() => rm(directory, { recursive: true, force: true }));

describe('the group of a socket', () => {
  it('has the name that this machine has for it', async () => {
    const socket = join(directory, 'socket');
    expect(await socketGroup(socket, join(directory, 'groups'))).toEqual({ gid, name: 'engineers' });
    expect(await socketGroup(socket, join(directory, 'missing'))).toEqual({ gid, name: null });
  });

  it('is unknown where the socket cannot be seen', async () => {
    expect(await socketGroup(join(directory, 'nothing'))).toBeNull();
  });
});

describe('a user without access', () => {
  it.each([
    [{ gid: 990, name: 'docker' }, 'usermod -aG docker $USER'],
    [{ gid: 990, name: null }, 'usermod -aG 990 $USER'],
    [{ gid: 0, name: 'root' }, 'belongs to root alone'],
    [null, 'a directory on the way'],
  ])('to a socket of %j is told: %s', (group, expected) => {
    const remedy = accessRemedy('/run/docker.sock', group);
    expect(remedy).toContain(expected);
    expect(remedy).not.toMatch(/usermod -aG root|Start Docker/);
  });
});
