// Caches where something goes wrong on the way: a fill that never began, one of several that cannot be had, a fill or a
// removal that comes between the plan of a sandbox and its making.

import { randomUUID } from 'node:crypto';
import { chmodSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { policyFrom } from '@acode/sandbox';
import type { PolicyInput, RunResult } from '@acode/sandbox';
import { TestHost, engines, images, withEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { NPM_CI, PACKAGES, PACK_AND_ADD, layOut, writeProject } from './npm-tree.ts';
import { LAYER, UID, soon, volumesOf } from './volumes.ts';

const isCreate = (method: string, path: string, what: 'volumes' | 'containers'): boolean =>
  method === 'POST' && path.includes(`/${what}/create`);

describe.skipIf(withoutEngines).each(engines)('caches on $name $version, in trouble', engine => {
  let proxy: EngineProxy;
  let host: TestHost;
  let name: string;
  let volume: string;

  const run = (script: string, policy: PolicyInput, on = host, cwd = '.'): Promise<RunResult> =>
    on.acode.run(['sh', '-c', script], {
      cwd,
      policy: policyFrom({ image: images.debian, timeoutMs: 60_000, ...policy }),
    });
  const with_ = (script: string, on = host): Promise<RunResult> => run(script, { caches: ['npm'] }, on);
  const fill = (script: string, on = host): Promise<RunResult> => run(script, { caches: { fill: ['npm'] } }, on);
  const open = (socket = engine.socket, volumes: Record<string, string> = {}): Promise<TestHost> =>
    TestHost.open(engine, { engine: { socket }, config: { sandbox: { cache_volumes: { npm: name, ...volumes } } } });
  const volumesFor = (cache: string): Promise<string[]> => volumesOf(engine, cache);
  const withoutCache = async (): Promise<string[]> => (await volumesFor(volume)).filter(one => one !== volume);
  const remove = (which: string): Promise<void> =>
    withEngine(engine, direct => direct.volumes.remove(which, { signal: soon() }));

  beforeEach(async () => {
    name = `acode-cache-test-${randomUUID().slice(0, 8)}`;
    volume = `${name}-${UID}`;
    proxy = await EngineProxy.start(engine.socket);
    host = await open(proxy.socket);
    chmodSync(host.workspace, 0o755);
  });
  afterEach(async () => {
    proxy.onRequest(undefined);
    await host[Symbol.asyncDispose]();
    await proxy.close();
    await remove(volume);
  });

  it('work after a first fill that failed before it began: the next run installs in its layer', async () => {
    layOut(host.workspace);
    expect((await run(PACK_AND_ADD, { caches: false })).exitCode).toBe(0);
    writeProject(host.workspace, 'project');
    proxy.onRequest((method, path) =>
      isCreate(method, path, 'containers') ? { status: 400, message: 'not today', when: 'before' } : undefined,
    );
    await expect(fill('true')).rejects.toMatchObject({ code: 'ACODE-SBX-001' });
    proxy.onRequest(undefined);
    // The control: the cache is there, and nobody has ever put anything into it.
    await expect.poll(() => volumesFor(volume)).toEqual([volume]);
    const { exitCode, stdout, stderr } = await with_(
      `set -e; stat -c '%u %a' $npm_config_cache; (${PACK_AND_ADD}); cd project; ${NPM_CI}`,
    );
    expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
    expect(stdout).toMatch(new RegExp(`^${UID} 700\n[^]*added ${PACKAGES.length} packages`));
    await expect.poll(withoutCache).toEqual([]);
  });

  it('are not made for an image without a shell, which cannot fill them; it reads them like any other', async () => {
    const direct = (caches: PolicyInput['caches']): Promise<RunResult> =>
      host.acode.run(['/true'], { policy: { image: images.noshell, ...(caches === undefined ? {} : { caches }) } });
    // The control; and from now on the image is known to have none.
    expect((await direct(false)).exitCode).toBe(0);
    await expect(direct({ fill: ['npm'] })).rejects.toMatchObject({ code: 'ACODE-SBX-016' });
    expect(await volumesFor(volume)).toEqual([]);
    expect((await fill('echo filled > $npm_config_cache/file')).exitCode).toBe(0);
    expect((await direct(['npm'])).exitCode).toBe(0);
    expect((await with_('cat $npm_config_cache/file')).stdout).toBe('filled\n');
    await expect.poll(withoutCache).toEqual([]);
  });

  it('of which one of several cannot be had leave no lease behind, also one whose create was still under way', async () => {
    const strange = `acode-cache-strange-${randomUUID().slice(0, 8)}`;
    const Name = `${strange}-${UID}`;
    const Labels = { 'acode.managed': 'true', 'acode.cache': 'pip', 'acode.keep': 'true', 'acode.uid': String(UID) };
    const DriverOpts = { type: 'none', o: 'bind', device: '/etc' };
    await withEngine(engine, direct => direct.volumes.create({ Name, Labels, DriverOpts }, { signal: soon() }));
    await using both = await open(proxy.socket, { pip: strange });
    try {
      let passed = false;
      let pass = (): void => undefined;
      const refused = new Promise<void>(resolve => (pass = resolve));
      proxy.onRequest(async (method, path, body) => {
        if (!isCreate(method, path, 'volumes') || !body.includes(`"${volume}.filling"`)) return undefined;
        await refused;
        passed = true;
        return undefined;
      });
      await expect(run('true', { caches: { fill: ['npm', 'pip'] } }, both)).rejects.toMatchObject({
        code: 'ACODE-SBX-010',
        message: expect.stringContaining('leads somewhere else') as string,
      });
      // The control: the other’s was on its way when that was known.
      expect(passed).toBe(false);
      pass();
      await expect.poll(() => passed).toBe(true);
      await new Promise(resolve => setTimeout(resolve, 500));
      await expect.poll(withoutCache).toEqual([]);
      expect(await volumesFor(Name)).toEqual([Name]);
      proxy.onRequest(undefined);
      expect((await fill('true')).exitCode).toBe(0);
    } finally {
      await remove(Name);
    }
  });

  it('are not read while they are filled, by a run that was planned before the fill began', async () => {
    expect((await fill('echo first > $npm_config_cache/file')).exitCode).toBe(0);
    await using other = await open();
    let filling: Promise<RunResult> | undefined;
    let begun: Promise<void> | undefined;
    const beginToFill = (): Promise<void> =>
      new Promise<void>((resolve, reject) => {
        filling = other.acode.run(
          ['sh', '-c', 'echo begun; until [ -e refused ]; do sleep 0.1; done; echo second > $npm_config_cache/file'],
          {
            policy: { image: images.debian, caches: { fill: ['npm'] } },
            onStdout: () => resolve(),
          },
        );
        filling.catch(reject);
      });
    proxy.onRequest(async (method, path, body) => {
      if (isCreate(method, path, 'volumes') && body.includes(`"${LAYER}"`)) await (begun ??= beginToFill());
      return undefined;
    });
    await expect(with_('cat $npm_config_cache/file')).rejects.toMatchObject({
      code: 'ACODE-SBX-001',
      message: expect.stringContaining('begun to fill') as string,
    });
    writeFileSync(other.file('refused'), '');
    expect((await filling)?.exitCode).toBe(0);
    await expect.poll(withoutCache).toEqual([]);
    // The control: without anybody who fills, the same run reads what was filled in.
    proxy.onRequest(undefined);
    expect((await with_('cat $npm_config_cache/file')).stdout).toBe('second\n');
  });

  it('are not removed from under a sandbox that began after they were looked at, nor while they are filled', async () => {
    expect((await fill('echo first > $npm_config_cache/file')).exitCode).toBe(0);
    await expect.poll(withoutCache).toEqual([]);
    await using other = await open();
    let reading: Promise<RunResult> | undefined;
    proxy.onRequest(async (method, path) => {
      if (method !== 'GET' || !path.endsWith(`/volumes/${volume}`) || reading) return undefined;
      reading = with_('until [ -e kept ]; do sleep 0.1; done; cat $npm_config_cache/file', other);
      await expect.poll(async () => (await withoutCache()).length).toBe(3);
      return undefined;
    });
    const { belongings } = await host.acode.cleanup({ volumes: true });
    expect(belongings.removed.map(one => one.name)).not.toContain(volume);
    expect(belongings.kept.map(one => one.name)).toContain(volume);
    writeFileSync(other.file('kept'), '');
    expect(await reading).toMatchObject({ exitCode: 0, stdout: 'first\n' });
    proxy.onRequest(undefined);
    await expect.poll(withoutCache).toEqual([]);

    const filling = fill('until [ -e filled ]; do sleep 0.1; done; cat $npm_config_cache/file', other);
    await expect.poll(withoutCache).toEqual([`${volume}.filling`]);
    expect((await host.acode.cleanup({ volumes: true })).belongings.removed.map(one => one.name)).not.toContain(volume);
    writeFileSync(other.file('filled'), '');
    expect((await filling).stdout).toBe('first\n');
    await expect.poll(withoutCache).toEqual([]);
    // The control: when nobody uses it, it goes.
    const removed = (await host.acode.cleanup({ volumes: true })).belongings.removed.map(one => one.name);
    expect(removed).toContain(volume);
  });

  it('that go a moment before they are mounted are made anew as what they were', async () => {
    let gone = false;
    proxy.onRequest(async (method, path) => {
      if (isCreate(method, path, 'containers') && !gone) {
        await remove(volume);
        gone = true;
      }
      return undefined;
    });
    expect((await fill('echo filled > $npm_config_cache/file')).exitCode).toBe(0);
    expect(gone).toBe(true);
    await expect.poll(() => volumesFor(volume)).toEqual([volume]);
    expect((await with_('cat $npm_config_cache/file')).stdout).toBe('filled\n');
  });

  it('are layers without devices and without programs that gain rights', async () => {
    expect((await fill('true')).exitCode).toBe(0);
    const { stdout } = await with_('grep " /cache/npm " /proc/self/mountinfo');
    expect(stdout).toMatch(/ \/cache\/npm rw,nosuid,nodev[ ,].* - overlay /);
  });
});
