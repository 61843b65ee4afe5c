// Services of a policy: by the request, else by the user or a repository that the user trusted; and what none can be.

import { describe, expect, it } from 'vitest';
import { parseConfig } from './config/parse.ts';
import type { PolicyFields } from '../contract/policy.ts';
import { NO_LAYERS } from './layers.ts';
import type { Layers } from './layers.ts';
import { resolvePolicy } from './resolve.ts';
import { MAX_SERVICES } from './services.ts';

const layers = (user = '', repository?: string, trusted = false): Layers => ({
  ...NO_LAYERS,
  user: parseConfig(user === '' ? '' : `sandbox: { services: ${user} }`, 'user.yml'),
  repository:
    repository === undefined
      ? null
      : {
          ...parseConfig(`sandbox: { services: ${repository} }`, '.agent/config.yml'),
          root: '/repo',
          file: '/repo/.agent/config.yml',
          hash: 'sha256:x',
          trusted,
        },
});
const services = (request?: PolicyFields['services'], said = NO_LAYERS) =>
  resolvePolicy({ services: request }, said, { caller: { uid: 1001, gid: 1001 }, cpus: 2 }).services;
const names = (...of: Parameters<typeof services>): string[] => services(...of).value.map(({ name }) => name);

const DB = {
  name: 'db',
  image: 'postgres:16',
  port: null,
  env: {},
  command: null,
  user: null,
  memoryBytes: null,
  writable: [],
  readyMs: 60_000,
};

describe('the services of a command', () => {
  it('are none unless somebody names one', () => {
    expect(services()).toEqual({ value: [], layer: 'built-in', where: 'default' });
  });

  it('have the same values from a request and from a file', () => {
    const request = {
      image: 'acme/db:2',
      port: 5432,
      env: { PASSWORD: 'test' },
      command: ['--fast'],
      user: '999:998' as const,
      memoryBytes: 256 * 1024 ** 2,
      writable: ['/var/lib/db'],
      readyMs: 90_000,
    };
    const file =
      '{ db: { image: acme/db:2, port: 5432, env: { PASSWORD: test }, command: [--fast], user: "999:998", memory_mb: 256m, writable: [/var/lib/db], ready_seconds: 1m30s } }';
    const expected = [{ ...DB, ...request, user: { uid: 999, gid: 998 } }];
    expect(services({ db: request })).toEqual({ value: expected, layer: 'request', where: 'policy.services' });
    expect(services(undefined, layers(file))).toMatchObject({ value: expected, layer: 'user' });
    expect(services({ db: 'postgres:16' }).value).toEqual([DB]);
    expect(services(undefined, layers('{ db: "postgres:16" }')).value).toEqual([DB]);
  });

  it('are those of the request alone, or none', () => {
    const said = layers('{ cache: "redis:7" }');
    expect(names(undefined, said)).toEqual(['cache']);
    expect(names({ db: 'postgres:16' }, said)).toEqual(['db']);
    expect(names({}, said)).toEqual([]);
  });

  it('are those of a repository only once the user trusted its file', () => {
    expect(names(undefined, layers('', '{ db: "postgres:16" }', true))).toEqual(['db']);
    expect(() => services(undefined, layers('', '{ db: "postgres:16" }'))).toThrow(
      expect.objectContaining({
        code: 'ACODE-SBX-020',
        context: expect.objectContaining({ key: 'sandbox.services' }),
      }),
    );
    // The control: what names none loosens nothing.
    expect(names(undefined, layers('{ cache: "redis:7" }', '{}'))).toEqual([]);
  });

  it.each<[string, PolicyFields['services'], string]>([
    ['a name that is none', { 'no name': 'x' }, 'ACODE-SBX-017'],
    ['a name that every sandbox has', { localhost: 'x' }, 'ACODE-SBX-017'],
    ['a host’s name', { 'db.example': 'x' }, 'ACODE-SBX-017'],
    ['root', { db: { image: 'x', user: '0:0' } }, 'ACODE-SBX-017'],
    ['the group of root', { db: { image: 'x', user: '999:0' } }, 'ACODE-SBX-017'],
    ['a directory with options', { db: { image: 'x', writable: ['/data:exec'] } }, 'ACODE-SBX-017'],
    ['a directory above itself', { db: { image: 'x', writable: ['/data/../proc'] } }, 'ACODE-SBX-017'],
    ['the whole file system', { db: { image: 'x', writable: ['/'] } }, 'ACODE-SBX-017'],
    ['a variable that loads code', { db: { image: 'x', env: { LD_PRELOAD: '/x.so' } } }, 'ACODE-SBX-010'],
    ['a port that is none', { db: { image: 'x', port: 0 } }, 'ACODE-SBX-017'],
    [
      'too many',
      Object.fromEntries(Array.from({ length: MAX_SERVICES + 1 }, (_, number) => [`db${number}`, 'x'])),
      'ACODE-SBX-017',
    ],
  ])('are refused with %s', (_, asked, code) => {
    expect(() => services(asked)).toThrow(expect.objectContaining({ code }));
  });
});
