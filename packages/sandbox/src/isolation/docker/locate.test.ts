// Shows in which order engines are looked for, and that a choice is never replaced.

import { createHash } from 'node:crypto';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { locateEngine, type LocateHost, thisHost } from './connect.ts';

interface Machine {
  readonly env?: Record<string, string>;
  readonly files?: Record<string, string | Error>;
  readonly sockets?: readonly string[];
  readonly uid?: number;
}

function machine({ env = {}, files = {}, sockets = [], uid }: Machine): LocateHost {
  return {
    env,
    homedir: '/home/me',
    uid,
    exists: path => sockets.includes(path),
    readFile: path => {
      const content = files[path];
      if (content instanceof Error) throw content;
      return content;
    },
  };
}

const metaOf = (name: string, directory = '/home/me/.docker') =>
  `${directory}/contexts/meta/${createHash('sha256').update(name).digest('hex')}/meta.json`;
const context = (host?: string) => JSON.stringify({ Name: 'x', Endpoints: { docker: { Host: host } } });
const config = (currentContext?: string) => JSON.stringify({ auths: {}, currentContext });
const configPath = '/home/me/.docker/config.json';
const everywhere = [
  '/var/run/docker.sock',
  '/run/user/7/docker.sock',
  '/home/me/.docker/run/docker.sock',
  '/home/me/.docker/desktop/docker.sock',
  '/run/user/7/podman/podman.sock',
];

describe('known places', () => {
  it('are tried in a fixed order', () => {
    const search = locateEngine(machine({ env: { XDG_RUNTIME_DIR: '/run/user/7' }, sockets: everywhere.toReversed() }));
    expect(search).toEqual({
      kind: 'known-places',
      searched: everywhere,
      candidates: [
        { source: 'system', socket: everywhere[0] },
        { source: 'rootless', socket: everywhere[1] },
        { source: 'desktop', socket: everywhere[2] },
        { source: 'desktop', socket: everywhere[3] },
        { source: 'podman', socket: everywhere[4] },
      ],
    });
  });

  it('are only those that exist, and none is an answer', () => {
    expect(locateEngine(machine({ uid: 7, sockets: [everywhere[4]!] }))).toMatchObject({
      candidates: [{ source: 'podman', socket: everywhere[4] }],
    });
    expect(locateEngine(machine({ uid: 7 }))).toEqual({ kind: 'known-places', candidates: [], searched: everywhere });
  });

  it.each([{ XDG_RUNTIME_DIR: '' }, { XDG_RUNTIME_DIR: 'tmp' }])('do not depend on where we were started (%j)', env => {
    expect(locateEngine(machine({ env, uid: 7 }))).toMatchObject({ searched: everywhere });
    expect(locateEngine(machine({ env }))).toMatchObject({
      searched: everywhere.filter(place => !place.startsWith('/run/user')),
    });
  });

  it.each([
    { env: { DOCKER_HOST: '', DOCKER_CONTEXT: '' } },
    { env: { DOCKER_CONTEXT: 'default' }, files: { [configPath]: config('work') } },
    { files: { [configPath]: config('default') } },
    { files: { [configPath]: config() } },
  ])('are what is left when nothing is chosen (%j)', choice => {
    expect(locateEngine(machine({ ...choice, uid: 7 })).kind).toBe('known-places');
  });
});

describe('a choice', () => {
  const files = {
    [configPath]: config('work'),
    [metaOf('work')]: context('unix:///work.sock'),
    [metaOf('play')]: context('unix:///play.sock'),
    [metaOf('play', '/etc/docker')]: context('unix:///etc.sock'),
  };
  const env = { DOCKER_HOST: 'unix:///host.sock', DOCKER_CONTEXT: 'play', DOCKER_CONFIG: '/etc/docker' };

  it.each<[string, Machine, string | undefined, { socket: string; source: string }]>([
    ['the option over everything', { env, files }, '/mine.sock', { socket: '/mine.sock', source: 'option' }],
    ['an option with a scheme', {}, 'unix:///mine.sock', { socket: '/mine.sock', source: 'option' }],
    ['DOCKER_HOST over contexts', { env, files }, undefined, { socket: '/host.sock', source: 'DOCKER_HOST' }],
    [
      'DOCKER_CONTEXT over the configured one',
      { env: { DOCKER_CONTEXT: 'play' }, files },
      undefined,
      { socket: '/play.sock', source: 'context' },
    ],
    [
      'DOCKER_CONFIG',
      { env: { ...env, DOCKER_HOST: '' }, files },
      undefined,
      { socket: '/etc.sock', source: 'context' },
    ],
    ['the configured context', { files }, undefined, { socket: '/work.sock', source: 'context' }],
  ])('%s is the only candidate, whether it exists or not', (_, given, option, candidate) => {
    const search = locateEngine(machine({ ...given, uid: 7, sockets: everywhere }), option);
    expect(search).toEqual({ kind: 'chosen', candidates: [candidate] });
  });
});

