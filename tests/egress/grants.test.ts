// A person allows what a running command was refused: the list of its sandbox changes, and the audit log has who reached what.

import { describe, expect, it } from 'vitest';
import { withoutEngines } from '../support/engines.ts';
import { AllowHost, ONE, Site, TWO, mainPlaces, withoutNames } from './servers.ts';

const CONSENT = { how: 'terminal', parent: 'test' } as const;

// Until it is answered, for at most half a minute: by a client that reads proxy variables, then by one that does not.
const patient = (url: string): string =>
  `python3 - <<'END'
import time, urllib.request as r
for _ in range(30):
    try:
        print(r.urlopen('${url}').read().decode(), end='')
        break
    except Exception:
        time.sleep(0.5)
print(r.build_opener(r.ProxyHandler({})).open('${url}').read().decode(), end='')
END`;

describe.skipIf(withoutEngines || withoutNames).each(mainPlaces.slice(0, 1))('on $name', place => {
  it('a host that a person allows is reached by the running command alone, and every connection is recorded', async () => {
    await using web = await Site.http();
    await using host = await AllowHost.open(place);
    const { network } = host.acode;
    const url = `http://${TWO}:${web.port}/`;
    const running = host.run(patient(url), [`http:${ONE}:${web.port}`]);
    await expect.poll(() => network.pending(), { timeout: 20_000 }).toHaveLength(1);
    const [wanted] = await network.pending();
    expect(wanted).toMatchObject({ host: TWO, port: web.port, by: 'command', isRunning: true });
    expect(web.seen).toEqual([]);
    const granted = await network.allow(wanted?.id ?? '', { for: 'once', consent: CONSENT });
    expect(granted.isInEffect).toBe(true);
    const { stdout, auditSequence = 0 } = await running;
    expect(stdout).toBe('answer\nanswer\n');
    expect(web.seen).toEqual([`GET ${TWO}/`, `GET ${TWO}/`]);
    // The control: the next command has no more than its list.
    const again = `python3 -c "import urllib.request as r; r.urlopen('${url}')" 2>&1 | tail -n 1`;
    expect((await host.run(again, [`http:${ONE}:${web.port}`])).stdout).toMatch(/Forbidden/);
    expect(web.seen).toHaveLength(2);
    const records = await host.acode.audit.tail({ count: 50 });
    expect(records.map(({ event }) => event)).toContain('network access granted');
    const outcome = records.find(({ kind, intent }) => kind === 'outcome' && intent === auditSequence);
    const of = { host: TWO, port: web.port };
    expect(outcome).toMatchObject({
      connectionsTotal: 2,
      connections: [
        { ...of, verdict: 'denied', reason: 'not-listed' },
        { ...of, verdict: 'allowed', rule: `allow/tcp:${TWO}:${web.port}`, count: 2 },
      ],
    });
  });
});
