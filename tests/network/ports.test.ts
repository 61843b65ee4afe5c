// Published ports: on the loopback of the host alone, and a clash that says which port it was.

import { describe, expect, it } from 'vitest';
import { engines, withEngine, withoutEngines } from '../support/engines.ts';
import { BackendHost } from './backend.ts';
import { Canary, SONG, anyPort, outside } from './canaries.ts';

describe.skipIf(withoutEngines).each(engines)('on $name, a port', engine => {
  it('is published on the loopback of the host alone, at a port the engine chose or the one asked for', async () => {
    await using host = await BackendHost.open(engine);
    const wanted = anyPort();
    const { sandbox } = await host.hand(`nc -ll -p 7001 -e echo ${SONG} & nc -ll -p 7002 -e echo ${SONG} & wait`, {
      network: { kind: 'bridge' },
      ports: [{ container: 7001 }, { container: 7002, host: wanted }],
    });
    const [chosen, asked] = sandbox.ports;
    expect(asked).toEqual({ container: 7002, host: wanted, protocol: 'tcp' });
    expect(chosen).toMatchObject({ container: 7001, protocol: 'tcp' });
    const ask = [chosen, asked].map(port => `nc -w 2 127.0.0.1 ${port!.host} </dev/null`).join(';');
    expect(await outside(engine, `sleep 0.3; ${ask}`)).toBe(`${SONG}\n${SONG}\n`);
    await using open = await Canary.sing(engine, 'host', wanted + 1);
    expect(open.id).not.toBe('');
    const addresses = '$(ip -4 -o addr | tr -s " " | cut -d" " -f4 | cut -d/ -f1 | grep -v ^127)';
    const askAll = (port: number) => `for a in ${addresses}; do nc -w 1 $a ${port} </dev/null; done`;
    expect(await outside(engine, askAll(wanted + 1))).toContain(SONG);
    expect(await outside(engine, askAll(wanted))).not.toContain(SONG);
  });

  it('that is taken is an error with the port, and leaves nothing behind', async () => {
    await using host = await BackendHost.open(engine);
    const port = anyPort();
    await using canary = await Canary.sing(engine, 'host', port);
    expect(canary.id).not.toBe('');
    await expect(
      host.run('true', { network: { kind: 'bridge' }, ports: [{ container: 80, host: port }] }),
    ).rejects.toMatchObject({
      code: 'ACODE-SBX-021',
      context: { port },
    });
    const left = await withEngine(engine, direct =>
      direct.containers.list({
        labels: [`acode.session=${host.session}`],
        all: true,
        signal: AbortSignal.timeout(60_000),
      }),
    );
    expect(left).toEqual([]);
    expect(
      await host.run('echo fine', { network: { kind: 'bridge' }, ports: [{ container: 80, host: port + 1 }] }),
    ).toMatchObject({
      output: 'fine\n',
    });
  });
});
