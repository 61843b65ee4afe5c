// Server identity: only calls that would come to the same result find a server.

import { describe, expect, it } from 'vitest';
import { LOOK_VARIABLES, READ_VARIABLES, identityOf } from './identity.ts';
import type { IdentityParts } from './identity.ts';

const own = { root: '/a', cwd: '/a', env: { HOME: '/home/me' }, uid: 1000, inherited: 'umask 022' };

describe('the identity of a server', () => {
  it.each<readonly [string, IdentityParts]>([
    ['another workspace', { ...own, root: '/b' }],
    ['another user', { ...own, uid: 1001 }],
    ['another configuration', { ...own, config: 'c.yml' }],
    ['another engine', { ...own, socket: '/s' }],
    ['other groups, limits or another mask', { ...own, inherited: 'umask 077' }],
    ['another mode', { ...own, env: { ...own.env, ACODE_MODE: 'airgapped' } }],
    ...READ_VARIABLES.map(name => [`another ${name}`, { ...own, env: { ...own.env, [name]: 'x' } }] as const),
  ])('is another one with %s', (_what, parts) => {
    expect(identityOf(parts).text).not.toBe(identityOf(own).text);
    expect(identityOf(parts).socketName).not.toBe(identityOf(own).socketName);
  });

  it.each<readonly [string, IdentityParts, IdentityParts]>([
    ['the same file by another name', { ...own, config: '/a/c.yml' }, { ...own, config: 'c.yml' }],
    ...LOOK_VARIABLES.map(name => [`another ${name}`, own, { ...own, env: { ...own.env, [name]: 'x' } }] as const),
    ['a variable that acode does not read', own, { ...own, env: { ...own.env, EDITOR: 'vi' } }],
  ])('is the same with %s', (_what, one, other) => {
    expect(identityOf(other)).toEqual(identityOf(one));
  });
});
