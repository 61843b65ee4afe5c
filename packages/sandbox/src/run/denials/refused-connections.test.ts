// What an allow-list refused is told by host, with the entry that it lacks; a failing server is no denial.

import { describe, expect, it } from 'vitest';
import { denialText } from '../../contract/denial-text.ts';
import type { EgressConnection, EgressRefusal } from '../../contract/egress.ts';
import type { EffectivePolicy } from '../../contract/policy.ts';
import type { Layer } from '../../contract/sourced.ts';
import { refusedConnections } from './refused-connections.ts';

const rule = { id: 'deny/*.paste.example', verdict: 'deny', host: '*.paste.example', port: 0 } as const;

function policyOf(layer: Layer, where: string, networkBytes: number | null = null): EffectivePolicy {
  const setBy = { layer, where };
  const rules = [{ ...rule, protocol: 'tls', mode: 'pass', setBy: { layer: 'user', where: 'c.yml:3:5' } }];
  return {
    network: { value: { kind: 'allow', entries: ['pypi'], rules }, ...setBy },
    networkBytes: { value: networkBytes, ...setBy },
  } as unknown as EffectivePolicy;
}

const TYPED = policyOf('request', 'policy.network');
const OWN = policyOf('user', '/home/you/.config/acode/config.yml:4:5');

function refused(host: string, reason: EgressRefusal, port = 443, count = 1): EgressConnection {
  return { host, port, verdict: 'denied', reason, count, bytesIn: 0, bytesOut: 0, ms: 0 };
}

function texts(policy: EffectivePolicy, ...rows: EgressConnection[]): string[] {
  return refusedConnections(policy, rows).map(denial => denialText(denial));
}

describe('a host that is not listed', () => {
  it('is told with the list that has it: what was typed, and the preset of the host', () => {
    expect(refusedConnections(TYPED, [refused('registry.npmjs.org', 'not-listed', 443, 7)])).toEqual([
      {
        rule: 'network.not-listed',
        value: 'registry.npmjs.org:443',
        setBy: { value: 'allow', layer: 'request', where: 'policy.network' },
        count: 7,
        remedies: [{ kind: 'change-request', field: 'policy.network', suggested: 'allow=pypi,npm:install' }],
      },
    ]);
    expect(texts(TYPED, refused('registry.npmjs.org', 'not-listed'))).toEqual([
      "The host registry.npmjs.org:443 is not on the allow-list (set by the request, policy.network). Retrying does not help. Ask for policy.network: { allow: ['pypi', 'npm:install'] }.",
    ]);
  });

  it('of the list in a file is added there', () => {
    expect(texts(OWN, refused('a.example', 'not-listed'))[0]).toContain(
      'acode config set --add sandbox.network.allow a.example',
    );
  });

  it.each([
    ['a.example', 443, 'a.example'],
    ['a.example', 80, 'http:a.example'],
    ['db.example', 5432, 'tcp:db.example:5432'],
    ['github.com', 443, 'github:read'],
    ['localname', 443, '<host>'],
  ])('%s:%i is listed as %s', (host, port, entry) => {
    const [denial] = refusedConnections(TYPED, [refused(host, 'not-listed', port)]);
    expect(denial?.remedies).toEqual([
      { kind: 'change-request', field: 'policy.network', suggested: `allow=pypi,${entry}` },
    ]);
  });

  it('of the machine’s policy is for the administrator', () => {
    const [denial] = refusedConnections(policyOf('machine', '/etc/acode/policy.yml:1:1'), [
      refused('a.example', 'not-listed'),
    ]);
    expect(denial?.remedies).toEqual([{ kind: 'ask-administrator' }]);
  });

  it('has one remedy with all of them, and many hosts are counted', () => {
    const hosts = ['a', 'b', 'c', 'd', 'e', 'f'].map(name => refused(`${name}.example`, 'not-listed', 443, 2));
    const denials = refusedConnections(TYPED, [...hosts, refused('*', 'not-listed', 0, 90)]);
    expect(denials.map(({ value, count }) => [value, count])).toEqual([
      ['a.example:443', 2],
      ['b.example:443', 2],
      ['c.example:443', 2],
      ['d.example:443', 2],
      [null, 94],
    ]);
    expect(new Set(denials.map(({ remedies }) => JSON.stringify(remedies))).size).toBe(1);
    expect(denialText(denials[4]!)).toMatch(/^Further hosts that the command asked for are not on the allow-list/);
  });
});

describe('other refusals', () => {
  it('name the setting for a private address', () => {
    expect(texts(TYPED, refused('registry.corp.example', 'private-address'))[0]).toMatch(
      /^The connection to registry\.corp\.example:443 was refused, because its address is private.*acode config set --add sandbox\.network\.private_hosts registry\.corp\.example/,
    );
  });

  it('name the file of the rule that denies, or the administrator', () => {
    const row = { ...refused('x.paste.example', 'denied-by-rule'), rule: rule.id };
    expect(texts(TYPED, row)[0]).toMatch(
      /^A rule denies the connection to x\.paste\.example:443 \(set by your configuration, c\.yml:3:5\)/,
    );
    const machines = { ...TYPED, network: { ...TYPED.network, layer: 'machine' as const } };
    expect(refusedConnections(machines, [{ ...row, rule: 'gone' }])[0]?.remedies).toEqual([
      { kind: 'ask-administrator' },
    ]);
  });

  it('say that a request is not let through', () => {
    expect(texts(TYPED, refused('registry.npmjs.org', 'method'), refused('10.0.0.5', 'bad-host'))).toEqual([
      expect.stringMatching(/^A request to registry\.npmjs\.org:443 is not one that the allow-list lets through/),
      expect.stringMatching(/^A request to 10\.0\.0\.5:443 is not one/),
    ]);
  });

  it('say which limit of bytes was reached, and how to raise it', () => {
    const limited = policyOf('request', 'policy.networkLimits.bytes', 1024 ** 2);
    expect(texts(limited, refused('', 'limit', 0, 3))[0]).toMatch(
      /refused at the limit of 1 MiB for the network.*policy\.networkLimits\.bytes: 2097152/,
    );
    expect(refusedConnections(policyOf('machine', 'p.yml:1:1', 5), [refused('', 'limit', 0)])[0]?.remedies).toEqual([
      { kind: 'use-less' },
      { kind: 'ask-administrator' },
    ]);
    // Without a limit of bytes it was the number of connections, which no setting changes.
    expect(texts(TYPED, refused('', 'limit', 0))).toEqual([]);
  });

  it('of a server that cannot be reached are none of the list, nor is what was allowed', () => {
    const allowed: EgressConnection = { ...refused('a.example', 'not-listed'), verdict: 'allowed' };
    const down = ['unresolved', 'unreachable', 'untrusted-server'] as const;
    expect(texts(TYPED, allowed, ...down.map(reason => refused('b.example', reason)))).toEqual([]);
  });
});
