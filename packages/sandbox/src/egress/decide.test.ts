// The decision of the proxy, by tables of published bypasses and against a second decision that is written in another way.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EgressRule } from '../contract/egress.ts';
import type { Layer } from '../contract/sourced.ts';
import { decideAddress, decideHost, decideRequest } from './decide.ts';
import { hostCovers, hostMatches, parseHost } from './host-name.ts';
import { LAYERS, referenceHost, referencePath, referencePublic } from './reference.test.support.ts';

const FACTOR = Number(process.env['ACODE_PROPERTY_FACTOR'] ?? 1);
const CASES = 5000 * FACTOR;

const rule = (host: string, more: Partial<EgressRule> & { layer?: Layer } = {}): EgressRule => {
  const { layer = 'request', ...rest } = more;
  const { port = 443, verdict = 'allow' } = rest;
  return {
    id: `${verdict}/${host}:${port}`,
    verdict,
    host,
    port,
    protocol: 'tls',
    mode: 'pass',
    setBy: { layer, where: 'there' },
    ...rest,
  };
};

describe('a host name', () => {
  it.each(['registry.npmjs.org', 'a.b', 'xn--bcher-kva.example', 'a-b.c1.dev', 'host', '3com.example'])(
    'is %s',
    name => {
      expect(parseHost(name)).toBe(name);
      expect(parseHost(name.toUpperCase())).toBe(name);
    },
  );

  it.each([
    ['nothing', ''],
    ['a NUL', 'good.example\0.evil.example'],
    ['a carriage return', 'good.example\r\nx'],
    ['a line feed', 'good.example\n'],
    ['a space', 'good.example evil.example'],
    ['a tab', '\tgood.example'],
    ['a dot at its end', 'good.example.'],
    ['an empty label', 'good..example'],
    ['a single label', 'intranet'],
    ['localhost', 'localhost'],
    ['a name below localhost', 'x.localhost'],
    ['an IPv4 address', '127.0.0.1'],
    ['a short IPv4 address', '127.1'],
    ['a hexadecimal address', '0x7f000001'],
    ['a hexadecimal part', '127.0.0.0x1'],
    ['a decimal address', '2130706433'],
    ['an octal address', '0177.0.0.01'],
    ['an IPv6 address', '::1'],
    ['an IPv6 address in brackets', '[::1]'],
    ['brackets twice', '[[::]]'],
    ['a zone id', 'fe80::1%eth0'],
    ['a user', 'user@good.example'],
    ['a port', 'good.example:443'],
    ['a path', 'good.example/x'],
    ['a backslash', 'good.example\\x'],
    ['a percent sign', 'good%2eexample'],
    ['an asterisk', '*.good.example'],
    ['an underscore', '_x.good.example'],
    ['letters beyond ASCII', 'bücher.example'],
    ['the Kelvin sign', '\u212Aelvin.example'],
    ['a full-width dot', 'good\uFF0Eexample'],
    ['a soft hyphen', 'go\u00ADod.example'],
    ['a hyphen at an end', 'good-.example'],
    ['a label of 64 letters', `${'a'.repeat(64)}.example`],
    ['more than 253 letters', `${'a.'.repeat(126)}example`],
  ])('is not %s', (_, text) => {
    expect(parseHost(text)).toBeNull();
  });

  it('below a suffix is one that ends in a dot and the suffix', () => {
    const below = (host: string) => hostMatches('*.github.com', host);
    expect(['api.github.com', 'a.b.github.com'].every(below)).toBe(true);
    expect(['github.com', 'evilgithub.com', 'github.com.evil.example', 'api.github.co'].some(below)).toBe(false);
  });

  it('and a suffix cover each other only from the wider to the narrower', () => {
    expect(hostCovers('*.a.example', 'b.a.example')).toBe(true);
    expect(hostCovers('*.a.example', '*.b.a.example')).toBe(true);
    expect(hostCovers('*.a.example', 'a.example')).toBe(false);
    expect(hostCovers('b.a.example', '*.a.example')).toBe(false);
  });
});

