// Caches of package managers: warm for everybody, written by nobody but who was asked to fill them.

import { randomUUID } from 'node:crypto';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { policyFrom } from '@acode/sandbox';
import type { PolicyInput, RunResult } from '@acode/sandbox';
import { TestHost, engines, images, makeWorkspace, withEngine, withoutEngines } from '../support/engines.ts';
import { NPM_CI, PACKAGES, PACK_AND_ADD, layOut, writeProject } from './npm-tree.ts';
import { UID, soon, volumesOf } from './volumes.ts';

const namesOf = (list: readonly { readonly name: string }[]): string[] => list.map(({ name }) => name);

describe.skipIf(withoutEngines).each(engines)('caches on $name $version', engine => {
  let host: TestHost;
  const name = `acode-cache-test-${randomUUID().slice(0, 8)}`;
  const volume = `${name}-${UID}`;

  const run = (script: string, policy: PolicyInput = {}, cwd = '.'): Promise<RunResult> =>
    host.acode.run(['sh', '-c', script], {
      cwd,
      policy: policyFrom({ image: images.debian, timeoutMs: 60_000, ...policy }),
    });
  const with_ = (script: string, cwd?: string): Promise<RunResult> => run(script, { caches: ['npm'] }, cwd);
  const fill = (script: string): Promise<RunResult> => run(script, { caches: { fill: ['npm'] } });
  const volumes = (): Promise<string[]> => volumesOf(engine, volume);
  const layers = async (): Promise<string[]> => (await volumes()).filter(one => one !== volume);

  beforeAll(async () => {
    host = await TestHost.open(engine, { config: { sandbox: { cache_volumes: { npm: name } } } });
    chmodSync(host.workspace, 0o755);
    layOut(host.workspace);
  });
  afterAll(async () => {
    await host[Symbol.asyncDispose]();
    await withEngine(engine, direct => direct.volumes.remove(volume, { signal: soon() }));
  });

  it('are not there before one was filled, and cost nothing', async () => {
    const { stdout } = await with_('echo "[$npm_config_cache]"; ls -d /cache 2>&1');
    expect(stdout).toMatch(/^\[\]\n.*No such file/);
    expect(await volumes()).toEqual([]);
    const { notes } = await host.acode.explain('true', { policy: { image: images.debian, caches: ['npm'] } });
    expect(notes.join(' ')).toContain('There is no cache of npm yet');
  });

  it('are filled by an ordinary user, outlive the sandbox, and are read by the next', async () => {
    const filled = await fill(`set -e; id -u; echo "$npm_config_cache"; ${PACK_AND_ADD}`);
    expect(filled).toMatchObject({ exitCode: 0, stdout: `${UID}\n/cache/npm/data\n` });
    await expect.poll(volumes).toEqual([volume]);
    expect((await host.acode.status()).cacheVolumes).toContain(volume);
    writeProject(host.workspace, 'project');
    const { exitCode, stdout, stderr } = await with_(`${NPM_CI} && ls node_modules`, 'project');
    expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
    expect(stdout).toContain(`added ${PACKAGES.length} packages`);
    for (const one of PACKAGES) expect(stdout).toContain(one);
  });

  it('are not there when the request says so: then the same command finds nothing', async () => {
    const { exitCode, stderr } = await run(NPM_CI, { caches: false }, 'project');
    expect(exitCode).not.toBe(0);
    expect(stderr).toMatch(/ENOTCACHED/);
  });

  it('are used without a network by a plain npm ci; without them it fails by itself, long before npm would give up', async () => {
    const plain = 'rm -rf node_modules; npm ci --no-audit --no-fund --no-update-notifier';
    expect(await with_(plain, 'project')).toMatchObject({ exitCode: 0, denials: [] });
    // npm repeats a request for more than a minute where it is not told that there is no network.
    const { exitCode, denials } = await run(plain, { caches: false, timeoutMs: 45_000 }, 'project');
    expect(exitCode).not.toBeNull();
    expect(exitCode).not.toBe(0);
    expect(denials).toMatchObject([{ rule: 'network.none' }]);
    const { environment } = await host.acode.explain('true', {
      policy: { image: images.debian },
      env: { GOPROXY: '' },
    });
    expect(environment).toMatchObject({ npm_config_offline: 'true' });
    expect(environment).not.toHaveProperty('GOPROXY');
  });

  it('come by language without being asked for', async () => {
    const { spec, policy } = await host.acode.explain('true', { policy: { image: images.debian } });
    expect([policy.caches.value.volumes, spec.caches]).toEqual([[], []]);
    const workspace = makeWorkspace();
    writeFileSync(join(workspace, 'package.json'), '{}');
    await using inside = await TestHost.open(engine, {
      workspace,
      config: { sandbox: { cache_volumes: { npm: name }, images: { default: images.debian } } },
    });
    const { stdout } = await inside.acode.run(['sh', '-c', 'echo $npm_config_cache; ls /cache']);
    expect(stdout).toBe('/cache/npm/data\nnpm\n');
  });

  describe('of which one task writes a bad package', () => {
    // A package that unpacks like any other, in place of each that the lockfile names by digest.
    const POISON = `set -e; mkdir -p /tmp/bad/package; cd /tmp/bad; echo poison > package/bad.js
echo '{"name":"bad","version":"1.0.0"}' > package/package.json; tar -czf bad.tgz package
for file in $(find $npm_config_cache/_cacache/content-v2 -type f); do chmod u+w $file; cat bad.tgz > $file; done`;
    const COUNT = `for file in $(find $npm_config_cache/_cacache/content-v2 -type f); do
tar -xzOf $file package/bad.js 2>/dev/null; done | grep -c poison`;

    it('are whole for every other task, at the same time and afterwards', async () => {
      const [bad, beside] = await Promise.all([with_(`${POISON}; sleep 2; ${COUNT}`), with_(`sleep 1; ${COUNT}`)]);
      // The control: the task itself sees what it did, so it could be seen.
      expect(bad.stdout).toBe(`${PACKAGES.length}\n`);
      expect(beside.stdout).toBe('0\n');
      expect((await with_(COUNT)).stdout).toBe('0\n');
      expect((await with_(NPM_CI, 'project')).exitCode).toBe(0);
    });

    it('show it where the bad package came by a run that was asked to fill: the lockfile’s integrity says no', async () => {
      expect((await fill(POISON)).exitCode).toBe(0);
      // The control of the test above: by this way it does reach the next task.
      expect((await with_(COUNT)).stdout).toBe(`${PACKAGES.length}\n`);
      const { exitCode, stdout, stderr } = await with_(`${NPM_CI} || { ls node_modules/*/bad.js; exit 7; }`, 'project');
      expect({ exitCode, stdout }).toEqual({ exitCode: 7, stdout: '' });
      expect(stderr).toMatch(/cached data for .* seems to be corrupted/);
      // Put right again.
      const again = await fill(`set -e; rm -rf $npm_config_cache/*; ${PACK_AND_ADD}`);
      expect(again.exitCode).toBe(0);
      expect((await with_(NPM_CI, 'project')).exitCode).toBe(0);
    });
  });

  it('are filled by one run at a time, and left out for the others meanwhile', async () => {
    let started = (): void => undefined;
    const begun = new Promise<void>(resolve => (started = resolve));
    const first = host.acode.run(['sh', '-c', 'echo begun; until [ -e seen ]; do sleep 0.1; done'], {
      policy: { image: images.debian, caches: { fill: ['npm'] } },
      onStdout: () => started(),
    });
    await begun;
    const [second, without, { notes }] = await Promise.all([
      fill('true').catch((error: unknown) => error),
      with_('echo "[$npm_config_cache]"'),
      host.acode.explain('true', { policy: { image: images.debian, caches: ['npm'] } }),
    ]);
    expect(second).toMatchObject({
      code: 'ACODE-SBX-001',
      message: expect.stringContaining('another run fills it') as string,
    });
    expect(without.stdout).toBe('[]\n');
    expect(notes.join(' ')).toContain('another run fills it now');
    writeFileSync(host.file('seen'), '');
    expect((await first).exitCode).toBe(0);
    // One after the other they may, without a pause of their own.
    for (let time = 0; time < 2; time += 1) expect((await fill('true')).exitCode).toBe(0);
  });

  it('are filled only when nobody reads: a fill waits for them', async () => {
    const reader = with_('until [ -e read ]; do sleep 0.1; done; echo read');
    await expect.poll(async () => (await layers()).length).toBe(3);
    let isFilled = false;
    const filling = fill('true').finally(() => (isFilled = true));
    // Long enough for a fill that does not wait.
    await new Promise(resolve => void setTimeout(resolve, 2000));
    expect(isFilled).toBe(false);
    writeFileSync(host.file('read'), '');
    expect((await reader).stdout).toBe('read\n');
    expect((await filling).exitCode).toBe(0);
  });

  it('leave nothing of a task behind, and are no orphans', async () => {
    await Promise.all([with_('true'), with_('exit 3'), run('sleep 9', { caches: ['npm'], timeoutMs: 500 })]);
    await expect.poll(layers).toEqual([]);
    await using other = await TestHost.open(engine);
    await other.acode.run(['true']);
    expect(namesOf((await other.acode.cleanup()).belongings.removed)).not.toContain(volume);
    expect(await volumes()).toEqual([volume]);
  });

  it('are refused where a volume only has the name of one', async () => {
    const strange = `acode-cache-strange-${randomUUID().slice(0, 8)}`;
    const Name = `${strange}-${UID}`;
    const Labels = { 'acode.managed': 'true', 'acode.cache': 'npm', 'acode.keep': 'true', 'acode.uid': String(UID) };
    const DriverOpts = { type: 'none', o: 'bind', device: '/etc' };
    await withEngine(engine, direct => direct.volumes.create({ Name, Labels, DriverOpts }, { signal: soon() }));
    await using other = await TestHost.open(engine, { config: { sandbox: { cache_volumes: { npm: strange } } } });
    try {
      const asked = { policy: { caches: { fill: ['npm'] } } } as const;
      await expect(other.acode.run(['ls', '/cache/npm'], asked)).rejects.toMatchObject({
        code: 'ACODE-SBX-010',
        message: expect.stringContaining('leads somewhere else'),
      });
      const { stdout } = await other.acode.run('ls -d /cache || echo none', { policy: { caches: ['npm'] } });
      expect(stdout).toBe('none\n');
    } finally {
      await withEngine(engine, direct => direct.volumes.remove(Name, { signal: soon() }));
    }
  });

  it('are removed when somebody says so, but not from under a sandbox', async () => {
    const reader = with_('until [ -e cleaned ]; do sleep 0.1; done; ls $npm_config_cache');
    await expect.poll(async () => (await layers()).length).toBe(3);
    expect(namesOf((await host.acode.cleanup({ volumes: true })).belongings.removed)).not.toContain(volume);
    writeFileSync(host.file('cleaned'), '');
    expect((await reader).stdout).toContain('_cacache');
    await expect.poll(layers).toEqual([]);
    const { belongings } = await host.acode.cleanup({ volumes: true });
    expect(namesOf(belongings.removed)).toContain(volume);
    expect(await volumes()).toEqual([]);
  });
});
