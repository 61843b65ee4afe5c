// What passes the network is counted, and its time limit takes it away while the command goes on.

import { describe, expect, it } from 'vitest';
import { limitNetwork } from '../../packages/sandbox/src/isolation/supervise.ts';
import { systemClock } from '../../packages/sandbox/src/lifecycle/clock.ts';
import { engines, images, withoutEngines } from '../support/engines.ts';
import { BackendHost } from './backend.ts';
import { Canary, SONG, UserNetwork } from './canaries.ts';

const BYTES = 200_000;

describe.skipIf(withoutEngines).each(engines)('on $name', engine => {
  it.each(['busybox', 'debian'] as const)('counts bytes in and out with the shell of %s', async image => {
    await using host = await BackendHost.open(engine);
    await using network = await UserNetwork.create(engine);
    await using canary = await Canary.serve(
      engine,
      network.id,
      `exec nc -ll -p 7300 -e head -c ${BYTES} /dev/zero`,
      ':1C84 ',
    );
    const { image: facts } = await host.spec({}, images[image]);
    const fetch =
      image === 'busybox'
        ? `nc -w 3 ${canary.address} 7300 </dev/null | wc -c`
        : `python3 -c 'import socket; s=socket.create_connection(("${canary.address}", 7300)); print(sum(iter(lambda: len(s.recv(65536)), 0)))'`;
    const { output, usage } = await host.run(fetch, {
      image: facts,
      network: { kind: 'named' as const, name: network.name },
    });
    expect(output).toBe(`${BYTES}\n`);
    expect(usage?.rxBytes).toBeGreaterThan(BYTES);
    expect(usage?.rxBytes).toBeLessThan(BYTES * 2);
    expect(usage?.txBytes).toBeGreaterThan(0);
    expect(usage?.txBytes).toBeLessThan(BYTES);
    const without = await host.run('true', { image: facts });
    expect(without.usage).toBeDefined();
    expect(without.usage).not.toHaveProperty('rxBytes');
    expect(without.usage).not.toHaveProperty('txBytes');
  });

  it('takes the network away at its time limit, in the middle of a download, and leaves the command alone', async () => {
    await using host = await BackendHost.open(engine);
    await using network = await UserNetwork.create(engine);
    await using endless = await Canary.serve(engine, network.id, 'exec nc -ll -p 7300 -e cat /dev/zero', ':1C84 ');
    await using canary = await Canary.sing(engine, network.id, 7200);
    const ask = `nc -w 1 ${canary.address} 7200 </dev/null 2>/dev/null || echo no`;
    const script = `${ask}; timeout 60 nc ${endless.address} 7300 </dev/null >/dev/null & while [ "$(ls /sys/class/net)" != lo ]; do sleep 0.1; done; ls /sys/class/net; ${ask}; kill $!; echo went on`;
    const handed = await host.hand(script, { network: { kind: 'named' as const, name: network.name } });
    const limit = limitNetwork(handed.execution, 3000, systemClock);
    const { exitCode, usage } = await handed.ended;
    expect(handed.output.text).toBe(`${SONG}\nlo\nno\nwent on\n`);
    expect([exitCode, limit.cut]).toEqual([0, 'disconnected']);
    // The counters went with the interface; what the engine saw just before is what counts.
    expect(usage?.rxBytes).toBeGreaterThan(BYTES);
  });
});
