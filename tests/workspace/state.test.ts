// State directories: what sandboxes of a project keep from one to the next, and nobody else opens.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, renameSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PolicyInput, RunResult, StateRequest } from '@acode/sandbox';
import { EngineProxy } from '../support/proxy.ts';
import { TestHost, mainEngine, withoutEngines } from '../support/engines.ts';

const STATES = join(process.env['XDG_STATE_HOME'] ?? '', 'acode/states');
const MIB = 1024 ** 2;

function keep(host: TestHost, script: string, state: StateRequest = { name: 'notes' }): Promise<RunResult> {
  const policy: PolicyInput = { state };
  return host.acode.run(['sh', '-c', script], { policy });
}

// The directory that is mounted, of the only project that has one of this name.
function dataOf(name: string): string {
  const [project] = readdirSync(STATES).filter(one => existsSync(join(STATES, one, name)));
  return join(STATES, project ?? '', name, 'data');
}

describe.skipIf(withoutEngines)('a state directory', () => {
  let host: TestHost;

  beforeAll(async () => {
    host = await TestHost.open(mainEngine);
  });

  afterAll(async () => {
    await host[Symbol.asyncDispose]();
  });

  it('has for the next sandbox what an earlier one left, agent directories too, and only where it is asked for', async () => {
    // Of the same name as what acode makes read-only in a workspace: nothing of the host reads it here.
    expect((await keep(host, 'mkdir -p /state/.claude && echo first > /state/.claude/notes')).exitCode).toBe(0);
    expect((await keep(host, 'echo second >> /state/.claude/notes; cat /state/.claude/notes')).stdout).toBe(
      'first\nsecond\n',
    );
    expect((await host.acode.run(['ls', '/state'])).exitCode).not.toBe(0);
    expect((await keep(host, 'ls -A /state', { name: 'other' })).stdout).toBe('');
    expect(readdirSync(host.workspace)).toEqual([]);
  });

  it('is shown by explain, which makes nothing, and reported by no scan', async () => {
    await keep(host, 'true', { name: 'before' });
    const { spec } = await host.acode.explain(['true'], { policy: { state: { name: 'shown' } } });
    expect(spec.mounts).toContainEqual(expect.objectContaining({ purpose: 'state', target: '/state' }));
    expect(readdirSync(STATES).some(one => existsSync(join(STATES, one, 'shown')))).toBe(false);
    const { riskyChanges } = await keep(
      host,
      'mkdir -p /state/.git/hooks; echo x > /state/.git/hooks/pre-commit; mkfifo /state/f',
    );
    expect(riskyChanges).toEqual([]);
  });

  it('belongs to one sandbox at a time, and to the next as soon as that one has ended', async () => {
    await using sandbox = await host.acode.create({ policy: { state: { name: 'single' } } });
    await expect(keep(host, 'true', { name: 'single' })).rejects.toMatchObject({
      code: 'ACODE-SBX-027',
      context: { problem: 'in-use', sandbox: sandbox.id },
    });
    await expect(host.acode.removeState('single')).rejects.toMatchObject({ code: 'ACODE-SBX-027' });
    await sandbox.kill();
    expect((await keep(host, 'echo mine > /state/a; echo mine', { name: 'single' })).stdout).toBe('mine\n');
    const data = dataOf('single');
    await host.acode.removeState('single');
    expect(existsSync(join(data, '..'))).toBe(false);
    // What is not a name leads to no other directory.
    await expect(host.acode.removeState('../../..')).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    expect(existsSync(STATES)).toBe(true);
  });

  it('begins empty where that is asked for, whatever was in it', async () => {
    await keep(host, 'cd /state; mkdir -p a/b; touch a/b/c; ln -s /etc/passwd link; chmod 000 a/b', { name: 'fresh' });
    expect((await keep(host, 'ls -A /state', { name: 'fresh' })).stdout).not.toBe('');
    expect((await keep(host, 'ls -A /state', { name: 'fresh', fresh: true })).stdout).toBe('');
    expect(readdirSync(join(dataOf('fresh'), '..'))).not.toContainEqual(expect.stringMatching(/^\.old/));
  });

  it('of commands that begin at once goes to one of them, and the others are told so, though each empties it first', async () => {
    const one = (): Promise<RunResult> => keep(host, 'echo x > /state/a; sleep 4', { name: 'wanted', fresh: true });
    const ends = await Promise.allSettled(Array.from({ length: 5 }, one));
    const refused = ends.flatMap(end => (end.status === 'rejected' ? [end.reason as unknown] : []));
    expect(ends.length - refused.length).toBeGreaterThan(0);
    expect(refused.length).toBeGreaterThan(0);
    for (const error of refused)
      expect(error).toMatchObject({ code: 'ACODE-SBX-027', context: { problem: 'in-use', state: 'wanted' } });
  });

  it('is limited in size: the command that reaches the limit ends, and the next does not start', async () => {
    const state = { name: 'large', bytes: 4 * MIB };
    expect((await keep(host, 'head -c 1000000 /dev/zero > /state/small', state)).exitCode).toBe(0);
    const result = await keep(host, 'cat /dev/zero > /state/large', state);
    expect(result).toMatchObject({ limitExceeded: 'disk' });
    expect(result.denials).toContainEqual(expect.objectContaining({ rule: 'limit.disk', value: 4 * MIB }));
    await expect(keep(host, 'true', state)).rejects.toMatchObject({
      code: 'ACODE-SBX-027',
      context: { problem: 'full' },
    });
  });

  it('is refused where it is exchanged after it was checked', async () => {
    await using proxy = await EngineProxy.start(mainEngine.socket);
    await using other = await TestHost.open(mainEngine, {
      engine: { socket: proxy.socket },
      workspace: host.workspace,
      pool: false,
    });
    // The control: nothing is exchanged.
    expect((await keep(other, 'echo kept > /state/kept', { name: 'swapped' })).exitCode).toBe(0);
    const data = dataOf('swapped');
    let swapped = false;
    proxy.onRequest((method, path) => {
      if (swapped || method !== 'POST' || !path.includes('/containers/create')) return undefined;
      swapped = true;
      renameSync(data, `${data}.aside`);
      symlinkSync(process.env['HOME'] ?? '/', data);
      return undefined;
    });
    await expect(keep(other, 'ls /state', { name: 'swapped' })).rejects.toMatchObject({ code: 'ACODE-SBX-010' });
    expect(swapped).toBe(true);
    execFileSync('rm', ['-rf', data]);
    mkdirSync(data, { mode: 0o700 });
  });
});
