// Network: none by default, and otherwise only with the consent that its kind needs.

import { describe, expect, it } from 'vitest';
import { AcodeError } from '../contract/errors.ts';
import { holdTo } from './config/check.ts';
import { parseConfig, rawConfig } from './config/parse.ts';
import { overTeam } from './config/load.ts';
import { machineSchema, teamSchema } from './config/schema.ts';
import type { PolicyFields } from '../contract/policy.ts';
import { decideHost } from '../egress/decide.ts';
import { denialParts } from '../contract/denial-text.ts';
import { NO_LAYERS } from './layers.ts';
import type { Layers, RepositoryLayer } from './layers.ts';
import { resolvePolicy } from './resolve.ts';

const host = { caller: { uid: 1001, gid: 1002 }, cpus: 2 };
const layers = (user = '', machine?: string): Layers => ({
  ...NO_LAYERS,
  user: parseConfig(user, 'user.yml'),
  machine: machine === undefined ? null : holdTo(machineSchema, rawConfig(machine, '/etc/acode/policy.yml')),
});
const resolve = (input: PolicyFields, user?: string, machine?: string) =>
  resolvePolicy(input, layers(user, machine), host);
const denied = (rule: string, setBy: string, remedy: string) =>
  expect.objectContaining({
    code: 'ACODE-SBX-005',
    context: expect.objectContaining({
      rule: expect.stringContaining(rule) as string,
      setBy: expect.stringContaining(setBy) as string,
    }) as unknown,
    hint: expect.stringContaining(remedy) as string,
  });
// What no setting allows is set by nobody.
const notAvailable = (rule: string, remedy: string) =>
  expect.objectContaining({
    code: 'ACODE-SBX-005',
    message: expect.stringContaining(`is not available: ${rule}`) as string,
    context: expect.not.objectContaining({ setBy: expect.anything() as unknown }) as unknown,
    hint: expect.stringContaining(remedy) as string,
  });
const invalid = (part: string) =>
  expect.objectContaining({ code: 'ACODE-SBX-017', message: expect.stringContaining(part) as string });

describe('what a person granted', () => {
  const granted = (input: PolicyFields, user = '', machine?: string) =>
    resolvePolicy(input, { ...layers(user, machine), grants: ['a.example'] }, host).network.value;
  const hosts = (found: ReturnType<typeof granted>): string[] =>
    found.kind === 'allow' ? found.rules.filter(({ verdict }) => verdict === 'allow').map(one => one.host) : [];

  it('adds to a list, gives no network to who has none, and may be asked for by a model', () => {
    expect(hosts(granted({ network: { allow: ['b.example'] } }))).toEqual(['b.example', 'a.example']);
    expect(hosts(granted({}, 'sandbox: { network: { allow: [b.example] } }'))).toEqual(['b.example', 'a.example']);
    for (const network of [undefined, 'none'] as const)
      expect(granted(network === undefined ? {} : { network })).toEqual({ kind: 'none' });
    const model = { network: { allow: ['a.example'] }, askedBy: 'model' } as const;
    expect(hosts(granted(model))).toEqual(['a.example']);
    expect(() => resolve(model)).toThrow(denied('a model may ask only', 'default', 'set --add'));
  });

  it('is bounded by the machine and by what any file denies', () => {
    const list = { network: { allow: ['b.example'] } };
    expect(hosts(granted(list, '', 'sandbox: { network: { allow: [b.example] } }'))).toEqual(['b.example']);
    const found = granted(list, "sandbox: { network: { deny: ['*.example'] } }");
    const decided = found.kind === 'allow' ? decideHost(found, { host: 'a.example', port: 443 }) : null;
    expect(decided).toMatchObject({ allowed: false, reason: 'denied-by-rule' });
  });
});

const CONSENT = 'sandbox: { network: { allow_bridge: true } }';

