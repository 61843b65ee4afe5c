// Networks that a user declared: by their exact name, bridges only, and never one that acode made.

import { describe, expect, it } from 'vitest';
import { engines, withoutEngines } from '../support/engines.ts';
import { BackendHost } from './backend.ts';
import { UserNetwork, networksOf } from './canaries.ts';

describe.skipIf(withoutEngines).each(engines)('on $name, a named network', engine => {
  it.each([
    ['does not exist', 'acode-test-absent', /no network of that name/],
    ['is the host’s', 'host', /driver is host/],
    ['is none', 'none', /driver is null/],
    ['is the default bridge', 'bridge', /default network/],
  ])('is refused if it %s', async (_, name, rule) => {
    await using host = await BackendHost.open(engine);
    await expect(host.run('true', { network: { kind: 'named' as const, name } })).rejects.toMatchObject({
      code: 'ACODE-SBX-005',
      context: {
        network: name,
        rule: expect.stringMatching(rule),
        remedy: expect.stringMatching(/docker network create/),
      },
    });
  });

  it('is refused if it is the managed one of a session, or only begins like one that exists', async () => {
    await using host = await BackendHost.open(engine);
    await using network = await UserNetwork.create(engine);
    await host.run('true', { network: { kind: 'bridge' } });
    const [managed] = await networksOf(engine, host.session);
    for (const [name, rule] of [
      [managed!.Name, /managed network of a session/],
      [network.name.slice(0, -1), /no network of that name/],
      [network.id, /no network of that name/],
    ] as const)
      await expect(host.run('true', { network: { kind: 'named' as const, name } })).rejects.toMatchObject({
        code: 'ACODE-SBX-005',
        context: { rule: expect.stringMatching(rule) },
      });
    expect(
      (await host.run('ls /sys/class/net', { network: { kind: 'named' as const, name: network.name } })).output,
    ).toContain('eth0');
  });
});
