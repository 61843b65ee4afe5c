// Allow-lists through the public surface, on every engine and level: single commands, persistent and warm sandboxes.

import { describe, expect, it } from 'vitest';
import { withoutEngines } from '../support/engines.ts';
import { AllowHost, API, ONE, Site, TWO, WILD, mainPlaces, places, withoutNames } from './servers.ts';

const skipped = withoutEngines || withoutNames;

// A client without any support for proxies, and one that reads the variables.
const byName = (url: string): string =>
  `python3 -c "import urllib.request as r; print(r.build_opener(r.ProxyHandler({})).open('${url}').read().decode(), end='')" 2>&1 | tail -n 1`;
const byProxy = (url: string): string =>
  `python3 -c "import urllib.request as r; print(r.urlopen('${url}').read().decode(), end='')" 2>&1 | tail -n 1`;
const bytes = (host: string, port: number): string =>
  `python3 -c "import socket; s = socket.create_connection(('${host}', ${port}), 3); print(s.recv(9).decode(), end='')" 2>&1 | tail -n 1`;

describe.skipIf(skipped).each(places)('on $name, a command with an allow-list', place => {
  it('reaches the hosts of its list, by name and by proxy, and nothing else', async () => {
    await using web = await Site.http();
    await using secure = await Site.https([TWO]);
    await using raw = await Site.tcp();
    await using host = await AllowHost.open(place, { roots: [secure.pem] });
    const list = [`http:${ONE}:${web.port}`, `${TWO}:${secure.port}`, `tcp:${API}:${raw.port}`];
    const line = [
      byName(`http://${ONE}:${web.port}/name`),
      byProxy(`http://${ONE}:${web.port}/proxy`),
      byName(`https://${TWO}:${secure.port}/name`),
      byProxy(`https://${TWO}:${secure.port}/proxy`),
      bytes(API, raw.port),
      // Listed hosts at other ports, hosts that are not listed, an address, this machine, a resolver elsewhere.
      bytes(API, web.port),
      bytes(WILD[0], web.port),
      byProxy(`http://${TWO}:${web.port}/`),
      bytes('93.184.216.34', 443),
      bytes('127.0.0.1', web.port),
      bytes('169.254.169.254', 80),
    ].join('; ');
    const result = await host.run(line, list);
    const lines = result.stdout.trim().split('\n');
    expect(lines.slice(0, 5)).toEqual(['answer', 'answer', 'answer', 'answer', 'hello']);
    expect(lines.slice(5)).toHaveLength(6);
    for (const refused of lines.slice(5)) expect(refused).toMatch(/Error|refused|unreachable|Forbidden|timed out/i);
    expect(web.seen).toEqual([`GET ${ONE}/name`, `GET ${ONE}/proxy`]);
    expect(secure.seen).toEqual([`GET ${TWO}/name`, `GET ${TWO}/proxy`]);
    expect(raw.seen).toEqual(['connection']);
    const allowed = result.network?.filter(({ verdict }) => verdict === 'allowed').map(row => [row.host, row.count]);
    expect(allowed).toEqual([
      [ONE, 2],
      [TWO, 2],
      [API, 1],
    ]);
    expect(result.network).toContainEqual(
      expect.objectContaining({ host: TWO, port: web.port, verdict: 'denied', reason: 'other-port' }),
    );
  });
});

describe.skipIf(skipped).each(places.filter(({ level }) => level === undefined))(
  'on $name, a persistent sandbox',
  place => {
    it('has its allow-list in every command, and reports the connections of each', async () => {
      await using web = await Site.http();
      await using host = await AllowHost.open(place);
      const policy = { network: { allow: [`http:${ONE}:${web.port}`] } };
      await using sandbox = await host.acode.create({ policy });
      for (const path of ['/first', '/second']) {
        const { stdout, network } = await sandbox.run(
          `${byName(`http://${ONE}:${web.port}${path}`)}; ${bytes(ONE, 22)}`,
        );
        expect(stdout).toMatch(/^answer\n.*Error/);
        expect(network?.map(row => [row.host, row.count])).toEqual([[ONE, 1]]);
      }
      expect(web.seen).toEqual([`GET ${ONE}/first`, `GET ${ONE}/second`]);
      // Artifacts are copied out of a sandbox that is opened in the same way.
      const artifacts = [{ from: '/out/page', to: './page' }];
      const run = await host.run(`${byName(`http://${ONE}:${web.port}/third`)} > /out/page`, policy.network.allow, {
        artifacts,
      });
      expect(run.artifacts).toMatchObject([{ files: 1, bytes: 7 }]);
    });
  },
);