describe('bridge', () => {
  it('needs the user’s own consent', () => {
    expect(() => resolve({ network: 'bridge' })).toThrow(
      denied('needs your consent', 'the built-in default', '`acode config set sandbox.network.allow_bridge true`'),
    );
    expect(() => resolve({ network: 'bridge' }, 'sandbox: { network: { allow_bridge: false } }')).toThrow(
      denied('needs your consent', 'your configuration, user.yml:1:23', 'allow_bridge'),
    );
    expect(resolve({ network: 'bridge' }, CONSENT).network).toMatchObject({
      value: { kind: 'bridge' },
      layer: 'request',
    });
  });

  it('is all that a hint names where consent was given', () => {
    const hintOf = (wish: Parameters<typeof resolve>[0], user?: string): string => {
      try {
        resolve(wish, user);
        return '';
      } catch (error) {
        return error instanceof AcodeError ? error.hint : '';
      }
    };
    for (const wish of [{ ports: [{ container: 80 }] }, { network: { name: 'host' } }]) {
      expect(hintOf(wish)).toContain('consent');
      expect(hintOf(wish, CONSENT)).toContain('bridge');
      expect(hintOf(wish, CONSENT)).not.toContain('consent');
    }
  });

  it('consent alone gives none', () => {
    expect(resolve({}, CONSENT).network).toEqual({ value: { kind: 'none' }, layer: 'built-in', where: 'default' });
  });

  it('can be forbidden by the machine', () => {
    expect(() => resolve({ network: 'bridge' }, CONSENT, 'sandbox: { network: { allow_bridge: false } }')).toThrow(
      denied('this machine allows no bridge', '/etc/acode/policy.yml:1:23', 'ask the administrator'),
    );
    // The machine cannot consent for the user.
    expect(() => resolve({ network: 'bridge' }, '', 'sandbox: { network: { allow_bridge: true } }')).toThrow(
      denied('needs your consent', '', ''),
    );
  });

  it.each([
    [
      'sandbox: { defaults: { network: true }, network: { allow_bridge: true } }',
      'user.yml:1:24 (sandbox.defaults.network)',
    ],
    ['sandbox: { network: { mode: bridge, allow_bridge: true } }', 'user.yml:1:23 (sandbox.network.mode)'],
  ])('can be the user’s own default: %s', (user, where) => {
    expect(resolve({}, user).network).toEqual({ value: { kind: 'bridge' }, layer: 'user', where });
    expect(resolve({ network: 'none' }, user).network.value).toEqual({ kind: 'none' });
  });

  it('is said to be the team’s where its list stands in the team’s defaults', () => {
    const team = holdTo(teamSchema, rawConfig('sandbox: { network: { allow: [a.example] } }', '/etc/acode/config.yml'));
    const both = { ...NO_LAYERS, user: overTeam(parseConfig('', 'user.yml'), team) };
    expect(resolvePolicy({}, both, host).network).toMatchObject({
      value: { kind: 'allow' },
      layer: 'team',
      where: '/etc/acode/config.yml:1:23 (sandbox.network.allow)',
    });
  });

  it('can be named or switched off in the user’s own file, and a name counts only where it is declared', () => {
    const file = (mode: string, declared: string): string =>
      `sandbox: { network: { mode: ${mode}, allowed_networks: [${declared}] } }`;
    expect(resolve({}, file('team', 'team')).network).toMatchObject({
      value: { kind: 'named', name: 'team' },
      layer: 'user',
      where: expect.stringContaining('sandbox.network.mode'),
    });
    expect(resolve({}, file('none', 'team')).network).toMatchObject({ value: { kind: 'none' }, layer: 'user' });
    expect(() => resolve({}, file('team', 'other'))).toThrow(expect.objectContaining({ code: 'ACODE-SBX-005' }));
  });
});

