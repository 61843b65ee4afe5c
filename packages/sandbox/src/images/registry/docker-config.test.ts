// The user’s docker configuration: which login counts for which registry, and that nothing of it is ever in an error.

import { describe, expect, it } from 'vitest';
import { UnusableConfig, helpersLogin, loginPlaces, serverOf } from './login.ts';

const basic = (text: string): string => Buffer.from(text).toString('base64');
const places = (config: unknown, registry: string) => loginPlaces(JSON.stringify(config), registry);

describe('what is written in the file', () => {
  it('counts for exactly its registry, by host and port', () => {
    const config = { auths: { 'reg.example:5000': { auth: basic('me:a:b') } } };
    expect(places(config, 'reg.example:5000')).toEqual({
      helper: null,
      written: { username: 'me', password: 'a:b', serveraddress: 'reg.example:5000' },
    });
    for (const other of ['reg.example', 'reg.example:5001', 'evil-reg.example:5000', 'example:5000'])
      expect(places(config, other).written).toBeNull();
  });

  it('may be under an address with scheme and path', () => {
    for (const key of [
      'https://reg.example',
      'https://reg.example/',
      'http://reg.example/v2/',
      'https://REG.example/v1',
    ])
      expect(places({ auths: { [key]: { auth: basic('me:x') } } }, 'reg.example').written).toMatchObject({
        password: 'x',
      });
  });

  it('knows Docker Hub by its old name, and not by what else is kept there', () => {
    const auths = {
      'https://index.docker.io/v1/access-token': { auth: basic('me:wrong') },
      'https://index.docker.io/v1/': { auth: basic('me:right') },
    };
    expect(places({ auths }, 'docker.io').written).toMatchObject({
      password: 'right',
      serveraddress: 'https://index.docker.io/v1/',
    });
  });

  it('may be a token, or a name and a password apart, or nothing that can be used', () => {
    expect(places({ auths: { r: { identitytoken: 't' } } }, 'r').written).toEqual({
      identitytoken: 't',
      serveraddress: 'r',
    });
    expect(places({ auths: { r: { username: 'u', password: 'p' } } }, 'r').written).toMatchObject({ username: 'u' });
    for (const entry of [{}, { auth: '' }, { auth: basic('nocolon') }, { auth: basic(':x') }])
      expect(places({ auths: { r: entry } }, 'r').written).toBeNull();
  });
});

describe('a credential helper', () => {
  it('of the registry itself comes before the one for all', () => {
    const config = { credsStore: 'all', credHelpers: { 'r:1': 'own' } };
    expect(places(config, 'r:1').helper).toBe('own');
    expect(places(config, 'r:2').helper).toBe('all');
    expect(places({}, 'r').helper).toBeNull();
  });

  it.each(['../x', 'a/b', '/bin/sh', '-x', 'a b', 'x'.repeat(80)])('is a plain word and never %j', name => {
    expect(() => places({ credsStore: name }, 'r')).toThrow(UnusableConfig);
  });

  it('answers with a password or a token', () => {
    const answer = (Username: string) => helpersLogin(JSON.stringify({ ServerURL: 'r', Username, Secret: 's' }), 'r');
    expect(answer('me')).toEqual({ username: 'me', password: 's', serveraddress: 'r' });
    expect(answer('<token>')).toEqual({ identitytoken: 's', serveraddress: 'r' });
    for (const text of ['', 'no', '{}', '{"Username":"x","Secret":""}']) expect(helpersLogin(text, 'r')).toBeNull();
  });
});

describe('a file that is no configuration', () => {
  it.each(['', '{', '[]', '"hunter2"', '{"auths":"hunter2"}', '{"auths":{"r":{"auth":17}}}'])(
    'is refused without a word of what is in it: %s',
    text => {
      expect(() => loginPlaces(text, 'r')).toThrow(
        expect.objectContaining({ message: 'is not a docker configuration' }),
      );
    },
  );
});

it('a registry is asked for under the name helpers know it by', () => {
  expect(serverOf('docker.io')).toBe('https://index.docker.io/v1/');
  expect(serverOf('127.0.0.1:5000')).toBe('127.0.0.1:5000');
});
