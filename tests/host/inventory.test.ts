// What exists is asked of the engine, and cleaning up touches only what is one’s own and has ended.

import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { TestHost, engines, images, withEngine, withoutEngines } from '../support/engines.ts';

describe.skipIf(withoutEngines).each(engines)('the inventory of $name', engine => {
  const mark = randomUUID();
  afterEach(() =>
    withEngine(engine, async direct => {
      const signal = AbortSignal.timeout(60_000);
      const left = await direct.containers.list({ labels: [`acode.test.mark=${mark}`], all: true, signal });
      await Promise.all(left.map(({ id }) => direct.containers.remove(id, { force: true, signal })));
    }),
  );

  // A container such as a killed session leaves behind, of any owner.
  const leftover = (labels: Record<string, string>, command: string[], started: boolean) =>
    withEngine(engine, async direct => {
      const signal = AbortSignal.timeout(60_000);
      const name = `acode-left-${randomUUID()}`;
      const body = {
        Image: images.busybox,
        Cmd: command,
        Labels: { ...labels, ...(labels['acode.name'] ? { 'acode.name': name } : {}), 'acode.test.mark': mark },
        HostConfig: { NetworkMode: 'none' },
      };
      const { id } = await direct.containers.create(body, { name, signal });
      if (started) {
        const { exit } = await direct.containers.expectExit(id, 'next-exit', { signal, deadlineMs: 20_000 });
        await direct.containers.start(id, { signal });
        if (command[0] === 'true') await exit;
      }
      return id;
    });

  it('reports the engine, the level and the sandboxes there are', async () => {
    await using host = await TestHost.open(engine);
    await using command = await host.acode.spawn(['cat']);
    const status = await host.acode.status();
    expect(status).toMatchObject({
      available: true,
      level: 'docker',
      engine: { version: expect.stringContaining(engine.version), apiVersion: engine.api, socket: engine.socket },
      workspace: host.workspace,
    });
    expect(status.sandboxes.running).toBeGreaterThanOrEqual(1);
    const mine = (await host.acode.list()).find(({ sessionId }) => sessionId === host.session);
    expect(mine?.image).toMatch(/^acode-test\//);
    await command.closeStdin();
  });

  it('removes ended sandboxes of this user on this host, spares running, foreign and unlabelled ones', async () => {
    await using host = await TestHost.open(engine);
    const command = await host.acode.spawn(['cat']);
    const mine = (await host.acode.list()).find(({ sessionId }) => sessionId === host.session)?.labels ?? {};
    const ended = await leftover(mine, ['true'], true);
    const running = await leftover(mine, ['sleep', '60'], true);
    const others = await leftover({ ...mine, 'acode.session': 'another', 'acode.uid': '4242' }, ['true'], true);
    const elsewhere = await leftover({ ...mine, 'acode.session': 'another', 'acode.host': 'another' }, ['true'], true);
    const foreign = await leftover({}, ['true'], true);
    const ids = async () =>
      withEngine(engine, async direct =>
        (
          await direct.containers.list({
            labels: [`acode.test.mark=${mark}`],
            all: true,
            signal: AbortSignal.timeout(60_000),
          })
        ).map(({ id }) => id),
      );

    const dry = await host.acode.cleanup({ dryRun: true });
    expect(dry.removed.map(({ containerId }) => containerId)).toContain(ended);
    expect(await ids()).toContain(ended);

    const report = await host.acode.cleanup();
    expect(report.removed.map(({ containerId }) => containerId)).toContain(ended);
    expect(new Set(await ids())).toEqual(new Set([running, others, elsewhere, foreign]));

    await host.acode.cleanup({ force: true });
    expect(new Set(await ids())).toEqual(new Set([others, elsewhere, foreign]));
    await Promise.allSettled([command.result]);
  });

  it('inspects one sandbox by name and knows none that is not ours', async () => {
    await using host = await TestHost.open(engine);
    await using command = await host.acode.spawn(['cat']);
    const { name } = (await host.acode.list()).find(({ sessionId }) => sessionId === host.session) ?? { name: '' };
    expect(await host.acode.inspect(name)).toMatchObject({
      name,
      state: 'running',
      network: 'none',
      limits: { pids: 256 },
      mounts: expect.arrayContaining([
        { source: host.workspace, target: '/workspace', readOnly: false },
        { source: expect.stringMatching(/\/passwd$/), target: '/etc/passwd', readOnly: true },
      ]),
    });
    const foreign = await leftover({}, ['sleep', '60'], true);
    await expect(host.acode.inspect(foreign)).rejects.toMatchObject({ code: 'ACODE-CTN-012' });
    await expect(host.acode.inspect('acode-none-none-001')).rejects.toMatchObject({ code: 'ACODE-CTN-012' });
    await command.closeStdin();
  });
});
