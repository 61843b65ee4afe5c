// A sandbox is what was planned and nothing else, as the engine has it, and is known by one id wherever it is named.

import { mkdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { AcodeEvent } from '@acode/sandbox';
import { TestHost, engines, images, withEngine, withoutEngines } from '../support/engines.ts';

const MIB = 1024 ** 2;
const soon = () => AbortSignal.timeout(60_000);

describe.skipIf(withoutEngines).each(engines)('a sandbox on $name', engine => {
  it('is made with the image, the mounts, the limits and the network that were planned', async () => {
    await using host = await TestHost.open(engine);
    const limits = { memoryBytes: 100 * MIB, cpus: 0.5, pids: 33 };
    await using _ = await host.acode.spawn(['cat'], {
      policy: { image: images.debian, workspace: 'readonly', limits },
    });
    const [mine] = await host.containers();
    const [made, image] = await withEngine(engine, direct =>
      Promise.all([
        direct.containers.inspect(mine?.id ?? '', { signal: soon() }),
        direct.images.inspect(images.debian, { signal: soon() }),
      ]),
    );
    expect(made.Image).toBe(image.id);
    expect(made.HostConfig).toMatchObject({
      Memory: 100 * MIB,
      MemorySwap: 100 * MIB,
      NanoCpus: 500_000_000,
      PidsLimit: 33,
      NetworkMode: 'none',
    });
    const mounts = [...made.Mounts].sort((one, other) => (one.Destination < other.Destination ? 1 : -1));
    expect(mounts).toMatchObject([
      { Source: host.workspace, Destination: '/workspace', RW: false },
      { Destination: '/etc/passwd', RW: false },
      { Destination: '/etc/group', RW: false },
    ]);
    expect(mounts).toHaveLength(3);
  });

  it('has one id, one name and one state in its events, in the list and in its result', async () => {
    await using host = await TestHost.open(engine);
    const created: AcodeEvent<'ContainerCreated'>[] = [];
    host.acode.events.on('ContainerCreated', event => created.push(event));
    await using command = await host.acode.spawn(['cat']);
    const [real] = await host.containers();
    const listed = (await host.acode.list()).find(({ sessionId }) => sessionId === host.session);
    expect(listed).toMatchObject({ containerId: real?.id, state: 'running' });
    expect(created).toMatchObject([
      { containerId: real?.id, sandboxId: listed?.sandboxId, name: listed?.name, durationMs: expect.any(Number) },
    ]);
    await command.closeStdin();
    expect(await command.result).toMatchObject({ containerId: real?.id, sandboxId: listed?.sandboxId });
  });

  it('shows everything that request and configuration say about it', async () => {
    const containers = { name_prefix: 'my-team', labels: { team: 'blue' } };
    await using host = await TestHost.open(engine, {
      config: { sandbox: { images: { default: images.busybox }, containers } },
    });
    mkdirSync(host.file('sub'));
    const [sessionId, taskId] = ['s'.repeat(128), 't'.repeat(128)];
    await using command = await host.acode.spawn(['sh', '-c', 'pwd; echo "$GREETING"; ulimit -n; read x'], {
      sessionId,
      taskId,
      cwd: 'sub',
      env: { GREETING: 'hello' },
      policy: { image: images.hostile, limits: { openFiles: 99 } },
    });
    const listed = (await host.acode.list()).find(sandbox => sandbox.taskId === taskId);
    expect(listed).toMatchObject({ sessionId });
    expect(listed?.labels).toMatchObject({ team: 'blue', 'acode.session': sessionId, 'acode.task': taskId });
    expect(listed?.name).toMatch(/^my-team-[a-z0-9]{8}-t{20,}/);
    expect(listed?.name.length).toBeLessThanOrEqual(63);
    await command.closeStdin();
    expect(await command.result).toMatchObject({
      stdout: '/workspace/sub\nhello\n99\n',
      image: { reference: images.hostile },
    });
  });

  it('is in the list beside no container of anybody else', async () => {
    await using host = await TestHost.open(engine);
    await using _ = await host.acode.spawn(['cat']);
    await withEngine(engine, async direct => {
      // Everything of ours but the one label that proves it.
      const labels = { 'acode.session': 'somebody', 'acode.uid': String(process.getuid?.()), 'acode.managed': 'no' };
      const body = { Image: images.busybox, Cmd: ['true'], Labels: labels, HostConfig: { NetworkMode: 'none' } };
      const { id } = await direct.containers.create(body, { name: 'acode-a1b2c3d4-run-001', signal: soon() });
      try {
        const listed = await host.acode.list();
        expect(listed.map(({ sessionId }) => sessionId)).toContain(host.session);
        expect(listed.map(({ containerId }) => containerId)).not.toContain(id);
      } finally {
        await direct.containers.remove(id, { force: true, signal: soon() });
      }
    });
  });
});
