// Names: found where the sandbox has a network, and by the servers that the policy names.

import { describe, expect, it } from 'vitest';
import { engines, withoutEngines } from '../support/engines.ts';
import { BackendHost } from './backend.ts';
import { ANSWER, Canary, SONG, UserNetwork, nameServer } from './canaries.ts';

describe.skipIf(withoutEngines).each(engines)('on $name, a sandbox with a network', engine => {
  it('finds services on it by name, and asks the name servers of its policy', async () => {
    await using host = await BackendHost.open(engine);
    await using network = await UserNetwork.create(engine);
    await using server = await nameServer(engine, network.id);
    await using canary = await Canary.sing(engine, network.id, 7200);
    const named = { network: { kind: 'named' as const, name: network.name }, dns: [server.address] };
    const lookup = 'nslookup -type=a acode.test 2>&1';
    const [service, name, unanswered] = await Promise.all([
      host.run(`nc -w 5 ${canary.name} 7200 </dev/null`, named),
      host.run(lookup, named),
      // The control asks where the canary sings, and nobody answers for names.
      host.run(`timeout 3 ${lookup}`, { ...named, dns: [canary.address] }),
    ]);
    expect(service.output).toBe(`${SONG}\n`);
    expect(name.output).toContain(ANSWER);
    expect(unanswered.output).not.toContain(ANSWER);
  });
});
