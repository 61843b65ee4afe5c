// Runtimes by name: one the engine does not list is refused, and so is one that is listed and is not what it is called.

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Engine } from '../../packages/sandbox/src/isolation/docker/engine/index.ts';
import { Runtimes } from '../../packages/sandbox/src/isolation/docker/runtime.ts';
import { Bench } from '../engine-client/engines.ts';
import { TestHost, everyEngine, withoutEngines } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

const signal = () => AbortSignal.timeout(60_000);

describe.skipIf(withoutEngines).each(everyEngine)('a runtime on $name $version', engine => {
  it('that the engine does not list is refused with those it has, and nothing is made', async () => {
    await using host = await TestHost.open(engine);
    await expect(host.acode.run(['true'], { policy: { runtime: 'kata' } })).rejects.toMatchObject({
      code: 'ACODE-SBX-010',
      context: { violation: 'UnknownRuntime', detail: /no runtime kata.*runc/ },
    });
    expect(await host.containers()).toEqual([]);
  });

  it('that the engine lists works by its name', async () => {
    await using host = await TestHost.open(engine);
    expect(await host.acode.run(['echo', 'hi'], { policy: { runtime: 'runc' } })).toMatchObject({
      stdout: 'hi\n',
      runtime: 'runc',
      level: 'docker',
    });
  });

  it.each(['runsc', 'kata', 'sysbox-runc'])('called %s that is an ordinary one is found out', async name => {
    // An engine cannot be made to lie about its runtimes without starting it anew, so an ordinary container is shown as one of it.
    await using bench = await Bench.at(engine);
    using client = await Engine.open({ socketPath: engine.socket, signal: signal() });
    const runtimes = new Runtimes(client);
    runtimes.learn(await client.system.info({ signal: signal() }));
    const id = await bench.container('sleep 30');
    await bench.engine.containers.start(id, { signal: signal() });
    await expect(runtimes.prove(name, id, signal())).rejects.toMatchObject({
      code: 'ACODE-SBX-010',
      context: { violation: 'UnknownRuntime', detail: /does not behave like it.*seen inside: Linux version/ },
    });
    await expect(runtimes.prove('runc', id, signal())).resolves.toBeUndefined();
  });
});

const gvisor = everyEngine.filter(({ runtimes }) => runtimes?.includes('runsc'));

describe.skipIf(withoutEngines).each(gvisor)('gVisor on $name $version', engine => {
  it('is proven by what its kernel shows', async () => {
    await using bench = await Bench.at(engine);
    using client = await Engine.open({ socketPath: engine.socket, signal: signal() });
    const runtimes = new Runtimes(client);
    runtimes.learn(await client.system.info({ signal: signal() }));
    const id = await bench.container('sleep 30', { HostConfig: { Runtime: 'runsc' } });
    await bench.engine.containers.start(id, { signal: signal() });
    await expect(runtimes.prove('runsc', id, signal())).resolves.toBeUndefined();
    expect(() => runtimes.requireProven('runsc', 'an image')).not.toThrow();
    expect(() => runtimes.requireProven('kata', 'an image')).toThrow(/no shell/);
  });

  // With its direct access to the host’s files, gVisor refuses to open one on a read-only mount, and empties it all the same.
  it('is refused where the engine starts it so that read-only mounts do not hold', async () => {
    await using host = await TestHost.open(engine);
    mkdirSync(host.file('.git'));
    writeFileSync(host.file('.git/config'), 'precious');
    const emptied = 'sh -c ": > /workspace/.git/config"; true';
    await expect(host.acode.run(emptied, { policy: { runtime: 'runsc-directfs' } })).rejects.toMatchObject({
      code: 'ACODE-SBX-010',
      context: { violation: 'ReadOnlyNotHeld' },
      hint: expect.stringContaining('--directfs=false'),
    });
    // Said before anybody tries, of that runtime and not of the other.
    const status = (await host.acode.status()).levels.find(({ level }) => level === 'gvisor');
    expect(status).toMatchObject({
      state: 'available',
      reason: expect.stringContaining('runtimeArgs of runsc-directfs '),
    });
    expect(status?.reason).not.toContain('runtimeArgs of runsc ');
    expect(await host.acode.run(emptied, { policy: { runtime: 'runsc' } })).toMatchObject({ level: 'gvisor' });
    expect(readFileSync(host.file('.git/config'), 'utf8')).toBe('precious');
    await emptyWithout(engine, host.workspace);
    // The control: the same mount with the other runtime, asked for past the product.
    expect(readFileSync(host.file('.git/config'), 'utf8')).toBe('');
  });
});

async function emptyWithout(engine: TestEngine, workspace: string): Promise<void> {
  await using bench = await Bench.at(engine);
  const mount = { Type: 'bind', Source: `${workspace}/.git`, Target: '/m', ReadOnly: true };
  const user = `${process.getuid?.()}:${process.getgid?.()}`;
  const id = await bench.container(': > /m/config; true', {
    User: user,
    HostConfig: { Runtime: 'runsc-directfs', NetworkMode: 'none', Mounts: [mount] },
  });
  const { exit } = await bench.engine.containers.expectExit(id, 'next-exit', { signal: signal(), deadlineMs: 20_000 });
  await bench.engine.containers.start(id, { signal: signal() });
  await exit;
}