describe('a network by name', () => {
  const user = 'sandbox: { network: { allowed_networks: [db, HOST, host, bridge, default] } }';

  it('can be the user’s own default', () => {
    const own = 'sandbox: { network: { mode: db, allowed_networks: [db] } }';
    expect(resolve({}, own).network).toMatchObject({
      value: { name: 'db' },
      layer: 'user',
      where: 'user.yml:1:23 (sandbox.network.mode)',
    });
    expect(() => resolve({}, own.replace('[db]', '[other]'))).toThrow('db');
  });

  it('is one that the user declared', () => {
    expect(resolve({ network: { name: 'db' } }, user).network.value).toEqual({ kind: 'named', name: 'db' });
    expect(() => resolve({ network: { name: 'db' } })).toThrow(
      denied('does not list it', 'built-in', 'allowed_networks'),
    );
    expect(() => resolve({ network: { name: 'other' } }, user)).toThrow(
      denied('does not list it', 'user.yml:1:23', ''),
    );
  });

  it.each(['none', 'default', 'bridge', 'ingress', 'container:x', 'container'])('is never %s', name => {
    expect(() => resolve({ network: { name } }, user)).toThrow(notAvailable('it is not a network of its own', ''));
  });

  it.each(['host', 'HOST'])('is never %s, and what to use instead is said', name => {
    expect(() => resolve({ network: { name } }, user)).toThrow(
      notAvailable(
        'a sandbox never shares the network of this machine.',
        'policy.network: bridge, which needs your consent once: `acode config set sandbox.network.allow_bridge true`',
      ),
    );
    // Who has consented is not asked again.
    const consented = 'sandbox: { network: { allow_bridge: true } }';
    expect(() => resolve({ network: { name } }, consented)).toThrow(
      notAvailable('a sandbox never shares', '(policy.ports: 3000): policy.network: bridge.'),
    );
  });

  it.each(['registry.example', 'registry.npmjs.org', 'a-b.c1.dev'])(
    'is distinguished from a domain such as %s',
    name => {
      expect(() => resolve({ network: { name } }, user)).toThrow(
        notAvailable('it looks like a host', `{ allow: ['${name}'] }`),
      );
      expect(
        resolve({ network: { name } }, `sandbox: { network: { allowed_networks: [${name}] } }`).network,
      ).toMatchObject({
        value: { name },
      });
    },
  );

  it.each(['db.1', 'my_net.x_y'])('may be called %s, which is no domain', name => {
    expect(() => resolve({ network: { name } }, user)).toThrow(denied('does not list it', '', ''));
  });

  it('is in the machine’s list as well', () => {
    const machine = 'sandbox: { network: { allowed_networks: [other] } }';
    expect(() => resolve({ network: { name: 'db' } }, user, machine)).toThrow(
      denied('this machine does not list it', '/etc/acode/policy.yml', ''),
    );
  });
});

describe('a network that is misspelt', () => {
  const wrong = (place: string, meant: string) =>
    expect.objectContaining({
      code: 'ACODE-SBX-013',
      message: expect.stringMatching(new RegExp(`^${place}: .*did you mean ${meant}\\?`)) as string,
    });

  it.each([
    ['sandbox:\n  network:\n    mode: brige\n', 'user.yml:3:5', 'bridge'],
    ['sandbox:\n  network: { mode: non }\n', 'user.yml:2:14', 'none'],
  ])('in a file is reported with its position: %j', (file, place, meant) => {
    expect(() => resolve({}, file)).toThrow(wrong(place, meant));
  });

  it('in a request is reported with a suggestion, and a listed one is not reported', () => {
    expect(() => resolve({ network: { name: 'brige' } })).toThrow(
      denied('does not list it', '', 'Did you mean bridge?'),
    );
    const listed = 'sandbox: { network: { allowed_networks: [brige], mode: brige } }';
    expect(resolve({}, listed).network.value).toEqual({ kind: 'named', name: 'brige' });
    expect(() => resolve({}, 'sandbox: { network: { mode: db } }')).toThrow(
      denied('does not list it', '', 'acode config set --add sandbox.network.allowed_networks db'),
    );
  });
});

