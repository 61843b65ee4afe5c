// An engine that cannot be reached is no reason to look at less: whose socket it is, is what its user needs to know.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AcodeError } from '../../contract/errors.ts';
import { ok } from './checks/machine.ts';
import { examine } from './doctor.ts';
import type { LocalLevel } from './doctor.ts';

let top = '';
beforeAll(async () => {
  top = await mkdtemp(join(tmpdir(), 'acode-doctor-'));
});
afterAll(() => rm(top, { recursive: true, force: true }));

const checksWithout = (socket: string) =>
  checksAfter(new AcodeError('ACODE-SBX-008', { socket, reason: 'no permission', remedy: 'Join its group.' }));

const checksAfter = async (failure: Error, local: LocalLevel | null = null) => {
  const home = { home: top, config: join(top, 'c'), state: join(top, 's'), runtime: join(top, 'r') };
  const about = { uid: 1001, identity: 'i', directories: home, workspace: top, image: 'x', configuration: [] };
  const patient = { ...about, socket: 'unix:///s', local };
  return (await examine({ ...patient, diagnose: () => Promise.reject(failure) })).checks;
};

describe('the doctor without an engine', () => {
  it('tells the reason and the way on, and not that nothing was run', async () => {
    const [engine] = await checksWithout('/nonexistent/docker.sock');
    expect(engine).toMatchObject({ id: 'engine', status: 'fail', remedy: 'Join its group.' });
    expect(engine?.seen).toBe('no Docker Engine answered at /nonexistent/docker.sock (no permission).');
  });

  it('says of an engine that is late what happened, and not how the deadline was called', async () => {
    const [engine] = await checksAfter(new DOMException('The operation was aborted due to timeout', 'TimeoutError'));
    expect(engine?.seen).toBe('the engine at /s did not answer within 1.2 s: it is slow or hangs');
    expect(engine?.remedy).toContain('docker version');
  });

  it.each([
    ['/nonexistent/docker.sock', ['fail']],
    ['/nonexistent/a.sock, /nonexistent/b.sock', ['fail']],
    ['tcp://1.2.3.4:2375', []],
  ])('still looks at the socket %s, where it is a file', async (socket, statuses) => {
    const looked = (await checksWithout(socket)).filter(({ id }) => id === 'socket');
    expect(looked.map(({ status }) => status)).toEqual(statuses);
  });

  const local = {
    level: 'bubblewrap',
    check: async () => ok('level', 'Isolation level', 'bubblewrap (bwrap)'),
  } as const;
  const refusing = new AcodeError('ACODE-SBX-008', {
    socket: '/nonexistent/docker.sock',
    reason: 'nothing listens there',
  });
  const missing = new AcodeError('ACODE-SBX-008', { socket: '/a, /b', reason: 'none', absent: true });

  it.each([
    ['a level without an engine', { ...local, standsIn: false }, refusing, ['level ok', 'engine warn']],
    [
      'a level that stands in where there is no engine',
      { ...local, standsIn: true },
      missing,
      ['level ok', 'engine warn'],
    ],
    [
      'a level that stands in, beside an engine that refuses',
      { ...local, standsIn: true },
      refusing,
      ['engine fail', 'socket fail'],
    ],
  ])('fails only what commands need: %s', async (_, chosen, failure, wanted) => {
    const checks = await checksAfter(failure, chosen);
    const about = checks.filter(({ id }) => ['level', 'engine', 'socket'].includes(id));
    expect(about.map(({ id, status }) => `${id} ${status}`)).toEqual(wanted);
  });
});