describe('a choice that cannot be followed', () => {
  it.each<[string, Machine, string | undefined, { source: string; reason: string; subject: string }]>([
    [
      'tcp',
      { env: { DOCKER_HOST: 'tcp://1.2.3.4:2375' } },
      undefined,
      { source: 'DOCKER_HOST', reason: 'not-a-unix-socket', subject: 'tcp://1.2.3.4:2375' },
    ],
    [
      'ssh',
      { env: { DOCKER_HOST: 'ssh://host' } },
      undefined,
      { source: 'DOCKER_HOST', reason: 'not-a-unix-socket', subject: 'ssh://host' },
    ],
    [
      'host and port',
      { env: { DOCKER_HOST: '1.2.3.4:2375' } },
      undefined,
      { source: 'DOCKER_HOST', reason: 'not-a-unix-socket', subject: '1.2.3.4:2375' },
    ],
    [
      'a bare path',
      { env: { DOCKER_HOST: '/x.sock' } },
      undefined,
      { source: 'DOCKER_HOST', reason: 'no-scheme', subject: '/x.sock' },
    ],
    [
      'a relative socket',
      { env: { DOCKER_HOST: 'unix://x.sock' } },
      undefined,
      { source: 'DOCKER_HOST', reason: 'not-absolute', subject: 'unix://x.sock' },
    ],
    [
      'no socket',
      { env: { DOCKER_HOST: 'unix://' } },
      undefined,
      { source: 'DOCKER_HOST', reason: 'not-absolute', subject: 'unix://' },
    ],
    ['tcp as an option', {}, 'tcp://h:1', { source: 'option', reason: 'not-a-unix-socket', subject: 'tcp://h:1' }],
    ['a relative option', {}, 'x.sock', { source: 'option', reason: 'not-absolute', subject: 'x.sock' }],
    ['an empty option', {}, '', { source: 'option', reason: 'not-absolute', subject: '' }],
    [
      'a context that is not there',
      { env: { DOCKER_CONTEXT: '../../etc' } },
      undefined,
      { source: 'context', reason: 'context-missing', subject: '../../etc' },
    ],
    [
      'a context over tcp',
      { env: { DOCKER_CONTEXT: 'c' }, files: { [metaOf('c')]: context('tcp://h:1') } },
      undefined,
      { source: 'context', reason: 'not-a-unix-socket', subject: 'tcp://h:1' },
    ],
    [
      'a context without a host',
      { env: { DOCKER_CONTEXT: 'c' }, files: { [metaOf('c')]: context() } },
      undefined,
      { source: 'context', reason: 'not-a-unix-socket', subject: 'c' },
    ],
    [
      'a broken context',
      { env: { DOCKER_CONTEXT: 'c' }, files: { [metaOf('c')]: '{}' } },
      undefined,
      { source: 'context', reason: 'unreadable', subject: metaOf('c') },
    ],
    [
      'a broken configuration',
      { files: { [configPath]: '{' } },
      undefined,
      { source: 'context', reason: 'unreadable', subject: configPath },
    ],
    [
      'a forbidden configuration',
      { files: { [configPath]: new Error('EACCES') } },
      undefined,
      { source: 'context', reason: 'unreadable', subject: configPath },
    ],
  ])('is refused and replaced by nothing: %s', (_, given, option, refusal) => {
    const search = locateEngine(machine({ ...given, uid: 7, sockets: everywhere }), option);
    expect(search).toEqual({ kind: 'refused', refusal });
  });
});

// Shows that an absent file is told apart from one that cannot be read.

const directory = mkdtempSync(join(tmpdir(), 'locate-host-'));
afterAll(() => rm(directory, { recursive: true, force: true }));

describe('thisHost', () => {
  it('reads what is there, says what is not, and throws at the rest', () => {
    const file = join(directory, 'config.json');
    writeFileSync(file, '{}');
    const host = thisHost();
    expect(host.exists(file)).toBe(true);
    expect(host.readFile(file)).toBe('{}');
    expect(host.readFile(join(directory, 'absent'))).toBeUndefined();
    expect(host.readFile(join(file, 'below'))).toBeUndefined();
    expect(() => host.readFile(directory)).toThrow('EISDIR');
  });
});