describe('name servers and ports', () => {
  it('need a network', () => {
    expect(() => resolve({ dns: ['1.1.1.1'] })).toThrow(invalid('policy.dns: needs a network'));
    expect(() => resolve({ ports: [{ container: 80 }] })).toThrow(invalid('policy.ports: needs a network'));
    for (const asked of [{ dns: ['1.1.1.1'] }, { ports: [{ container: 80 }] }])
      expect(() => resolve(asked)).toThrow(
        expect.objectContaining({
          hint: expect.stringMatching(/policy\.network: bridge.*acode config set sandbox\.network\.allow_bridge true/),
        }),
      );
    expect(() => resolve({ dns: [], ports: [] })).not.toThrow();
    const asked = resolve(
      { network: 'bridge', dns: ['1.1.1.1', '::1'], ports: [{ container: 80, host: 8080 }] },
      CONSENT,
    );
    expect(asked).toMatchObject({
      dns: { value: ['1.1.1.1', '::1'] },
      ports: { value: [{ container: 80, host: 8080 }] },
    });
  });

  it('of a file are for the runs that have one', () => {
    const user = 'sandbox: { network: { allow_bridge: true, dns_servers: [9.9.9.9], ports: [{ container: 80 }] } }';
    expect(resolve({}, user)).toMatchObject({ dns: { value: [] }, ports: { value: [] } });
    expect(resolve({ network: 'bridge' }, user)).toMatchObject({
      dns: { value: ['9.9.9.9'], layer: 'user' },
      ports: { value: [{ container: 80 }], layer: 'user' },
    });
    expect(resolve({ network: 'bridge', dns: [] }, user).dns).toMatchObject({ value: [], layer: 'request' });
  });

  it.each<[string, PolicyFields, string]>([
    ['a name for an address', { dns: ['dns.example.org'] }, '"dns.example.org" is not an IP address'],
    ['an address with a port', { dns: ['1.1.1.1:53'] }, 'not an IP address'],
    ['an option', { dns: ['-x'] }, 'not an IP address'],
    ['four servers', { dns: ['1.1.1.1', '1.1.1.2', '1.1.1.3', '1.1.1.4'] }, 'more than 3'],
    ['a port twice', { ports: [{ container: 80 }, { container: 80, host: 5 }] }, '80/tcp of the sandbox twice'],
    [
      'a host port twice',
      {
        ports: [
          { container: 1, host: 5 },
          { container: 2, host: 5 },
        ],
      },
      '5/tcp of the host twice',
    ],
    ['17 ports', { ports: Array.from({ length: 17 }, (_, n) => ({ container: n + 1 })) }, 'more than 16'],
  ])('are refused for %s', (_, input, part) => {
    expect(() => resolve({ network: 'bridge', ...input }, CONSENT)).toThrow(invalid(part));
  });

  it('may share a number between tcp and udp', () => {
    const ports = [{ container: 53 }, { container: 53, protocol: 'udp' as const }];
    expect(() => resolve({ network: 'bridge', ports }, CONSENT)).not.toThrow();
  });
});