describe('a connection', () => {
  const ask = (rules: EgressRule[], host: string, port = 443, via: 'connect' | 'http' = 'connect') => {
    const decided = decideHost({ rules }, { host, port, via });
    return decided.allowed ? decided.rule.id : decided.reason;
  };

  it('needs a rule: an empty list allows nothing', () => {
    expect(ask([], 'good.example')).toBe('not-listed');
    expect(ask([rule('good.example')], 'good.example')).toBe('allow/good.example:443');
    expect(ask([rule('good.example')], 'GOOD.example')).toBe('allow/good.example:443');
  });

  it('is refused for another host, another port, plain HTTP at a TLS rule, and a port that is none', () => {
    const rules = [rule('good.example'), rule('plain.example', { port: 80, protocol: 'http' })];
    expect(ask(rules, 'evilgood.example')).toBe('not-listed');
    expect(ask(rules, 'good.example', 8443)).toBe('other-port');
    expect(ask(rules, 'good.example', 443, 'http')).toBe('not-tls');
    expect(ask(rules, 'plain.example', 80, 'http')).toBe('allow/plain.example:80');
    for (const port of [0, -1, 1.5, 65_536, Number.NaN]) expect(ask(rules, 'good.example', port)).toBe('bad-host');
  });

  it('follows the most specific rule of a layer: everything but one network, except one host of it', () => {
    const user = { layer: 'user' } as const;
    const rules = [
      rule('*.example', user),
      rule('*.corp.example', { ...user, verdict: 'deny', port: 0 }),
      rule('jira.corp.example', user),
    ];
    expect(ask(rules, 'www.example')).toBe('allow/*.example:443');
    expect(ask(rules, 'db.corp.example')).toBe('denied-by-rule');
    expect(ask(rules, 'jira.corp.example')).toBe('allow/jira.corp.example:443');
    expect(ask([...rules, rule('jira.corp.example', { ...user, verdict: 'deny' })], 'jira.corp.example')).toBe(
      'denied-by-rule',
    );
  });

  it('is denied as soon as one layer denies it', () => {
    for (const layer of ['machine', 'team', 'user', 'repository'] as const) {
      const deny = rule('*.corp.example', { layer, verdict: 'deny', port: 0 });
      const decided = decideHost({ rules: [rule('db.corp.example'), deny] }, { host: 'db.corp.example', port: 443 });
      expect(decided).toEqual({ allowed: false, reason: 'denied-by-rule', rule: deny });
    }
  });
});

describe('an address', () => {
  const open = rule('good.example');
  const may = (address: string, by = open, own: string[] = []) => decideAddress(by, address, own).allowed;

  it.each(['93.184.216.34', '8.8.8.8', '172.15.0.1', '172.32.0.1', '100.63.0.1', '100.128.0.1', '2606:2800:220:1::1'])(
    'is dialled if it is public: %s',
    address => {
      expect(may(address)).toBe(true);
      expect(may(address, open, [address])).toBe(false);
    },
  );

  const PRIVATE = [
    '10.0.0.1',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '100.64.0.1',
    '127.0.0.1',
    '127.9.9.9',
    '::1',
    'fd12::1',
    '198.18.0.1',
    '203.0.113.80',
    '2001:db8::1',
  ];
  it.each(PRIVATE)('is refused if it is private, unless the user’s file names the host: %s', address => {
    expect(may(address)).toBe(false);
    expect(may(address, { ...open, private: true })).toBe(true);
  });

  it.each([
    '0.0.0.0',
    '169.254.169.254',
    '169.254.1.1',
    '100.100.100.200',
    '192.0.0.192',
    '168.63.129.16',
    'fd00:ec2::254',
    'fd00:0ec2:0:0::254',
    'fd20:ce::254',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::ffff:127.0.0.1',
    '::ffff:8.8.8.8',
    '::ffff:7f00:1',
    '::127.0.0.1',
    '64:ff9b::7f00:1',
    '64:ff9b::8.8.8.8',
    '2002:7f00:1::',
    '2001:0:1::1',
    'fe80::1',
    'fe80::1%eth0',
    'fec0::1',
    'ff02::1',
    'not an address',
    '127.1',
    '',
  ])('is always refused: %s', address => {
    expect(may(address)).toBe(false);
    expect(may(address, { ...open, private: true })).toBe(false);
  });

  it('of a service of this host is its loopback, and nothing else', () => {
    const service = rule('host', { port: 5432, protocol: 'tcp' });
    expect([may('127.0.0.1', service), may('::1', service)]).toEqual([true, true]);
    expect(['127.0.0.2', '10.0.0.1', '8.8.8.8', '169.254.169.254'].some(address => may(address, service))).toBe(false);
  });

  it('of this host is refused in every form in which interfaces are listed', () => {
    expect(may('2606:2800:220:1::1', open, ['fe80::1%eth0', '2606:2800:220:1:0:0:0:1'])).toBe(false);
  });
});

