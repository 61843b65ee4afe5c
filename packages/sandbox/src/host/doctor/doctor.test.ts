// An engine that cannot be reached is no reason to look at less: whose socket it is, is what its user needs to know.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AcodeError } from '../../contract/errors.ts';
import { examine } from './doctor.ts';

let top = '';
beforeAll(async () => {
  top = await mkdtemp(join(tmpdir(), 'acode-doctor-'));
});
afterAll(() => rm(top, { recursive: true, force: true }));

const checksWithout = async (socket: string) => {
  const home = { home: top, config: join(top, 'c'), state: join(top, 's'), runtime: join(top, 'r') };
  const failure = new AcodeError('ACODE-SBX-008', { socket, reason: 'no permission', remedy: 'Join its group.' });
  const patient = { uid: 1001, identity: 'i', directories: home, workspace: top, image: 'x', configuration: [] };
  return (await examine({ ...patient, diagnose: () => Promise.reject(failure) })).checks;
};

describe('the doctor without an engine', () => {
  it('tells the reason and the way on, and not that nothing was run', async () => {
    const [engine] = await checksWithout('/nonexistent/docker.sock');
    expect(engine).toMatchObject({ id: 'engine', status: 'fail', remedy: 'Join its group.' });
    expect(engine?.seen).toBe('no Docker Engine answered at /nonexistent/docker.sock (no permission).');
  });

  it.each([
    ['/nonexistent/docker.sock', ['fail']],
    ['/nonexistent/a.sock, /nonexistent/b.sock', ['fail']],
    ['tcp://1.2.3.4:2375', []],
  ])('still looks at the socket %s, where it is a file', async (socket, statuses) => {
    const looked = (await checksWithout(socket)).filter(({ id }) => id === 'socket');
    expect(looked.map(({ status }) => status)).toEqual(statuses);
  });
});
