// Forks: commands write a layer, and the workspace on the host is byte for byte what it was.

import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Acode, policyFrom } from '@acode/sandbox';
import type { PolicyInput, RunResult } from '@acode/sandbox';
import { targets } from '../conformance/targets.ts';
import { TestHost, engines, images, mainEngine, makeWorkspace, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { everything } from '../support/targets.ts';
import { EVERYTHING, fingerprint, project } from './project.ts';

const STORE = join(process.env['XDG_STATE_HOME'] ?? '', 'acode', 'f');
const FORK = { workspace: 'fork' } as const;

function runIn(host: TestHost, script: string, policy: PolicyInput = FORK): Promise<RunResult> {
  return host.acode.run(['sh', '-c', script], { policy: policyFrom({ image: images.debian, ...policy }) });
}

describe.skipIf(withoutEngines).each(engines)('a fork on $name $version', engine => {
  let host: TestHost;
  let before: string;

  beforeAll(async () => {
    host = await TestHost.open(engine);
    project(host.workspace);
    before = fingerprint(host.workspace);
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it('takes everything that a command does, and the host’s tree is what it was', async () => {
    const { exitCode, fork, stderr } = await runIn(host, EVERYTHING);
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
    expect(fork?.id).toMatch(/^[a-z0-9]{8}$/);
    expect(fingerprint(host.workspace)).toBe(before);
    // The control: without a fork, the same command changes it.
    const other = makeWorkspace();
    project(other);
    const was = fingerprint(other);
    await using direct = await TestHost.open(engine, { workspace: other });
    await runIn(direct, 'echo more >> a.txt', {});
    expect(fingerprint(other)).not.toBe(was);
  });

  it('lists what was changed, by content, and as a patch that git takes', async () => {
    const { changes, counts, id } = await host.acode.forks.diff();
    const of = (path: string) => changes.find(change => change.path === path);
    expect(of('a.txt')).toMatchObject({ change: 'changed', kind: 'file', bytes: { before: 4, after: 9 } });
    expect(of('src/deep/b.txt')).toMatchObject({ change: 'deleted', kind: 'file' });
    expect(of('link')).toMatchObject({ change: 'changed', link: { before: 'a.txt', after: '/etc/passwd' } });
    expect(of('run.sh')).toMatchObject({ change: 'changed', mode: { before: 0o755, after: 0o600 } });
    expect(of('.git/hooks/post-checkout')).toMatchObject({ change: 'added' });
    expect(of('pipe')).toMatchObject({ change: 'added', kind: 'fifo' });
    expect(counts.added + counts.changed + counts.deleted).toBe(changes.length);
    expect((await host.acode.forks.diff()).id).toBe(id);
    const pieces: Uint8Array[] = [];
    const { omitted } = await host.acode.forks.patch({
      acceptRisk: 'all',
      write: piece => void pieces.push(piece),
    });
    expect(omitted).toContainEqual({ path: 'pipe', reason: 'special' });
    expect(Buffer.concat(pieces).toString()).toContain('+more\n');
  });

  it('is what the next command sees, whichever runs it, until it is taken back', async () => {
    expect((await runIn(host, 'cat a.txt src/c; test ! -e src/deep; stat -c %a run.sh')).stdout).toBe(
      'one\nmore\nnew\n600\n',
    );
    await runIn(host, 'echo 3 > third');
    expect((await host.acode.forks.history()).map(({ command }) => command)).toHaveLength(2);
    expect(await host.acode.forks.undo()).toMatchObject([{ number: 2, command: 'sh -c echo 3 > third' }]);
    expect((await runIn(host, 'ls third 2>&1; cat a.txt')).stdout).toMatch(/No such file[^]*one\nmore\n/);
  });

  it('is another one under another name, and a fresh one', async () => {
    expect((await runIn(host, 'cat a.txt', { fork: 'second' })).stdout).toBe('one\n');
    expect((await runIn(host, 'cat a.txt', { fork: 'new' })).stdout).toBe('one\n');
    // A fresh one without changes is gone, and the current one before it still is.
    const names = (await host.acode.forks.list()).map(({ name, isCurrent }) => ({ name, isCurrent }));
    expect(names).toHaveLength(2);
    expect(names).toEqual(
      expect.arrayContaining([
        { name: 'second', isCurrent: false },
        { name: null, isCurrent: true },
      ]),
    );
  });

  it('is removed by an ordinary user, with what the engine’s kernel left in it', async () => {
    for (const { id } of await host.acode.forks.list({ all: true })) await host.acode.forks.discard(id);
    expect(readdirSync(STORE)).toEqual([]);
    expect(fingerprint(host.workspace)).toBe(before);
  });
});

describe.skipIf(withoutEngines)('a fork that is attacked', () => {
  it.each(['upper', 'work', 'lower', 'workspace'] as const)('is refused where its %s is exchanged', async part => {
    await using proxy = await EngineProxy.start(mainEngine.socket);
    await using host = await TestHost.open(mainEngine, { engine: { socket: proxy.socket } });
    project(host.workspace);
    // The control: nothing is exchanged.
    expect((await runIn(host, 'echo 1 > one')).exitCode).toBe(0);
    const [{ id } = { id: '' }] = await host.acode.forks.list();
    const store = join(STORE, id);
    const at = { upper: join(store, '2'), work: join(store, 'w'), lower: join(store, '1'), workspace: host.workspace };
    let swapped = false;
    proxy.onRequest((method, path) => {
      if (swapped || method !== 'POST' || !path.includes('/volumes/create')) return undefined;
      swapped = true;
      renameSync(at[part], `${at[part]}.aside`);
      mkdirSync(at[part]);
      writeFileSync(join(at[part], 'planted'), 'planted');
      return undefined;
    });
    await expect(runIn(host, 'cat planted')).rejects.toMatchObject({ code: 'ACODE-SBX-010' });
    expect(swapped).toBe(true);
  });

  it('is refused where the kernel would cut its mount options, before the engine sees them', async () => {
    await using proxy = await EngineProxy.start(mainEngine.socket);
    await using host = await TestHost.open(mainEngine, { engine: { socket: proxy.socket } });
    const deep = join(
      host.workspace,
      ...Array.from({ length: 16 }, (_, at) => `${at}`.padEnd(240, 'x')),
      'y'.repeat(100),
    );
    mkdirSync(deep, { recursive: true });
    await using far = await TestHost.open(mainEngine, { engine: { socket: proxy.socket }, workspace: deep });
    const seen: string[] = [];
    proxy.onRequest((method, path) => {
      if (method === 'POST') seen.push(path);
      return undefined;
    });
    await expect(runIn(far, 'true')).rejects.toMatchObject({ code: 'ACODE-FRK-004' });
    expect(seen.filter(path => path.includes('/volumes/create'))).toEqual([]);
    expect(existsSync(deep)).toBe(true);
  });
});

const LONG = [...Array.from({ length: 12 }, (_, at) => `${at}`.padEnd(249, 'x')), 'end'].join('/');
const ODD = [
  ['with a space', 'with space'],
  ['with a comma', 'a,b'],
  ['with a colon', 'c:d'],
  ['with a backslash', String.raw`e\f`],
  ['with a newline', 'new\nline'],
  ['with quotes', `quotes "'`],
  ['with a percent sign', '100 %'],
  ['beyond ASCII', 'é漢'],
  ['of 3,000 bytes', LONG],
] as const;
const mounting = targets.filter(({ name, level, absent }) => {
  if (absent || level === 'ulimit' || level === 'none') return false;
  return everything || level === 'bubblewrap' || name === `${mainEngine.name}/runc`;
});

describe.each(mounting)('on $name, a fork of a workspace with a path', target => {
  const top = makeWorkspace();
  afterAll(() => rmSync(top, { recursive: true, force: true }));

  it.each(ODD)('%s is of that workspace, or refused with the reason', async (what, path) => {
    const workspace = join(top, path);
    mkdirSync(workspace, { recursive: true });
    writeFileSync(join(workspace, 'own'), 'own\n');
    const before = fingerprint(workspace);
    await using acode = await Acode.open({ engine: { socket: target.engine.socket }, ...target.options, workspace });
    const image = target.lacks.engine === undefined ? { image: images.busybox } : {};
    const run = (script: string): Promise<RunResult> =>
      acode.run(['sh', '-c', script], { policy: policyFrom({ ...image, ...FORK }), risk: 'low' });
    try {
      expect((await run('cat own; echo more >> own; echo made > made')).stdout).toBe('own\n');
    } catch (error) {
      // The program `mount`, which Podman calls and acode for a bubblewrap without overlays, reads them as its own.
      const isByMount = target.level === 'bubblewrap' || target.name.startsWith('podman');
      if (what !== 'with quotes' || !isByMount) throw error;
      expect(error).toMatchObject({ code: 'ACODE-FRK-004', message: expect.stringContaining('a double quote') });
      return;
    }
    expect((await run('cat own made')).stdout).toBe('own\nmore\nmade\n');
    const { changes } = await acode.forks.diff();
    expect(changes.map(({ change, path: name }) => `${change} ${name}`).sort()).toEqual(['added made', 'changed own']);
    expect(fingerprint(workspace)).toBe(before);
    for (const { id } of await acode.forks.list()) await acode.forks.discard(id);
  });
});
