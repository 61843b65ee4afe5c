// Without a network nothing is reached: no address, no name, no IPv6, no socket of the host. Each canary is heard by others.

import { describe, expect, it } from 'vitest';
import { engines, images, withoutEngines } from '../support/engines.ts';
import { BackendHost } from './backend.ts';
import { Canary, SONG, UserNetwork, anyPort, nameServer, outside } from './canaries.ts';

describe.skipIf(withoutEngines).each(engines)('on $name, a sandbox without a network', engine => {
  it('reaches neither a service of the host nor another container, at none of their addresses', async () => {
    await using host = await BackendHost.open(engine);
    await using network = await UserNetwork.create(engine, {
      EnableIPv6: true,
      IPAM: { Config: [{ Subnet: `fd00:ac0d:${(anyPort() % 4096).toString(16)}::/64` }] },
    });
    const port = anyPort();
    await using service = await Canary.sing(engine, 'host', port);
    await using container = await Canary.sing(engine, network.id, 7100);
    expect(service.id).not.toBe('');
    expect(container.address6).toMatch(/^fd00:/);
    const gateway = container.address.replace(/\.\d+$/, '.1');
    const asks = [
      `nc -w 1 ${container.address} 7100 </dev/null`,
      `nc -w 1 ${container.address6} 7100 </dev/null`,
      `nc -w 1 ${gateway} ${port} </dev/null`,
    ];
    const script = asks.map(ask => `${ask} || echo no`).join(';');
    expect(await outside(engine, script, { network: network.id })).toBe(`${SONG}\n${SONG}\n${SONG}\n`);
    const inside = await host.run(`${script}; nc -w 1 127.0.0.1 ${port} </dev/null || echo no`, {});
    expect(inside.output).not.toContain(SONG);
    expect(inside.output.match(/^no$/gm)).toHaveLength(4);
  });

  it('finds no name, and says so at once', async () => {
    await using host = await BackendHost.open(engine);
    await using network = await UserNetwork.create(engine);
    await using server = await nameServer(engine, network.id);
    await using canary = await Canary.sing(engine, network.id, 7100);
    const script = `nc -w 4 ${canary.name} 7100 </dev/null`;
    expect(await outside(engine, script, { network: network.id, dns: server.address })).toBe(`${SONG}\n`);
    const before = performance.now();
    expect((await host.run(script, {})).output).toContain('bad address');
    expect(performance.now() - before).toBeLessThan(5000);
  });

  it('has a network namespace of its own: the loopback alone, and no abstract socket of the host', async () => {
    await using host = await BackendHost.open(engine);
    const name = `acode-test-${anyPort()}`;
    const socket = 'import socket; s=socket.socket(socket.AF_UNIX)';
    const serve = `${socket}; s.bind("\\0${name}"); s.listen()\nwhile True: s.accept()[0].sendall(b"${SONG}")`;
    const ask = `python3 -c '${socket}; s.connect("\\0${name}"); print(s.recv(99).decode())'`;
    await using canary = await Canary.serve(engine, 'host', `exec python3 -c '${serve}'`, `@${name}`, images.debian);
    expect(canary.id).not.toBe('');
    expect(await outside(engine, ask, { image: images.debian })).toBe(`${SONG}\n`);
    const debian = (await host.spec({}, images.debian)).image;
    const { output, exitCode } = await host.run(`ls /sys/class/net; readlink /proc/self/ns/net; ${ask}`, {
      image: debian,
    });
    expect(exitCode).not.toBe(0);
    expect(output).toContain('ConnectionRefusedError');
    expect(output).not.toContain(SONG);
    const [first, namespace] = output.split('\n');
    expect(first).toBe('lo');
    expect(namespace).not.toBe((await outside(engine, 'readlink /proc/self/ns/net')).trim());
  });
});
