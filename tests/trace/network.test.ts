// What of the network reaches the engine: nothing in air-gapped mode, whoever asks, and the name servers that were named.

import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import type { ConfigInput, PolicyInput } from '@acode/sandbox';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';

const created = z.looseObject({
  HostConfig: z.looseObject({ NetworkMode: z.string(), Dns: z.array(z.string()), PortBindings: z.looseObject({}) }),
});
const SERVERS = ['192.0.2.53', '192.0.2.54'];

describe.skipIf(withoutEngines)('the request to the engine', () => {
  let proxy: EngineProxy;
  const before = process.env['ACODE_MODE'];
  beforeAll(async () => {
    proxy = await EngineProxy.start(mainEngine.socket);
  });
  afterEach(() => {
    proxy.requests.length = 0;
    if (before === undefined) delete process.env['ACODE_MODE'];
    else process.env['ACODE_MODE'] = before;
  });
  afterAll(() => proxy.close());

  const open = (network: object, config: ConfigInput = {}) =>
    TestHost.open(mainEngine, {
      engine: { socket: proxy.socket },
      config: { ...config, sandbox: { images: { default: images.busybox }, network } },
    });
  const requested = () =>
    proxy.requests
      .filter(({ path }) => path.includes('/containers/create'))
      // Not the container that the image’s lists of users are read from, which is never started.
      .filter(({ body }) => !body.includes('/.acode-probe'))
      .map(({ body }) => created.parse(JSON.parse(body.toString())).HostConfig);
  const networksMade = () => proxy.requests.filter(({ path }) => path.includes('/networks/create')).length;

  const ASKED: readonly [string, object, PolicyInput][] = [
    ['a request', { allow_bridge: true }, { network: 'bridge', ports: [{ container: 80 }], dns: SERVERS }],
    ['the configuration', { allow_bridge: true, mode: 'bridge', dns_servers: SERVERS, ports: [{ container: 80 }] }, {}],
    ['a request for a named network', { allowed_networks: ['mine'] }, { network: { name: 'mine' } }],
  ];

  it.each(ASKED)('says “none” in air-gapped mode although %s asks for a network', async (_, network, policy) => {
    {
      await using host = await open(network, { mode: 'airgapped' });
      expect((await host.acode.run(['true'], { policy })).denials).toHaveLength(1);
    }
    process.env['ACODE_MODE'] = 'airgapped';
    {
      await using host = await open(network);
      expect((await host.acode.run(['true'], { policy })).denials).toHaveLength(1);
    }
    expect(requested()).toHaveLength(2);
    for (const one of requested()) expect([one.NetworkMode, one.Dns, one.PortBindings]).toEqual(['none', [], {}]);
    expect(networksMade()).toBe(0);
  });

  it('has the network, the name servers and the ports that were asked for, where they may be had', async () => {
    for (const [, network, policy] of ASKED.slice(0, 2)) {
      await using host = await open(network);
      expect((await host.acode.run(['cat', '/etc/resolv.conf'], { policy })).exitCode).toBe(0);
    }
    for (const { NetworkMode, Dns, PortBindings } of requested()) {
      expect(NetworkMode).toMatch(/^[0-9a-f]{64}$/);
      expect(Dns).toEqual(SERVERS);
      expect(PortBindings).toEqual({ '80/tcp': [{ HostIp: '127.0.0.1', HostPort: '' }] });
    }
    expect(networksMade()).toBe(2);
  });
});
