// Network none and IPv6: attack row D1 tries IPv4 and names, and no address of another container over IPv6.

import { describe, expect, it } from 'vitest';
import { engines, withoutEngines } from '../support/engines.ts';
import { BackendHost } from './backend.ts';
import { Canary, SONG, UserNetwork, anyPort, outside } from './canaries.ts';

describe.skipIf(withoutEngines).each(engines)('on $name, a sandbox without a network', engine => {
  it('reaches another container neither over IPv4 nor over IPv6', async () => {
    await using host = await BackendHost.open(engine);
    await using network = await UserNetwork.create(engine, {
      EnableIPv6: true,
      IPAM: { Config: [{ Subnet: `fd00:ac0d:${(anyPort() % 4096).toString(16)}::/64` }] },
    });
    await using container = await Canary.sing(engine, network.id, 7100);
    expect(container.address6).toMatch(/^fd00:/);
    const addresses = [container.address, container.address6];
    const script = addresses.map(address => `nc -w 1 ${address} 7100 </dev/null || echo no`).join(';');
    expect(await outside(engine, script, { network: network.id })).toBe(`${SONG}\n${SONG}\n`);
    const { output } = await host.run(script, {});
    expect(output).not.toContain(SONG);
    expect(output.match(/^no$/gm)).toHaveLength(2);
  });
});
