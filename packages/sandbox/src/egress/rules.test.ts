// Rules of an allow-list: what entries and presets stand for, and which rule is narrower.

import { describe, expect, it } from 'vitest';
import type { EgressRule } from '../contract/egress.ts';
import { decideHost, decideRequest } from './decide.ts';
import { PRESETS, presetOf } from './presets.ts';
import { publicSuffixIn } from './public-suffix.ts';
import { conflictIn, covers, entryFault, narrowed, rulesOf } from './rules.ts';

const REQUEST = { layer: 'request', where: 'policy.network' } as const;
const allow = (...entries: string[]) => rulesOf(entries, 'allow', REQUEST);
const deny = (...entries: string[]) => rulesOf(entries, 'deny', REQUEST);
const first = (entry: string): EgressRule => allow(entry)[0]!;

describe('an entry', () => {
  it.each([
    ['a.example', 'a.example', 443, 'tls', 'allow/a.example'],
    ['A.Example', 'a.example', 443, 'tls', 'allow/a.example'],
    ['a.example:8443', 'a.example', 8443, 'tls', 'allow/a.example:8443'],
    ['tls:a.example', 'a.example', 443, 'tls', 'allow/a.example'],
    ['*.a.example', '*.a.example', 443, 'tls', 'allow/*.a.example'],
    ['tcp:db.example:5432', 'db.example', 5432, 'tcp', 'allow/tcp:db.example:5432'],
    ['http:a.example', 'a.example', 80, 'http', 'allow/http:a.example:80'],
    ['host:5432', 'host', 5432, 'tcp', 'allow/host:5432'],
  ])('%s is one rule', (entry, host, port, protocol, id) => {
    expect(allow(entry)).toEqual([{ id, verdict: 'allow', host, port, protocol, mode: 'pass', setBy: REQUEST }]);
    expect(entryFault(entry)).toBeNull();
  });

  it.each([
    ['', 'neither'],
    ['intranet', 'neither'],
    ['127.0.0.1', 'the sandbox itself'],
    ['127.1', 'the sandbox itself'],
    ['0x7f000001', 'IP address'],
    ['[::1]', 'the sandbox itself'],
    ['::1', 'IP address'],
    ['fe80::1%eth0', 'IP address'],
    ['npm:instal', 'neither a preset nor'],
    ['https://a.example/', 'URL'],
    ['a.example/x', 'path'],
    ['a.example:0', 'port'],
    ['a.example:65536', 'port'],
    ['a.example:99999', 'port'],
    ['tcp:a.example', 'port'],
    ['a.example.', 'dot'],
    ['bücher.example', 'signs'],
    ['a.example\0', 'signs'],
    ['a.example b', 'white space'],
    ['a.example;b.example', 'semicolon'],
    ['é.example', 'signs'],
    ['*', 'allow every host'],
    ['*.com', 'top-level'],
    ['a.*.example', '* elsewhere'],
    ['*a.example', '* elsewhere'],
    ['host', 'without a port'],
    ['host:2375', 'engine’s API'],
    ['host:2376', 'engine’s API'],
    ['localhost:80', 'the sandbox itself'],
    ['github:push', 'needs a repository'],
    ['github:push=a', 'needs a repository'],
    ['github:push=a/..', 'needs a repository'],
    ['github:push=a/b/c', 'needs a repository'],
    ['npm:install=x', 'takes no value'],
    ['git:a.example', 'names no repository'],
    ['git:a.example/', 'names no repository'],
    ['git:a.example//srv/b', 'names no repository'],
    ['git:a.example/a/../b', 'names no repository'],
    ['git:a.example/a/%2e%2e/b', 'names no repository'],
    ['git:a.example/a/b?c', 'names no repository'],
    ['git:a.example/*', 'names no repository'],
    ['git:me@a.example/a/b', 'names no repository'],
    ['git:*.a.example/a/b', 'names no repository'],
    ['git:10.0.0.1/a/b', 'IP address'],
    ['git:host/a/b', 'neither'],
    ['git:a.example:0/a/b', 'port'],
    ['a'.repeat(301), 'too long'],
  ])('is not %j', (entry, part) => {
    const fault = entryFault(entry);
    expect(fault?.reason).toContain(part);
    expect(fault?.remedy).toMatch(/^[A-Z`].*[^.]$/);
    expect(() => allow(entry)).toThrow('an entry of an allow-list');
  });

  it('that denies means every port, unless it names one', () => {
    expect(deny('a.example', 'b.example:22', 'npm:install', '*.zip')).toMatchObject([
      { id: 'deny/a.example', verdict: 'deny', port: 0 },
      { id: 'deny/b.example:22', port: 22 },
      { id: 'deny/registry.npmjs.org', port: 0 },
      { id: 'deny/*.zip', port: 0 },
    ]);
  });

  it('below a public suffix is found, where anybody can register', () => {
    for (const open of ['*.co.uk', '*.github.io', '*.s3.amazonaws.com'])
      expect(publicSuffixIn(allow('*.a.example', open))?.host).toBe(open);
    expect(publicSuffixIn(allow('*.a.example', '*.x.co.uk', 'github.io'))).toBeNull();
    expect(publicSuffixIn(deny('*.co.uk'))).toBeNull();
  });
});

describe('a rule', () => {
  it.each<[string, string, boolean]>([
    ['a.example', 'a.example', true],
    ['*.a.example', 'b.a.example', true],
    ['*.a.example', '*.b.a.example', true],
    ['b.a.example', '*.a.example', false],
    ['a.example', 'a.example:8443', false],
    ['tcp:a.example:443', 'a.example', false],
    ['registry.npmjs.org', 'npm:install', true],
    ['npm:install', 'registry.npmjs.org', false],
    ['github:read', 'github:push=a/b', false],
    ['api.openai.com', 'openai', false],
    ['git:a.example/b/c:push', 'git:a.example/b/c', true],
    ['git:a.example/b/c', 'git:a.example/b/c:push', false],
    ['git:a.example/b/c', 'git:a.example/b/d', false],
    ['a.example', 'git:a.example/b/c', true],
    ['git:a.example/b/c', 'a.example', false],
    ['openai', 'openai', true],
  ])('for %s covers %s: %s', (wider, narrower, is) => {
    expect(covers(first(wider), first(narrower))).toBe(is);
  });

  it('for a repository over HTTPS allows what git asks for there, and nothing else of the host', () => {
    const entries = ['git:a.example/b/c', 'git:A.example:443/d/e.git:push', 'git:a.example:8443/~f/g'];
    const [rule, other] = allow(...entries);
    expect(allow(...entries).map(({ id, port, mode }) => [id, port, mode])).toEqual([
      ['allow/git:a.example/b/c+allow/git:a.example/d/e:push', 443, 'inspect'],
      ['allow/git:a.example:8443/~f/g', 8443, 'inspect'],
    ]);
    const may = (method: string, target: string): boolean =>
      decideRequest(rule!, { method, target, host: 'a.example', port: 443, headers: ['host', 'a.example'] }).allowed;
    for (const [method, target, is] of [
      ['GET', '/b/c/info/refs?service=git-upload-pack', true],
      ['GET', '/b/c.git/info/refs?service=git-upload-pack', true],
      ['POST', '/b/c.git/git-upload-pack', true],
      ['POST', '/b/c.git/git-receive-pack', false],
      ['POST', '/d/e/git-receive-pack', true],
      ['POST', '/b/d/git-upload-pack', false],
      ['POST', '/b/c/x/git-upload-pack', false],
      ['GET', '/b/c', false],
      ['GET', '/b/c.git/info/lfs/objects/batch', false],
      ['GET', '/b/c/../d/info/refs', false],
      ['GET', '/b%2fc/info/refs', false],
      ['PUT', '/b/c/info/refs', false],
    ] as const)
      expect([method, target, may(method, target)]).toEqual([method, target, is]);
    expect(other?.port).toBe(8443);
    expect(entryFault('git:a.example/b/c', 'deny')?.reason).toContain('repository');
    expect(conflictIn(allow('git:a.example/b/c', 'a.example'))).not.toBeNull();
    expect(allow('git:github.com/b/c', 'github:push=d/e')).toMatchObject([{ credential: 'github' }]);
  });

  it('of two lists is the narrower of each two', () => {
    const both = narrowed(allow('*.a.example', 'b.test', 'c.test'), allow('b.a.example', 'b.test', 'd.test'));
    expect(both.map(({ host }) => host)).toEqual(['b.a.example', 'b.test']);
  });

  it('for a host that a preset limits is a conflict', () => {
    expect(conflictIn(allow('npm:install', 'registry.npmjs.org'))?.map(({ mode }) => mode)).toEqual([
      'inspect',
      'pass',
    ]);
    expect(conflictIn(allow('npm:install', 'a.example', 'a.example:8443'))).toBeNull();
  });
});

describe('a preset', () => {
  const ask = (entries: string[], host: string, method: string, target: string) => {
    const decided = decideHost({ rules: allow(...entries) }, { host, port: 443 });
    if (!decided.allowed) return decided.reason;
    const request = decideRequest(decided.rule, { method, target, host, port: 443, headers: ['host', host] });
    return request.allowed ? (request.credential ?? 'allowed') : request.reason;
  };

  it('says what it is for and what it does not prevent', () => {
    for (const { name, title, risk, hosts } of PRESETS) {
      expect([name, title.length > 20, risk.endsWith('.'), hosts.length > 0]).toEqual([name, true, true, true]);
      for (const host of hosts) expect(host.mode === 'inspect' || host.credential === undefined).toBe(true);
    }
    expect(presetOf('npm')).toBeNull();
  });

  it.each([
    ['npm:install', 'registry.npmjs.org', 'GET', '/@types%2fnode', 'allowed'],
    ['npm:install', 'registry.npmjs.org', 'POST', '/-/npm/v1/security/advisories/bulk', 'allowed'],
    ['npm:install', 'registry.npmjs.org', 'PUT', '/my-package', 'method'],
    ['npm:install', 'registry.npmjs.org', 'POST', '/-/v1/login', 'path'],
    ['npm:install', 'registry.npmjs.org', 'DELETE', '/-/package/x/dist-tags/latest', 'method'],
    ['github:read', 'github.com', 'GET', '/a/b/info/refs?service=git-upload-pack', 'allowed'],
    ['github:read', 'github.com', 'POST', '/a/b.git/git-upload-pack', 'allowed'],
    ['github:read', 'github.com', 'POST', '/a/b.git/git-receive-pack', 'path'],
    ['github:read', 'github.com', 'POST', '/session', 'path'],
    ['github:read', 'api.github.com', 'GET', '/repos/a/b', 'allowed'],
    ['github:read', 'api.github.com', 'POST', '/gists', 'method'],
    ['github:read', 'api.github.com', 'POST', '/graphql', 'method'],
    ['github:read', 'gist.github.com', 'GET', '/', 'not-listed'],
    ['github:push=a/b', 'github.com', 'POST', '/a/b.git/git-receive-pack', 'github'],
    ['github:push=a/b', 'github.com', 'POST', '/a/b/git-receive-pack', 'github'],
    ['github:push=a/b', 'github.com', 'POST', '/a/c.git/git-receive-pack', 'path'],
    ['github:push=a/b', 'github.com', 'POST', '/a/b.git/../c.git/git-receive-pack', 'path'],
    ['github:push=a/b', 'github.com', 'GET', '/a/c/info/refs?service=git-upload-pack', 'path'],
    ['anthropic', 'api.anthropic.com', 'POST', '/v1/messages', 'anthropic'],
    ['anthropic', 'api.anthropic.com', 'POST', '/v1/files', 'path'],
    ['openai', 'api.openai.com', 'POST', '/v1/files', 'path'],
    ['openai', 'api.openai.com', 'POST', '/v1/responses', 'openai'],
    [
      'google-ai',
      'generativelanguage.googleapis.com',
      'POST',
      '/v1beta/models/gemini-pro:generateContent',
      'google-ai',
    ],
    ['google-ai', 'generativelanguage.googleapis.com', 'POST', '/upload/v1beta/files', 'path'],
    ['pypi', 'upload.pypi.org', 'POST', '/legacy/', 'not-listed'],
    ['crates', 'crates.io', 'PUT', '/api/v1/crates/new', 'not-listed'],
  ])('%s: %s %s %s is %s', (entry, host, method, target, outcome) => {
    expect(ask([entry], host, method, target)).toBe(outcome);
  });

  it('beside another of the same host adds up, and lends it no credential', () => {
    const both = ['github:read', 'github:push=a/b'];
    expect(ask(both, 'github.com', 'GET', '/other/private')).toBe('allowed');
    expect(ask(both, 'github.com', 'POST', '/other/private/git-upload-pack')).toBe('allowed');
    expect(ask(both, 'github.com', 'POST', '/a/b/git-receive-pack')).toBe('github');
    expect(ask(both, 'github.com', 'POST', '/other/private/git-receive-pack')).toBe('path');
    expect(allow(...both).filter(({ host }) => host === 'github.com')).toHaveLength(1);
  });
});