describe('an allow-list of hosts', () => {
  const allow = (...entries: string[]) => ({ network: { allow: entries } });
  const file = (list: string, more = '') => `sandbox: { network: { allow: [${list}]${more} } }`;
  const rules = (...args: Parameters<typeof resolve>) => {
    const { value } = resolve(...args).network;
    return value.kind === 'allow' ? value.rules.map(({ id, setBy }) => `${setBy.layer} ${id}`) : [value.kind];
  };
  const withRepository = (user: string, repository: string, input: PolicyFields = {}, machine?: string) => {
    const loaded = parseConfig(repository, '.agent/config.yml');
    const layer = { ...loaded, root: '/w', file: '.agent/config.yml', hash: 'h', trusted: false };
    return resolvePolicy(input, { ...layers(user, machine), repository: layer }, host).network.value;
  };

  it('is what a person typed, each rule with who set it', () => {
    expect(resolve(allow('a.example', 'tcp:db.example:5432')).network).toMatchObject({
      value: {
        kind: 'allow',
        entries: ['a.example', 'tcp:db.example:5432'],
        rules: [
          { id: 'allow/a.example', host: 'a.example', port: 443, protocol: 'tls', setBy: { layer: 'request' } },
          { id: 'allow/tcp:db.example:5432', host: 'db.example', port: 5432, protocol: 'tcp' },
        ],
      },
      layer: 'request',
    });
    // An empty list allows nothing.
    expect(rules(allow())).toEqual([]);
  });

  it('is the user’s default as soon as their file has one, unless the file or the request says otherwise', () => {
    expect(resolve({}, file('pypi')).network).toMatchObject({
      layer: 'user',
      where: 'user.yml:1:23 (sandbox.network.allow)',
    });
    expect(rules({}, file('pypi'))).toEqual(['user pypi/pypi.org', 'user pypi/files.pythonhosted.org']);
    expect(rules({}, file('pypi', ', mode: none'))).toEqual(['none']);
    expect(rules({}, file('pypi', ', mode: allow'))).toHaveLength(2);
    expect(rules({ network: 'none' }, file('pypi'))).toEqual(['none']);
    expect(rules(allow('a.example'), file('pypi'))).toEqual(['request allow/a.example']);
  });

  it('of a model is in the list of the user’s file, or narrower', () => {
    const model = (...entries: string[]) => ({ ...allow(...entries), askedBy: 'model' as const });
    const own = file("'*.a.example', 'npm:install'");
    expect(rules(model('x.a.example', 'npm:install'), own)).toHaveLength(2);
    for (const entry of ['a.example', 'x.a.example:8443', 'tcp:x.a.example:443', 'registry.npmjs.org', 'pypi'])
      expect(() => resolve(model(entry), own)).toThrow(
        denied('a model may ask only', 'user.yml:1:23', `acode config set --add sandbox.network.allow ${entry}`),
      );
    expect(() => resolve(model('npm:install'))).toThrow(denied('a model may ask only', 'built-in', ''));
    // Whoever lets a host through has not lent a credential for it.
    expect(() => resolve(model('anthropic'), file('api.anthropic.com'))).toThrow(
      denied('a model may ask only', '', ''),
    );
  });

  it('reaches a service of this host only by the user’s own file', () => {
    expect(() => resolve(allow('host:5432'))).toThrow(
      denied('a service of this host', 'built-in', 'acode config set --add sandbox.network.allow host:5432'),
    );
    expect(rules(allow('host:5432'), file('"host:5432"'))).toEqual(['request allow/host:5432']);
    expect(() => resolve(allow('host:5433'), file('"host:5432"'))).toThrow(denied('a service of this host', '', ''));
  });

  it('may have private addresses only by the user’s own file', () => {
    const own = file('a.example', ", private_hosts: ['*.corp.example']");
    const { value } = resolve(allow('db.corp.example', 'a.example', '*.example.org'), own).network;
    expect(value).toMatchObject({ rules: [{ private: true }, { host: 'a.example' }, { host: '*.example.org' }] });
    expect(value.kind === 'allow' && value.rules.filter(rule => rule.private)).toHaveLength(1);
  });

  it('is narrowed by the repository’s file and never widened', () => {
    const narrow = (list: string, user = file("'*.a.example', pypi")) => {
      const value = withRepository(user, file(list));
      return value.kind === 'allow' ? value.rules.map(({ id }) => id) : value.kind;
    };
    expect(narrow("'x.a.example', evil.example")).toEqual(['allow/x.a.example']);
    expect(narrow('pypi.org')).toEqual(['pypi/pypi.org']);
    expect(narrow('evil.example')).toEqual([]);
    expect(narrow('evil.example', '')).toBe('none');
    // What a person typed is theirs; a denial of the repository counts even then.
    expect(withRepository('', file('b.example'), allow('a.example'))).toMatchObject({ rules: [{ host: 'a.example' }] });
    expect(withRepository('', 'sandbox: { network: { deny: [a.example] } }', allow('a.example'))).toMatchObject({
      rules: [{ verdict: 'allow' }, { verdict: 'deny', port: 0, setBy: { layer: 'repository' } }],
    });
  });

  it('is bounded by the machine’s list, which names who set it', () => {
    const machine = file('a.example, b.example');
    expect(rules(allow('a.example'), '', machine)).toEqual(['request allow/a.example']);
    expect(() => resolve(allow('c.example'), '', machine)).toThrow(
      denied('this machine does not list it', '/etc/acode/policy.yml', 'administrator'),
    );
    expect(rules({}, file('a.example, c.example'), machine)).toEqual(['user allow/a.example']);
    expect(rules(allow('a.example'), '', 'sandbox: { network: { deny: ["*.example"] } }')).toEqual([
      'request allow/a.example',
      'machine deny/*.example',
    ]);
  });

  it('keeps the exceptions of the user’s own denials, and only for what is granted', () => {
    const own = "sandbox: { network: { mode: none, allow: [jira.corp.example], deny: ['*.corp.example'] } }";
    const hosts = (entry: string, name: string) => {
      const { value } = resolve(allow(entry), own).network;
      return value.kind === 'allow' && decideHost(value, { host: name, port: 443 }).allowed;
    };
    expect(hosts('jira.corp.example', 'jira.corp.example')).toBe(true);
    expect(hosts('*.corp.example', 'jira.corp.example')).toBe(true);
    expect(hosts('*.corp.example', 'db.corp.example')).toBe(false);
    expect(hosts('db.corp.example', 'db.corp.example')).toBe(false);
    expect(hosts('a.example', 'jira.corp.example')).toBe(false);
  });

  it.each([
    ['https://registry.npmjs.org/x', 'is a URL'],
    ['10.0.0.1', 'is an IP address'],
    ['npm:instal', 'You probably mean npm:install'],
    ['gihub:read', 'You probably mean github:read'],
    ['tcp:db.example', 'has no port'],
    ['localhost', 'acode config set --add sandbox.network.allow host:<port>'],
  ])('refuses %s with what to write instead', (entry, part) => {
    const said = expect.objectContaining({ code: 'ACODE-SBX-017' }) as Error;
    expect(() => resolve(allow(entry))).toThrow(said);
    try {
      resolve(allow(entry));
    } catch (error) {
      expect(error instanceof AcodeError && `${error.message} ${error.hint}`).toContain(part);
    }
    expect(() => resolve({}, file(JSON.stringify(entry)))).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-013', message: expect.stringContaining(part) as string }),
    );
  });

  it('refuses a host beside the preset that limits it', () => {
    expect(() => resolve(allow('npm:install', 'registry.npmjs.org'))).toThrow(invalid('leave one of them out'));
    expect(() => resolve({}, file('npm:install, registry.npmjs.org'))).toThrow('leave one of them out');
    expect(() => resolve(allow('github:read', 'github:push=a/b'))).not.toThrow();
  });

  it('has no name servers and no ports', () => {
    expect(() => resolve({ ...allow('a.example'), ports: [{ container: 80 }] })).toThrow(
      invalid('needs a network of the engine'),
    );
  });

  it('is nothing in air-gapped mode, and that is said', () => {
    const { network, denials } = resolve(allow('npm:install'), 'mode: airgapped');
    expect(network.value).toEqual({ kind: 'none' });
    expect(denials).toMatchObject([{ rule: 'network.air-gapped', effect: { kind: 'request-ignored' } }]);
  });
});

