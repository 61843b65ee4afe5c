// The managed bridge: one per session, no way from one sandbox to another, gone with the session.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines, withEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { until } from '../support/waiting.ts';
import { BackendHost } from './backend.ts';
import type { SandboxSpec } from '@acode/sandbox';
import { SONG, UserNetwork, networksOf } from './canaries.ts';

const LISTEN = `nc -ll -p 7000 -e echo ${SONG} & ip -4 -o addr show eth0 | tr -s " " | cut -d" " -f4 | cut -d/ -f1; wait`;
const inspect = (engine: (typeof engines)[number], id: string) =>
  withEngine(engine, direct => direct.networks.inspect(id, { signal: AbortSignal.timeout(60_000) }));

// A sandbox that listens, and its address.
async function listener(host: BackendHost, network: SandboxSpec['network']): Promise<string> {
  const { output } = await host.hand(LISTEN, { network });
  const address = (): string => /^\d+\.\d+\.\d+\.\d+$/m.exec(output.text)?.[0] ?? '';
  await until(() => address() !== '');
  return address();
}

describe.skipIf(withoutEngines).each(engines)('on $name, the bridge', engine => {
  let host: BackendHost;
  beforeAll(async () => {
    host = await BackendHost.open(engine);
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it('is made once for a session, also when two begin at the same moment, and carries its owner', async () => {
    const runs = await Promise.all([1, 2, 3].map(() => host.run('ls /sys/class/net', { network: { kind: 'bridge' } })));
    for (const { output } of runs) expect(output.split('\n')).toContain('eth0');
    const made = await networksOf(engine, host.session);
    expect(made).toHaveLength(1);
    const details = await inspect(engine, made[0]!.Id);
    expect(details).toMatchObject({
      Name: expect.stringMatching(/^acode-[0-9a-f]{8}-bridge-[0-9a-f]{8}$/),
      Driver: 'bridge',
      Internal: false,
      Attachable: false,
      EnableIPv6: false,
      Options: { 'com.docker.network.bridge.enable_icc': 'false' },
      Labels: { 'acode.managed': 'true', 'acode.session': host.session, 'acode.uid': String(process.getuid?.()) },
    });
    for (const label of ['acode.owner', 'acode.host', 'acode.created', 'acode.expires'])
      expect(details.Labels).toHaveProperty([label]);
  });

  it('keeps two sandboxes of one session apart, and of two sessions; a shared network would not', async () => {
    await using other = await BackendHost.open(engine);
    await using shared = await UserNetwork.create(engine);
    const ask = (address: string) => `nc -w 2 ${address} 7000 </dev/null`;
    const [own, foreign, control] = await Promise.all([
      listener(host, { kind: 'bridge' }),
      listener(other, { kind: 'bridge' }),
      listener(host, { kind: 'named', name: shared.name }),
    ]);
    const [fromSame, fromOther, fromControl] = await Promise.all([
      host.run(ask(own), { network: { kind: 'bridge' } }),
      host.run(ask(foreign), { network: { kind: 'bridge' } }),
      host.run(ask(control), { network: { kind: 'named' as const, name: shared.name } }),
    ]);
    expect(fromControl).toMatchObject({ exitCode: 0, output: `${SONG}\n` });
    expect(fromSame.output).not.toContain(SONG);
    expect(fromSame.exitCode).not.toBe(0);
    expect(fromOther.output).not.toContain(SONG);
    expect(fromOther.exitCode).not.toBe(0);
    await host[Symbol.asyncDispose]();
    host = await BackendHost.open(engine);
  });

  it('is made anew when somebody removed it', async () => {
    await host.run('true', { network: { kind: 'bridge' } });
    const [first] = await networksOf(engine, host.session);
    await withEngine(engine, direct => direct.networks.remove(first!.Id, { signal: AbortSignal.timeout(60_000) }));
    expect((await host.run('ls /sys/class/net', { network: { kind: 'bridge' } })).output).toContain('eth0');
    const [second] = await networksOf(engine, host.session);
    expect(second!.Id).not.toBe(first!.Id);
  });

  it('is gone when the session closes, also when the reply to its creation was lost', async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    proxy.onRequest((method, path) =>
      method === 'POST' && path.includes('/networks/create') ? 'drop-reply' : undefined,
    );
    const own = await BackendHost.open(proxy);
    expect((await own.run('ls /sys/class/net', { network: { kind: 'bridge' } })).output).toContain('eth0');
    expect(await networksOf(engine, own.session)).toHaveLength(1);
    await own[Symbol.asyncDispose]();
    expect(await networksOf(engine, own.session)).toEqual([]);
  });

  it('that lets containers reach each other is refused before anything is connected to it', async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    proxy.onRequest((method, path, body) => {
      if (method !== 'POST' || !path.includes('/networks/create')) return undefined;
      const parsed = JSON.parse(body.toString()) as { Options: Record<string, string> };
      parsed.Options = {};
      return Buffer.from(JSON.stringify(parsed));
    });
    const own = await BackendHost.open(proxy);
    await expect(own.run('true', { network: { kind: 'bridge' } })).rejects.toMatchObject({
      code: 'ACODE-SBX-010',
      message: expect.stringContaining('reach each other'),
    });
    await own[Symbol.asyncDispose]();
    expect(await networksOf(engine, own.session)).toEqual([]);
  });
});