describe('a request', () => {
  const base = { method: 'GET', target: '/', host: 'good.example', port: 443, headers: ['Host', 'good.example'] };
  const limited = rule('good.example', {
    mode: 'inspect',
    requests: [
      { methods: ['GET', 'HEAD'], path: '/' },
      { methods: ['POST'], path: '/-/advisories/bulk$' },
      { methods: ['PUT'], path: '/owner/repo/' },
      { methods: ['PATCH'], path: '/*/*/pack$' },
    ],
  });
  const ask = (asked: Partial<typeof base>, by = limited) => {
    const decided = decideRequest(by, { ...base, ...asked });
    return decided.allowed ? 'allowed' : decided.reason;
  };

  it.each([
    ['GET', '/anything?x=/../%2e'],
    ['HEAD', '/a'],
    ['GET', '/@scope%2fname'],
    ['POST', '/-/advisories/bulk'],
    ['POST', '/-/advisories/bulk?x'],
    ['PUT', '/owner/repo/'],
    ['PUT', '/owner/repo/deep/file'],
    ['PATCH', '/a/b/pack'],
  ])('is allowed by its rule: %s %s', (method, target) => {
    expect(ask({ method, target })).toBe('allowed');
  });

  it.each([
    ['DELETE', '/', 'method'],
    ['get', '/', 'method'],
    ['CONNECT', '/', 'method'],
    ['TRACE', '/', 'method'],
    ['PRI', '/', 'method'],
    ['POST', '/package', 'path'],
    ['POST', '/-/advisories/bulk/x', 'path'],
    ['POST', '/-/advisories', 'path'],
    ['PUT', '/owner/repo', 'path'],
    ['PUT', '/owner/repository/x', 'path'],
    ['PUT', '/owner/other/x', 'path'],
    ['PUT', '/owner/repo/../other/x', 'path'],
    ['PUT', '/owner/repo/..;/other', 'path'],
    ['PUT', '/owner/repo/%2e%2e/other', 'path'],
    ['PUT', '/owner/repo/.%2E/other', 'path'],
    ['PUT', '/owner/repo/..%2fother', 'path'],
    ['PUT', '/owner/repo/%252e', 'path'],
    ['PUT', '/owner/repo//x', 'path'],
    ['PUT', '/owner/repo/%5c..%5cx', 'path'],
    ['PUT', '/owner/repo/\\..\\x', 'path'],
    ['PUT', '/owner/repo/%00', 'path'],
    ['PUT', '/owner/repo/%zz', 'path'],
    ['PUT', '/owner/repo/#x', 'path'],
    ['PATCH', '/a/pack', 'path'],
    ['PATCH', '/a//pack', 'path'],
    ['PATCH', '/a/b/c/pack', 'path'],
    ['GET', '/a/../b', 'path'],
    ['GET', '*', 'path'],
    ['GET', 'http://other.example/', 'path'],
    ['GET', '//other.example/', 'path'],
    ['GET', '/a b', 'path'],
    ['GET', '/ü', 'path'],
    ['GET', '', 'path'],
  ])('is refused by its rule: %s %s', (method, target, reason) => {
    expect(ask({ method, target })).toBe(reason);
  });

  it.each([
    ['no Host', [], 'host-differs'],
    ['another Host', ['host', 'other.example'], 'host-differs'],
    ['a Host with another port', ['host', 'good.example:8443'], 'host-differs'],
    ['two', ['host', 'good.example', 'Host', 'good.example'], 'bad-request'],
    ['two lengths', ['host', 'good.example', 'content-length', '1', 'Content-Length', '1'], 'bad-request'],
    [
      'a length and chunks',
      ['host', 'good.example', 'content-length', '1', 'transfer-encoding', 'chunked'],
      'bad-request',
    ],
    ['a signed length', ['host', 'good.example', 'content-length', '+1'], 'bad-request'],
    ['a list of lengths', ['host', 'good.example', 'content-length', '1, 1'], 'bad-request'],
    ['another coding', ['host', 'good.example', 'transfer-encoding', 'gzip, chunked'], 'bad-request'],
    ['a line end in a value', ['host', 'good.example', 'x', 'a\r\nb: c'], 'bad-request'],
    ['a space in a name', ['host', 'good.example', 'x ', 'a'], 'bad-request'],
    ['h2c', ['host', 'good.example', 'connection', 'Upgrade, HTTP2-Settings', 'upgrade', 'h2c'], 'upgrade'],
    ['settings of HTTP/2', ['host', 'good.example', 'http2-settings', 'x'], 'upgrade'],
    ['an upgrade without a name', ['host', 'good.example', 'connection', 'keep-alive, upgrade'], 'upgrade'],
    ['a WebSocket', ['host', 'good.example', 'connection', 'Upgrade', 'upgrade', 'websocket'], 'upgrade'],
  ])('with %s is refused', (_, headers, reason) => {
    expect(ask({ headers })).toBe(reason);
  });

  it('may have one length or chunks, and a Host with the port of the connection', () => {
    const host = ['Host', 'GOOD.example:443'];
    expect(ask({ headers: [...host, 'content-length', '12'] })).toBe('allowed');
    expect(ask({ headers: [...host, 'Transfer-Encoding', 'Chunked'] })).toBe('allowed');
    expect(ask({ port: 8443, headers: ['host', 'good.example:8443'] })).toBe('allowed');
    expect(ask({ port: 8443, headers: ['host', 'good.example'] })).toBe('host-differs');
  });

  it('becomes a WebSocket where a rule says so, and nothing else', () => {
    const sockets = { ...limited, websocket: true };
    const headers = ['host', 'good.example', 'connection', 'keep-alive, Upgrade', 'upgrade', 'WebSocket'];
    expect(ask({ headers }, sockets)).toBe('allowed');
    expect(ask({ headers, method: 'PUT', target: '/owner/repo/' }, sockets)).toBe('upgrade');
    expect(ask({ headers: headers.map(text => text.replace('WebSocket', 'h2c')) }, sockets)).toBe('upgrade');
  });

  it('may be any where the rule names none, but never a tunnel', () => {
    const any = rule('good.example', { mode: 'inspect' });
    expect(ask({ method: 'DELETE', target: '/x%2fy' }, any)).toBe('allowed');
    expect(ask({ method: 'CONNECT' }, any)).toBe('method');
    expect(ask({ target: '/../x' }, any)).toBe('path');
  });
});