describe('air-gapped mode', () => {
  const everything =
    'sandbox: { network: { allow_bridge: true, allowed_networks: [db], mode: bridge, dns_servers: [1.1.1.1] } }';

  it.each<[string, PolicyFields, string | undefined]>([
    ['a bridge', { network: 'bridge' }, undefined],
    ['a bridge with consent', { network: 'bridge' }, everything],
    ['a named network', { network: { name: 'db' } }, everything],
    ['even host', { network: { name: 'host' } }, undefined],
    ['the user’s default', {}, everything],
    ['ports and servers', { dns: ['1.1.1.1'], ports: [{ container: 80 }] }, undefined],
  ])('beats %s, and says so without ending the run', (_, input, user = '') => {
    for (const [said, setBy] of [
      [layers(`mode: airgapped\n${user}`), 'your configuration, user.yml:1:1 (mode)'],
      [layers(user, 'mode: airgapped'), 'the machine’s policy, /etc/acode/policy.yml:1:1 (mode)'],
      [{ ...layers(user), environmentMode: 'airgapped' as const }, 'the environment, ACODE_MODE'],
    ] as const) {
      const policy = resolvePolicy(input, said, host);
      expect(policy).toMatchObject({ network: { value: { kind: 'none' } }, dns: { value: [] }, ports: { value: [] } });
      expect(policy.denials).toMatchObject([{ rule: 'network.air-gapped', effect: { kind: 'request-ignored' } }]);
      const { setBy: by, remedy, note } = denialParts(policy.denials[0]!);
      expect(by).toBe(setBy);
      expect(remedy).toMatch(/Work without a network; or (?:take|unset|ask)/);
      expect(note).toContain('was asked for by');
    }
  });

  it('denies nothing where nothing was asked for', () => {
    expect(resolve({}, 'mode: airgapped').denials).toEqual([]);
    expect(
      resolve({ network: 'none' }, 'mode: airgapped\nsandbox: { network: { dns_servers: [1.1.1.1] } }').denials,
    ).toEqual([]);
  });
});

