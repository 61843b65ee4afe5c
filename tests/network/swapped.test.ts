// A sandbox that was planned for one network and connected to another, or to one more, is removed before anything runs.

import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { TestHost, engines, images, withEngine, withoutEngines } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { path as enginePath } from '../../packages/sandbox/src/isolation/docker/engine/connection.ts';
import { EngineProxy } from '../support/proxy.ts';
import { Canary, SONG, UserNetwork } from './canaries.ts';

interface CreateBody {
  HostConfig: Record<string, unknown>;
  NetworkingConfig?: unknown;
}

const BREAKS: readonly (readonly [what: string, change: (body: CreateBody, other: UserNetwork) => void])[] = [
  ['another network', (body, other) => (body.HostConfig['NetworkMode'] = other.id)],
  [
    'another network, which the mode does not show',
    (body, other) => (body.NetworkingConfig = { EndpointsConfig: { [other.name]: {} } }),
  ],
];

async function opened(engine: TestEngine, planned: UserNetwork, proxy: EngineProxy): Promise<TestHost> {
  const sandbox = { images: { default: images.busybox }, network: { allowed_networks: [planned.name] } };
  return TestHost.open(engine, { engine: { socket: proxy.socket }, config: { sandbox } });
}

function changeCreate(proxy: EngineProxy, change: (body: CreateBody) => void): void {
  proxy.onRequest((method, path, body) => {
    if (method !== 'POST' || !path.includes('/containers/create')) return undefined;
    const parsed = JSON.parse(body.toString()) as CreateBody;
    change(parsed);
    return Buffer.from(JSON.stringify(parsed));
  });
}

describe.skipIf(withoutEngines).each(engines)('on $name, a sandbox is removed before it runs if it got', engine => {
  it.each(BREAKS)('%s', async (_, change) => {
    await using planned = await UserNetwork.create(engine);
    await using other = await UserNetwork.create(engine);
    await using canary = await Canary.sing(engine, other.id, 7400);
    await using proxy = await EngineProxy.start(engine.socket);
    await using host = await opened(engine, planned, proxy);
    const policy = { network: { name: planned.name } };
    // The control: the same request, without anybody who verifies, reaches what is on the other network.
    const { engineRequest } = await host.acode.explain('true', { policy });
    const body = JSON.parse(JSON.stringify(engineRequest)) as CreateBody & Record<string, unknown>;
    body.HostConfig['NetworkMode'] = planned.id;
    body['Entrypoint'] = ['/bin/sh', '-c', `nc -w 2 ${canary.address} 7400 </dev/null`];
    change(body, other);
    expect(await printed(engine, body)).toContain(SONG);

    changeCreate(proxy, parsed => change(parsed, other));
    for (const [image, command] of [
      [images.busybox, ['touch', '/workspace/ran']],
      [images.noshell, ['/true']],
    ] as const)
      await expect(host.acode.run(command, { policy: { ...policy, image } })).rejects.toMatchObject({
        code: 'ACODE-SBX-010',
        context: { violation: 'SpecMismatch' },
      });
    expect(existsSync(host.file('ran'))).toBe(false);
    expect(await host.containers()).toEqual([]);
    proxy.onRequest(() => undefined);
    expect(await host.acode.run('ls /sys/class/net', { policy })).toMatchObject({ exitCode: 0 });
  });

  it('one network more, connected after it was made', async () => {
    await using planned = await UserNetwork.create(engine);
    await using other = await UserNetwork.create(engine);
    await using proxy = await EngineProxy.start(engine.socket);
    await using host = await opened(engine, planned, proxy);
    let connected = false;
    proxy.onRequest(async (method, path) => {
      const id = /\/containers\/([0-9a-f]{64})\/start/.exec(path)?.[1];
      if (method !== 'POST' || id === undefined) return undefined;
      await connect(engine, other.id, id);
      connected = true;
      return undefined;
    });
    await expect(host.acode.run('touch ran', { policy: { network: { name: planned.name } } })).rejects.toMatchObject({
      code: 'ACODE-SBX-010',
    });
    expect(connected).toBe(true);
    expect(existsSync(host.file('ran'))).toBe(false);
    expect(await host.containers()).toEqual([]);
  });
});

async function printed(engine: TestEngine, body: object): Promise<string> {
  return withEngine(engine, async direct => {
    const signal = AbortSignal.timeout(60_000);
    const { id } = await direct.containers.create(body, { signal });
    try {
      const stream = await direct.containers.attach(id, { stdout: true, stderr: true, signal });
      await direct.containers.start(id, { signal });
      const chunks: Buffer[] = [];
      for await (const chunk of stream) chunks.push(chunk);
      return Buffer.concat(chunks).toString();
    } finally {
      await direct.containers.remove(id, { force: true, volumes: true, signal });
    }
  });
}

// The client has no such call, since acode never makes it.
async function connect(engine: TestEngine, network: string, container: string): Promise<void> {
  await withEngine(engine, async ({ connection }) =>
    connection.empty({
      method: 'POST',
      path: enginePath`/networks/${network}/connect`,
      body: { Container: container },
      signal: AbortSignal.timeout(60_000),
      deadlineMs: 10_000,
    }),
  );
}
