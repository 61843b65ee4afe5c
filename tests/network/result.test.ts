// The network as a caller sees it: by consent, in the result, in the log, and told when it was denied.

import { describe, expect, it } from 'vitest';
import type { ConfigInput } from '@acode/sandbox';
import { TestHost, engines, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { Canary, SONG, UserNetwork, anyPort, networksOf, outside } from './canaries.ts';

const allowing = (network: object): ConfigInput => ({
  sandbox: { images: { default: images.busybox }, network: { allow_bridge: true, ...network } },
});

function recorder() {
  const lines: { message: string; fields: Record<string, unknown> }[] = [];
  const write = (fields: object, message: string): void => void lines.push({ message, fields: { ...fields } });
  const counted: string[] = [];
  const count = (name: string): void => void counted.push(name);
  return {
    lines,
    counted,
    options: {
      logger: { debug: write, info: write, warn: write, error: write },
      metrics: { increment: count, observe: () => undefined, gauge: () => undefined },
    },
  };
}

describe.skipIf(withoutEngines).each(engines)('on $name, a run', engine => {
  it('with the bridge has its ports and its traffic in the result, and leaves no network behind', async () => {
    const { lines, options } = recorder();
    const host = await TestHost.open(engine, { config: allowing({}), ...options });
    const script = `nc -ll -p 7001 -e echo ${SONG} & read line; kill $!`;
    const command = await host.acode.spawn(script, { policy: { network: 'bridge', ports: [{ container: 7001 }] } });
    expect(command.ports).toEqual([{ container: 7001, host: expect.any(Number), protocol: 'tcp' }]);
    const ask = `sleep 0.5; nc -w 2 127.0.0.1 ${command.ports[0]!.host} </dev/null`;
    expect(await outside(engine, ask)).toBe(`${SONG}\n`);
    await command.write('\n');
    const result = await command.result;
    expect(result.ports).toEqual(command.ports);
    expect(result.usage?.rxBytes).toBeGreaterThan(0);
    expect(result.usage?.txBytes).toBeGreaterThan(0);
    expect(lines.find(({ message }) => message === 'run ok')?.fields).toMatchObject({ network: 'bridge' });
    expect(await networksOf(engine, host.session)).toHaveLength(1);
    await host[Symbol.asyncDispose]();
    expect(await networksOf(engine, host.session)).toEqual([]);
  });

  it('on a named network reaches what is on it, and loses it at the time limit while it goes on', async () => {
    await using network = await UserNetwork.create(engine);
    await using canary = await Canary.sing(engine, network.id, 7200);
    const config = allowing({ allowed_networks: [network.name], timeout_seconds: 1 });
    await using host = await TestHost.open(engine, { config });
    const ask = `nc -w 1 ${canary.address} 7200 </dev/null 2>/dev/null || echo no`;
    const result = await host.acode.run(`${ask}; sleep 2.5; ${ask}`, { policy: { network: { name: network.name } } });
    expect(result.stdout).toBe(`${SONG}\nno\n`);
    expect(result.exitCode).toBe(0);
    expect(result.denials).toMatchObject([
      {
        rule: 'limit.network-time',
        value: 1000,
        setBy: { where: expect.stringContaining('sandbox.network.timeout_seconds') },
        effect: { kind: 'network-disconnected' },
      },
    ]);
  });
});

describe.skipIf(withoutEngines)('a run', () => {
  it.each([
    ['bridge' as const, /consent/],
    [{ name: 'acode-test-undeclared' }, /does not list it/],
  ])('that asks for %s without consent is refused, and the refusal is logged and counted', async (network, rule) => {
    const { lines, counted, options } = recorder();
    await using host = await TestHost.open(mainEngine, options);
    await expect(host.acode.run('true', { policy: { network } })).rejects.toMatchObject({
      code: 'ACODE-SBX-005',
      context: { rule: expect.stringMatching(rule) },
    });
    expect(lines.find(({ message }) => message === 'run error')?.fields).toMatchObject({ errorCode: 'ACODE-SBX-005' });
    expect(counted).toContain('acode_network_denied_total');
  });

  it('without a network that tries to use one hears why, once in the result, the log, the metrics and the events', async () => {
    const { lines, counted, options } = recorder();
    await using host = await TestHost.open(mainEngine, options);
    const events: unknown[] = [];
    host.acode.events.on('NetworkDenied', event => events.push(event));
    const result = await host.acode.run('wget http://acode.test/');
    expect(result.exitCode).not.toBe(0);
    expect(result.denials).toMatchObject([
      {
        rule: 'network.none',
        setBy: { layer: 'built-in' },
        suspected: expect.stringContaining('bad address'),
        remedies: [{ kind: 'provide-offline' }, { kind: 'change-request', suggested: 'allow=<host>' }],
      },
    ]);
    expect(lines.filter(({ message }) => message === 'denied: the sandbox has no network')).toHaveLength(1);
    expect(lines.find(({ message }) => message === 'run ok')?.fields).toMatchObject({ network: 'none' });
    expect(counted.filter(name => name === 'acode_network_denied_total')).toHaveLength(1);
    expect(events).toMatchObject([{ rule: 'network.none' }]);
    expect((await host.acode.run('echo fine')).denials).toEqual([]);
  });

  it('in air-gapped mode has no network whatever it asks for, and goes on', async () => {
    const config = { mode: 'airgapped' as const, ...allowing({}) };
    await using host = await TestHost.open(mainEngine, { config });
    const port = anyPort();
    const policy = { network: 'bridge' as const, ports: [{ container: 80, host: port }] };
    const result = await host.acode.run('ls /sys/class/net', { policy });
    expect(result).toMatchObject({ exitCode: 0, stdout: 'lo\n' });
    expect(result.ports).toBeUndefined();
    expect(result.usage).not.toHaveProperty('rxBytes');
    expect(result.denials).toMatchObject([{ rule: 'network.air-gapped' }]);
    expect(await networksOf(mainEngine, host.session)).toEqual([]);
  });

  it('that hits a limit or writes where it may not hears which rule it was', async () => {
    await using host = await TestHost.open(mainEngine);
    const policy = { limits: { tmpBytes: 1024 ** 2, outputBytes: 100 } };
    const script = 'touch /bin/x; dd if=/dev/zero of=/tmp/x bs=64k count=64; yes | head -c 1000';
    const { denials } = await host.acode.run(script, { policy });
    expect(denials.map(({ rule }) => rule)).toEqual(['read-only.root', 'limit.output', 'limit.tmp']);
    const readOnly = await host.acode.run('touch ./x', { policy: { workspace: 'readonly' } });
    expect(readOnly.denials).toMatchObject([
      { rule: 'read-only.workspace', setBy: { layer: 'request', where: 'policy.workspace' } },
    ]);
  });

  it('is removed with everything when its port is taken', async () => {
    const port = anyPort();
    await using canary = await Canary.sing(mainEngine, 'host', port);
    expect(canary.id).not.toBe('');
    await using host = await TestHost.open(mainEngine, { config: allowing({}) });
    const policy = { network: 'bridge' as const, ports: [{ container: 80, host: port }] };
    await expect(host.acode.run('true', { policy })).rejects.toMatchObject({
      code: 'ACODE-SBX-021',
      context: { port },
    });
    expect(await host.containers()).toEqual([]);
  });

  it('of an image without a shell has a network and ports too', async () => {
    await using host = await TestHost.open(mainEngine, { config: allowing({}) });
    const policy = { image: images.noshell, network: 'bridge' as const, ports: [{ container: 80 }] };
    expect(await host.acode.run(['/true'], { policy })).toMatchObject({ exitCode: 0 });
  });
});