describe('the connections of an allow-list', () => {
  it('are limited, below the machine’s limit, and refuses a limit for a network of the engine', () => {
    const file = (text: string) => parseConfig(`sandbox: { network: { ${text} } }`, 'mine.yml');
    const list = { network: { allow: ['a.example'] } };
    const own = file('rate: 2m, max_bytes: 1g, allow_bridge: true');
    const theirs = file('rate: 1m, max_bytes: 2g');
    const repository = { ...theirs, trusted: false, file: 'theirs.yml', hash: '' } as unknown as RepositoryLayer;
    const { machine } = layers('', 'sandbox: { network: { rate: 512k } }');
    const from = (input: PolicyFields, of: Partial<Layers>) => {
      const { networkRate, networkBytes, warnings } = resolvePolicy(input, { ...NO_LAYERS, ...of }, host);
      return [networkRate.value, networkRate.layer, networkBytes.value, networkBytes.layer, warnings.length];
    };
    const [MB, GB] = [1024 ** 2, 1024 ** 3];
    expect(from(list, {})).toEqual([null, 'built-in', null, 'built-in', 0]);
    expect(from(list, { user: own })).toEqual([2 * MB, 'user', GB, 'user', 0]);
    expect(from(list, { user: own, repository })).toEqual([MB, 'repository', GB, 'user', 0]);
    const asked = { ...list, networkLimits: { bytesPerSecond: 4 * MB, bytes: 5 } };
    expect(from(asked, { user: own })).toEqual([4 * MB, 'request', 5, 'request', 0]);
    expect(from(asked, { user: own, machine })).toEqual([512 * 1024, 'machine', 5, 'request', 1]);
    expect(from(list, { machine })).toEqual([512 * 1024, 'machine', null, 'built-in', 0]);
    expect(() => from({ network: 'bridge' }, { user: own })).toThrow(/A limit of traffic .* on the network bridge/);
    expect(from({ network: 'none' }, { user: own })).toEqual([2 * MB, 'user', GB, 'user', 0]);
    expect(() => resolve({ networkLimits: { bytesPerSecond: 1 } })).toThrow(/policy.networkLimits/);
  });

  it('have a budget of requests and tokens only where acode adds a credential to some', () => {
    const credentials = { model: { from: { env: 'KEY' }, hosts: ['a.example'] } };
    const of = (network: PolicyFields['network'], networkLimits?: PolicyFields['networkLimits']) => {
      const { networkRequests, networkTokens } = resolvePolicy({ network, networkLimits }, NO_LAYERS, host);
      return [networkRequests, networkTokens].map(({ value, layer }) => [value, layer]);
    };
    const lent = { allow: ['a.example'], credentials };
    expect(of(lent)).toEqual([
      [null, 'built-in'],
      [null, 'built-in'],
    ]);
    expect(of(lent, { requests: 5, tokens: 7000 })).toEqual([
      [5, 'request'],
      [7000, 'request'],
    ]);
    for (const network of ['none', { allow: ['a.example'] }] as const)
      for (const budget of [{ requests: 5 }, { tokens: 5 }])
        expect(() => of(network, budget)).toThrow(/adds a credential to no request of this network/);
  });

  it('leave through the proxy of a company, from the machine’s file, else the user’s, which has no credential', () => {
    const file = (url: string) => parseConfig(`sandbox: { network: { upstream_proxy: '${url}' } }`, 'mine.yml');
    const { machine } = layers('', 'sandbox: { network: { upstream_proxy: "http://machine:1" } }');
    const from = (of: Partial<Layers>) => resolvePolicy({}, { ...NO_LAYERS, ...of }, host).upstreamProxy;
    expect(from({})).toMatchObject({ value: null, layer: 'built-in' });
    expect(from({ user: file('http://own.example:3128') })).toMatchObject({ value: 'http://own.example:3128' });
    expect(from({ user: file('http://own.example:3128'), machine })).toMatchObject({ value: 'http://machine:1' });
    for (const wrong of [
      'http://me:secret@own.example:3128',
      'https://own.example:3128',
      'own.example:3128',
      'http://own.example:3128/x',
    ])
      expect(() => file(wrong)).toThrow(/http:\/\/host:port/);
  });
});