const names = ['example', 'a.example', 'b.a.example', 'c.b.a.example', 'xa.example', 'other.test', 'host'];
const anyRule = fc
  .record({
    host: fc.constantFrom(
      ...names.filter(name => name.includes('.') || name === 'host'),
      '*.example',
      '*.a.example',
      '*.b.a.example',
    ),
    port: fc.constantFrom(0, 80, 443),
    verdict: fc.constantFrom('allow', 'deny'),
    layer: fc.constantFrom(...LAYERS),
  })
  .map(({ host, port, verdict, layer }) =>
    rule(host, { verdict, layer, port: verdict === 'allow' && port === 0 ? 443 : port }),
  );
const anyHost = fc.oneof(
  fc.constantFrom(...names, 'A.Example', 'a.example.', '127.0.0.1', '127.1', 'a..example', '.a.example', 'localhost'),
  fc.string({ unit: 'binary', maxLength: 20 }).map(text => `${text}a.example`),
  fc.string({ unit: fc.constantFrom('a', '.', '-', '0', 'x', '\0', ' ', 'é', ':'), maxLength: 12 }),
);

describe('both decisions agree', () => {
  it('about hosts and ports, in any mixture of layers', () => {
    let allowed = 0;
    fc.assert(
      fc.property(fc.array(anyRule, { maxLength: 8 }), anyHost, fc.constantFrom(80, 443, 8443), (rules, host, port) => {
        const decided = decideHost({ rules }, { host, port }).allowed ? 'allowed' : 'denied';
        if (decided === 'allowed') allowed += 1;
        expect(decided).toBe(referenceHost(rules, host, port));
      }),
      { numRuns: CASES },
    );
    expect(allowed).toBeGreaterThan(CASES / 100);
  });

  it('about addresses', () => {
    let allowed = 0;
    const four = fc.oneof(
      fc.ipV4(),
      fc
        .tuple(
          fc.constantFrom(0, 10, 100, 127, 168, 169, 172, 192, 198, 203, 224, 8),
          fc.constantFrom(0, 16, 31, 32, 51, 63, 64, 100, 127, 128, 168, 254),
          fc.nat(255),
          fc.nat(255),
        )
        .map(parts => parts.join('.')),
    );
    const six = fc.oneof(
      fc.ipV6(),
      fc
        .tuple(
          fc.constantFrom('::ffff:', '64:ff9b::', '::', '2002:', 'fe80::', 'fd00::', '2001:db8::', '2606::', '3fff::'),
          four,
        )
        .map(([prefix, address]) =>
          prefix === '2002:' ? `2002:${address.split('.').length}::` : `${prefix}${address}`,
        ),
    );
    fc.assert(
      fc.property(fc.oneof(four, six, fc.string({ maxLength: 8 })), address => {
        const decided = decideAddress(rule('a.example'), address, []).allowed;
        if (decided) allowed += 1;
        expect(decided).toBe(referencePublic(address));
      }),
      { numRuns: CASES },
    );
    expect(allowed).toBeGreaterThan(CASES / 100);
  });

  it('about methods and paths', () => {
    let allowed = 0;
    const piece = fc.constantFrom(
      '/',
      'a',
      'b',
      '..',
      '.',
      '%2f',
      '%2e',
      '%25',
      '%5C',
      '%00',
      ';',
      '?',
      '#',
      '\\',
      'pack',
      ' ',
      '%g',
      'é',
    );
    const requests = fc.array(
      fc.record({
        methods: fc.subarray(['GET', 'POST', 'PUT'], { minLength: 1 }),
        path: fc.constantFrom('/', '/a', '/a/', '/a/b$', '/*/b/', '/*/*/pack$', '/a/b/'),
      }),
      { minLength: 1, maxLength: 3 },
    );
    fc.assert(
      fc.property(
        requests,
        fc.constantFrom('GET', 'POST', 'DELETE'),
        fc.array(piece, { maxLength: 8 }),
        (list, method, parts) => {
          const target = `/${parts.join('')}`;
          const asked = { method, target, host: 'a.example', port: 443, headers: ['host', 'a.example'] };
          const decided = decideRequest(rule('a.example', { mode: 'inspect', requests: list }), asked).allowed;
          if (decided) allowed += 1;
          expect(decided).toBe(referencePath(list, method, target));
        },
      ),
      { numRuns: CASES },
    );
    expect(allowed).toBeGreaterThan(CASES / 100);
  });
});