describe.skipIf(skipped).each(mainPlaces)('on $name', place => {
  it('two commands at once have their own lists, also in sandboxes of the warm pool', async () => {
    await using web = await Site.http();
    await using host = await AllowHost.open(place, { pool: { min: 2, max: 2 } });
    const both = [ONE, TWO].map(name => byName(`http://${name}:${web.port}/`)).join('; ');
    const list = (name: string): string[] => [`http:${name}:${web.port}`];
    await host.run('true', list(ONE));
    await expect
      .poll(async () => (await host.acode.explain('true', { policy: { network: { allow: list(TWO) } } })).warmReason)
      .toMatch(/(?:is|are) warm$/);
    const [one, two] = await Promise.all([host.run(both, list(ONE)), host.run(both, list(TWO))]);
    expect([one.warm, two.warm]).toContain(true);
    expect(one.stdout).toMatch(/^answer\n.*Error/);
    expect(two.stdout).toMatch(/Error.*\nanswer\n$/);
    expect(web.seen.sort()).toEqual([`GET ${ONE}/`, `GET ${TWO}/`]);
  });

  it('a suffix lets names below it through, which get their addresses when they are asked for', async () => {
    await using web = await Site.http();
    await using host = await AllowHost.open(place);
    const line = [...WILD, ONE].map(name => byName(`http://${name}:${web.port}/`)).join('; ');
    const { stdout } = await host.run(line, [`http:*.wild.acode.test:${web.port}`]);
    expect(stdout).toMatch(/^answer\nanswer\n.*Error/);
    expect(web.seen).toEqual(WILD.map(name => `GET ${name}/`));
  });

  it('a name with a private address is refused unless the user’s file names it', async () => {
    await using web = await Site.http();
    await using host = await AllowHost.open(place, { network: { private_hosts: [TWO] } });
    const list = [`http:${ONE}:${web.port}`, `http:${TWO}:${web.port}`];
    const result = await host.run([ONE, TWO].map(name => byProxy(`http://${name}:${web.port}/`)).join('; '), list);
    expect(result.stdout).toMatch(/Forbidden\nanswer\n$/);
    expect(result.network).toContainEqual(expect.objectContaining({ host: ONE, reason: 'private-address' }));
    expect(result.denials.map(({ rule }) => rule)).toEqual(['network.private-address']);
    expect(web.seen).toEqual([`GET ${TWO}/`]);
  });

  it('one service of this host is reached if the user’s file lists its port, and no other', async () => {
    await using listed = await Site.tcp();
    await using other = await Site.tcp();
    await using host = await AllowHost.open(place, { network: { allow: [`host:${listed.port}`] } });
    const line = [bytes('host', listed.port), bytes('host', other.port), bytes('127.0.0.1', other.port)].join('; ');
    const { stdout } = await host.acode.run(line);
    expect(stdout).toMatch(/^hello\n.*Error.*\n.*Error/);
    expect(other.seen).toEqual([]);
    await expect(host.run('true', [`host:${other.port}`])).rejects.toMatchObject({ code: 'ACODE-SBX-005' });
  });

  it('takes no more bytes than its limit, and a limit is refused for a network of the engine', async () => {
    await using web = await Site.http((_, response) => void response.end(Buffer.alloc(4 << 20)));
    await using host = await AllowHost.open(place, { network: { allow_bridge: true } });
    const list = [`http:${ONE}:${web.port}`];
    const size = `python3 -c "import urllib.request as r; print(len(r.urlopen('http://${ONE}:${web.port}/').read()))" 2>&1 | tail -n 1`;
    expect((await host.run(size, list)).stdout).toBe(`${4 << 20}\n`);
    const policy = { networkLimits: { bytes: 1 << 20 } };
    const limited = await host.run(`${size}; ${size}`, list, { policy });
    expect(limited.stdout).toMatch(/^.*(?:Incomplete|reset|Remote|Error).*\n.*(?:refused|reset|Remote|Error).*\n$/i);
    const took = limited.network?.reduce((sum, row) => sum + row.bytesIn, 0) ?? 0;
    expect(took).toBeLessThan(2 << 20);
    expect(limited.network).toContainEqual(expect.objectContaining({ verdict: 'denied', reason: 'limit' }));
    const bridged = host.acode.run('true', { policy: { ...policy, network: 'bridge' } });
    await expect(bridged).rejects.toMatchObject({ code: 'ACODE-SBX-016' });
  });

  it('goes through the proxy of a company, which learns the names, and says what that means', async () => {
    await using secure = await Site.https([ONE]);
    const asked: string[] = [];
    await using company = await Site.tunnels(asked, secure.port);
    const url = `http://127.0.0.1:${company.port}`;
    await using host = await AllowHost.open(place, {
      roots: [secure.pem],
      network: { upstream_proxy: url, private_hosts: [] },
    });
    // A name that this machine does not know.
    const list = ['far.acode.example'];
    const line = `python3 -c "import urllib.request as r; print(r.urlopen('https://far.acode.example/').status)" 2>&1 | tail -n 1`;
    await host.run(line, list);
    expect(asked).toEqual(['far.acode.example:443']);
    const notes = (await host.acode.explain('true', { policy: { network: { allow: list } } })).notes.join(' ');
    expect(notes).toContain(url);
    expect(notes).toContain('cannot promise');
    // What is not listed is not asked for, and neither is a name that this machine knows at a private address.
    await host.run(line, [`${TWO}:443`]);
    await host.run(byProxy(`https://${ONE}/`), [ONE]);
    expect(asked).toHaveLength(1);
  });

  it('air-gapped mode beats every list', async () => {
    await using web = await Site.http();
    await using host = await AllowHost.open(place, { network: { allow: [`http:${ONE}:${web.port}`] } });
    const policy = { network: { allow: [`http:${ONE}:${web.port}`] } };
    expect((await host.acode.run(byName(`http://${ONE}:${web.port}/`), { policy })).stdout).toBe('answer\n');
    await using airgapped = await AllowHost.open(place, { mode: 'airgapped' });
    const denied = await airgapped.acode.run(byName(`http://${ONE}:${web.port}/`), { policy });
    expect(denied.stdout).toMatch(/Error/);
    expect(denied.denials).toContainEqual(expect.objectContaining({ rule: 'network.air-gapped' }));
    expect(web.seen).toHaveLength(1);
  });
});
