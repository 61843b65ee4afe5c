// Masks around a command: further mounts, the warm pool, persistent sandboxes, many files, and a file that is replaced on the host.

import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { policyFrom } from '@acode/sandbox';
import type { PolicyInput, RunResult } from '@acode/sandbox';
import { TestHost, engines, images, mainEngine, withoutEngines } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { everything } from '../support/targets.ts';

const SECRET = 'TOKEN=of-this-machine\n';
const KEY = '-----BEGIN PRIVATE KEY-----\nof this machine\n';

function runIn(host: TestHost, script: string, policy: PolicyInput = {}): Promise<RunResult> {
  return host.acode.run(['sh', '-c', script], { policy: policyFrom(policy) });
}

/** What editors do: a new file under another name takes the place of the old one. */
function replace(path: string, content: string): void {
  writeFileSync(`${path}.new`, content);
  renameSync(`${path}.new`, path);
}

function secrets(host: TestHost): void {
  writeFileSync(host.file('.env'), SECRET);
  mkdirSync(host.file('conf/keys'), { recursive: true });
  writeFileSync(host.file('conf/keys/server.key'), KEY);
  writeFileSync(host.file('conf/plain.txt'), 'plain\n');
}

describe.skipIf(withoutEngines).each(engines)('masks on $name $version', engine => {
  let host: TestHost;
  beforeAll(async () => {
    host = await TestHost.open(engine);
    secrets(host);
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it('are also over a directory of the workspace that is mounted elsewhere, and a masked file cannot be mounted', async () => {
    const mounts = (source: string): PolicyInput => ({ mounts: [{ source: host.file(source), target: '/mnt/more' }] });
    const { stdout } = await runIn(host, 'cat /mnt/more/plain.txt /mnt/more/keys/server.key', mounts('conf'));
    expect(stdout).toBe('plain\n');
    for (const source of ['.env', 'conf/keys/server.key'])
      await expect(runIn(host, 'cat /mnt/more', mounts(source))).rejects.toMatchObject({ code: 'ACODE-SBX-003' });
  });

  it('are listed with their rules, say what was denied, and can be of a directory that the user names', async () => {
    const { masked } = await host.acode.explain(['true']);
    expect(masked.map(({ path, rule }) => `${path} ${rule}`)).toEqual(['.env env', 'conf/keys/server.key private-key']);
    expect(await host.acode.masks.list()).toMatchObject({ masked, warnings: [], forgotten: [] });
    const { denials } = await runIn(host, 'echo x >.env');
    expect(denials).toMatchObject([{ rule: 'read-only.masked', value: '/workspace/.env' }]);
    await using other = await TestHost.open(engine, { config: { sandbox: { mask: ['conf/'], unmask: ['.env'] } } });
    secrets(other);
    expect(await runIn(other, 'cat .env; ls -A conf; touch conf/x 2>&1')).toMatchObject({
      stdout: expect.stringMatching(/^TOKEN=of-this-machine\n.*Read-only file system\n$/),
      masked: ['conf'],
    });
  });

  it('are as many as the limit allows', async () => {
    await using many = await TestHost.open(engine);
    mkdirSync(many.file('all'));
    for (let count = 0; count < 512; count += 1) writeFileSync(many.file(`all/${count}.env`), SECRET);
    const { stdout, masked } = await runIn(many, 'cat all/*.env; ls all | wc -l');
    expect([stdout.trim(), masked?.length]).toEqual(['512', 512]);
    writeFileSync(many.file('all/more.env'), SECRET);
    await expect(runIn(many, 'true')).rejects.toMatchObject({ code: 'ACODE-MSK-002', context: { count: 513 } });
  });

  it('hold in a sandbox that waited while the file was replaced on the host', async () => {
    await using warm = await TestHost.open(engine, { pool: { min: 1, max: 1 } });
    secrets(warm);
    const ready = async (): Promise<void> => {
      while (!(await warm.acode.explain(['true'])).warm) await new Promise(resolve => void setTimeout(resolve, 20));
    };
    await runIn(warm, 'true');
    await ready();
    replace(warm.file('.env'), SECRET);
    expect((await runIn(warm, 'cat .env')).stdout).toBe('');
    // Twice: the second new file may have the inode of the first old one.
    await ready();
    replace(warm.file('.env'), 'other\n');
    replace(warm.file('.env'), SECRET);
    expect((await runIn(warm, 'cat .env')).stdout).toBe('');
    await ready();
    expect(await runIn(warm, 'cat .env')).toMatchObject({ stdout: '', warm: true });
  });

  it('of a persistent sandbox are those of its creation', async () => {
    const created = await host.acode.create({ keep: true });
    try {
      writeFileSync(host.file('.env.later'), SECRET);
      await host.acode.close();
      const next = await TestHost.open(engine, { workspace: host.workspace, sessionId: host.session });
      host = next;
      const again = await next.acode.connect(created.id);
      expect((await again.commands.run('cat .env conf/keys/server.key; cat .env.later')).stdout).toBe(SECRET);
      // A directory above a mask may be renamed from inside.
      expect((await again.commands.run('mv conf conf2; sleep 1.5; cat conf2/keys/server.key; echo on')).stdout).toBe(
        'on\n',
      );
      await again.commands.run('mv conf2 conf');
    } finally {
      await host.acode.kill(created.id);
    }
  });
});

const runtimes: readonly [runtime: string, engine: TestEngine][] = [
  ['runc', mainEngine],
  ...(everything ? engines : [])
    .filter(one => one.runtimes?.includes('runsc'))
    .map((one): [string, TestEngine] => ['runsc', one]),
];

describe.skipIf(withoutEngines).each(runtimes)('a masked file on %s', (runtime, engine) => {
  it('that is replaced on the host while a command runs ends the command', async () => {
    const config = runtime === 'runc' ? {} : { config: { sandbox: { runtime } } };
    await using host = await TestHost.open(engine, config);
    secrets(host);
    const script = 'echo on; while :; do cat .env; sleep 0.05; done';
    const running = await host.acode.spawn(['sh', '-c', script], { policy: policyFrom({ image: images.busybox }) });
    let printed = '';
    for await (const chunk of running.stdout) {
      if (printed === '') replace(host.file('.env'), SECRET);
      printed += Buffer.from(chunk).toString();
    }
    await expect(running.result).rejects.toMatchObject({ message: expect.stringContaining('.env, which is masked') });
    expect(readFileSync(host.file('.env'), 'utf8')).toBe(SECRET);
  });
});
