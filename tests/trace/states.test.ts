// The state of a sandbox is what the engine says now, and in every state it can be removed.

import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { LogFields } from '@acode/sandbox';
import { path } from '../../packages/sandbox/src/isolation/docker/engine/connection.ts';
import { TestHost, engines, images, withEngine, withoutEngines } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

const soon = () => AbortSignal.timeout(60_000);

describe.skipIf(withoutEngines).each(engines)('a sandbox on $name', engine => {
  // A runtime directory of its own is a host of its own: a forced cleanup here touches nobody else’s sandboxes.
  let runtime: string;
  let before: string | undefined;
  beforeEach(() => {
    before = process.env['XDG_RUNTIME_DIR'];
    runtime = mkdtempSync('/var/tmp/acode-runtime-');
    process.env['XDG_RUNTIME_DIR'] = runtime;
  });
  afterEach(() => {
    if (before === undefined) delete process.env['XDG_RUNTIME_DIR'];
    else process.env['XDG_RUNTIME_DIR'] = before;
    rmSync(runtime, { recursive: true, force: true });
  });

  it('is reported in the state it has at the moment of asking', async () => {
    await using host = await TestHost.open(engine);
    const id = await leftBehind(host, ['sleep', '60']);
    const states: (string | undefined)[] = [];
    const ask = async (): Promise<void> => {
      const listed = (await host.acode.list()).find(({ containerId }) => containerId === id);
      const { state } = await host.acode.inspect(id);
      expect(listed?.state).toBe(state);
      states.push(state);
    };
    await ask();
    await withEngine(engine, async direct => {
      const signal = soon();
      await direct.containers.start(id, { signal });
      await ask();
      await pause(engine, id);
      await ask();
      await direct.containers.kill(id, 'SIGKILL', { signal }).catch(() => undefined);
      await unpause(engine, id).catch(() => undefined);
      await direct.containers.wait(id, 'not-running', { signal, deadlineMs: 60_000 });
      await ask();
      await direct.containers.remove(id, { force: true, signal });
    });
    expect(states).toEqual(['created', 'running', 'paused', 'exited']);
    await expect(host.acode.inspect(id)).rejects.toMatchObject({ code: 'ACODE-CTN-012' });
  });

  it('is removed by force in every state, and reported by name', async () => {
    await using host = await TestHost.open(engine);
    const created = await leftBehind(host, ['true']);
    const running = await leftBehind(host, ['sleep', '60']);
    const paused = await leftBehind(host, ['sleep', '60']);
    const exited = await leftBehind(host, ['true']);
    const restarting = await leftBehind(host, ['false'], { RestartPolicy: { Name: 'always' } });
    await withEngine(engine, async ({ containers }) => {
      const signal = soon();
      for (const id of [running, paused, exited, restarting]) await containers.start(id, { signal });
      await containers.wait(exited, 'not-running', { signal, deadlineMs: 60_000 });
      await pause(engine, paused);
    });
    // The engine’s pauses between two starts grow, so that it is hardly ever in another state after a while.
    const state = async (id: string) => (await host.acode.inspect(id)).state;
    await expect.poll(() => state(restarting), { interval: 20 }).toBe('restarting');
    const report = await host.acode.cleanup({ force: true });
    const states = Object.fromEntries(report.removed.map(one => [one.containerId, one.state]));
    expect(states).toEqual({
      [created]: 'created',
      [running]: 'running',
      [paused]: 'paused',
      [exited]: 'exited',
      [restarting]: expect.stringMatching(/^(?:restarting|running)$/),
    });
    expect(report.failed).toEqual([]);
    expect(await host.containers()).toEqual([]);
  });

  it('that a cleanup removes is logged and measured under the cleanup’s own id', async () => {
    const lines: { level: string; message: string; fields: LogFields }[] = [];
    const write = (level: string) => (fields: LogFields, message: string) =>
      void lines.push({ level, message, fields });
    const measured: string[] = [];
    await using host = await TestHost.open(engine, {
      logger: { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') },
      metrics: { increment: () => undefined, observe: name => void measured.push(name), gauge: () => undefined },
    });
    const id = await leftBehind(host, ['true']);
    await host.acode.cleanup({ force: true });
    const end = lines.find(({ message }) => message === 'cleanup ok');
    expect(lines.filter(({ message }) => message === 'container removed')).toMatchObject([
      { level: 'info', fields: { containerId: id, reason: 'asked', correlationId: end?.fields['correlationId'] } },
    ]);
    expect(measured).toEqual(['acode_container_cleanup_ms']);
  });
});

/** A container with the labels of this host’s sandboxes that nobody has an eye on any more. */
async function leftBehind(host: TestHost, command: string[], more: object = {}): Promise<string> {
  const { spec } = await host.acode.explain(['true']);
  const name = `${spec.identity.name}-${randomBytes(4).toString('hex')}`;
  const body = {
    Image: images.busybox,
    Cmd: command,
    Labels: { ...spec.identity.labels, 'acode.name': name },
    HostConfig: { NetworkMode: 'none', LogConfig: { Type: 'none' }, ...more },
  };
  return withEngine(
    host.engine,
    async ({ containers }) => (await containers.create(body, { name, signal: soon() })).id,
  );
}

async function pause(engine: TestEngine, id: string): Promise<void> {
  await post(engine, path`/containers/${id}/pause`);
}

async function unpause(engine: TestEngine, id: string): Promise<void> {
  await post(engine, path`/containers/${id}/unpause`);
}

async function post(engine: TestEngine, to: ReturnType<typeof path>): Promise<void> {
  await withEngine(engine, ({ connection }) =>
    connection.empty({ method: 'POST', path: to, deadlineMs: 60_000, signal: soon() }),
  );
}
