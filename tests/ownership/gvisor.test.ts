// A start that gVisor fails leaves its sandbox process on the host unless the container is removed: ours is.

import { readFileSync, readdirSync } from 'node:fs';
import { expect, it } from 'vitest';
import { TestHost, everyEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { until } from '../support/waiting.ts';

const engine = everyEngine.find(({ runtimes }) => runtimes?.includes('runsc'));

it.skipIf(withoutEngines || !engine)('a failed start under gVisor leaves no process behind', async () => {
  if (!engine) return;
  await using proxy = await EngineProxy.start(engine.socket);
  await using host = await TestHost.open(engine, { engine: { socket: proxy.socket } });
  const policy = { runtime: 'runsc', workspace: 'readonly' } as const;

  // The control: while a command runs, its processes are found.
  await using running = await host.acode.spawn(['sleep', '600'], { policy });
  const [{ id: living } = { id: '' }] = await host.containers();
  expect(processesOf(living).length).toBeGreaterThan(0);
  await running.kill();
  await running.result;
  await until(() => processesOf(living).length === 0);

  const ids: string[] = [];
  proxy.onRequest((method, path, body) => {
    const started = /\/containers\/([0-9a-f]{64})\/start/.exec(path);
    if (started?.[1]) ids.push(started[1]);
    if (method !== 'POST' || !path.includes('/containers/create')) return undefined;
    return Buffer.from(JSON.stringify({ ...JSON.parse(body.toString()), Cmd: ['/nonexistent'], Entrypoint: [] }));
  });
  await expect(host.acode.run(['true'], { policy })).rejects.toMatchObject({ code: expect.stringMatching(/^ACODE-/) });
  expect(ids).toHaveLength(1);
  await until(() => ids.flatMap(processesOf).length === 0);
});

function processesOf(containerId: string): string[] {
  return readdirSync('/proc').filter(name => {
    try {
      return /^\d+$/.test(name) && readFileSync(`/proc/${name}/cmdline`, 'utf8').includes(containerId);
    } catch {
      return false;
    }
  });
}
