// Logins behind a proxy: what of a login’s server a sandbox reaches, and what it is answered.

import { describe, expect, it } from 'vitest';
import type { EgressCredential, LoginDefinition } from '../../contract/credentials.ts';
import type { EgressRule } from '../../contract/egress.ts';
import { decideHost, decideRequest } from '../decide.ts';
import { loginRequest, tokenAnswer, tokenRequestKind, withLoginHosts } from './login.ts';
import { plannedCredentials } from './placeholder.ts';

const setBy = { layer: 'user', where: 'config.yml:1' } as const;
const login: LoginDefinition = {
  tokenUrl: 'https://login.corp.example/oauth/token',
  clientId: 'acode',
  revokeUrl: 'https://login.corp.example/oauth/revoke',
  refusedUrls: ['https://models.corp.example/v1/logout'],
};
const credential: EgressCredential = {
  ...{ name: 'corp', hosts: ['models.corp.example'], as: 'bearer', from: { login: 'corp' }, login, setBy },
  placeholder: '*'.repeat(40),
};
const [planned] = plannedCredentials([credential], 'a-sandbox');
const rule = (more: Partial<EgressRule>): EgressRule => ({
  ...{ id: 'allow/x', verdict: 'allow', host: 'x.example', port: 443, protocol: 'tls', mode: 'pass', setBy },
  ...more,
});
const asked = (path: string, host = 'login.corp.example') => ({ host, port: 443, target: path });

describe('the server of a login', () => {
  it('has a rule for tokens and nothing else, unless the list has the host already or denies it', () => {
    const rules = withLoginHosts([rule({})], [credential]);
    const decision = decideHost({ rules }, { host: 'login.corp.example', port: 443, via: 'connect' });
    expect(decision).toMatchObject({ allowed: true, rule: { mode: 'inspect', id: 'login:corp/login.corp.example' } });
    const ask = (method: string, target: string) =>
      decision.allowed &&
      decideRequest(decision.rule, {
        ...{ method, target, host: 'login.corp.example', port: 443 },
        headers: ['Host', 'login.corp.example'],
      }).allowed;
    expect([ask('POST', '/oauth/token'), ask('GET', '/oauth/token'), ask('POST', '/oauth/revoke')]).toEqual([
      true,
      false,
      false,
    ]);
    expect(withLoginHosts([rule({})], [{ ...credential, login: undefined } as never])).toEqual([rule({})]);
    const denied = [rule({ verdict: 'deny', host: 'login.corp.example', port: 0 })];
    expect(withLoginHosts(denied, [credential])).toEqual(denied);
  });

  it('is read from then on where it was passed through, also below a suffix', () => {
    const exact = withLoginHosts([rule({ host: 'login.corp.example' })], [credential]);
    expect(exact).toEqual([rule({ host: 'login.corp.example', mode: 'inspect' })]);
    const suffix = rule({ host: '*.corp.example' });
    expect(withLoginHosts([suffix], [credential])).toEqual([
      suffix,
      { ...suffix, host: 'login.corp.example', mode: 'inspect' },
      { ...suffix, host: 'models.corp.example', mode: 'inspect' },
    ]);
    const known = rule({ host: 'models.corp.example', mode: 'base-url', credential: 'corp' });
    expect(withLoginHosts([known], [credential])[0]).toEqual(known);
  });

  it.each([
    ['/oauth/token', 'refresh'],
    ['/oauth/token?a=b', 'refresh'],
    ['/OAuth/Token/', 'refresh'],
    ['/oauth/tok%65n', 'refresh'],
    ['/oauth//token;a=b', 'refresh'],
    ['/oauth/revoke', 'end'],
    ['/oauth/Revok%45/', 'end'],
    ['/oauth/tokens', undefined],
    ['/oauth', undefined],
  ])('is asked at %s for %s', (path, does) => {
    expect(loginRequest([planned!], asked(path))?.does).toBe(does);
    expect(loginRequest([planned!], asked(path, 'other.example'))).toBeNull();
    expect(loginRequest([planned!], { ...asked(path), port: 8443 })).toBeNull();
    expect(loginRequest(undefined, asked(path))).toBeNull();
  });

  it('refuses what ends it on another host as well', () => {
    expect(loginRequest([planned!], asked('/v1/logout', 'models.corp.example'))?.does).toBe('end');
    expect(loginRequest([planned!], asked('/v1/models', 'models.corp.example'))).toBeNull();
  });
});

describe('a request for tokens', () => {
  const placeholder = planned!.login!.refreshPlaceholder;

  it('is for the placeholder, which is not that of the access token; anything else is foreign or no refresh', () => {
    expect(placeholder).toMatch(/^\w{40}$/);
    expect(placeholder).not.toBe(planned!.placeholder);
    const form = (fields: Record<string, string>): string =>
      tokenRequestKind(String(new URLSearchParams(fields)), 'application/x-www-form-urlencoded', placeholder);
    const jsonKind = (value: unknown): string =>
      tokenRequestKind(JSON.stringify(value), 'application/json; charset=utf-8', placeholder);
    const grant = 'refresh_token';
    expect(form({ grant_type: grant, refresh_token: placeholder })).toBe('refresh');
    expect(jsonKind({ grant_type: grant, refresh_token: placeholder })).toBe('refresh');
    expect(form({ grant_type: grant, refresh_token: 'of-the-attacker' })).toBe('foreign');
    expect(form({ grant_type: grant })).toBe('foreign');
    expect(jsonKind({ grant_type: grant, refresh_token: [placeholder] })).toBe('foreign');
    expect(form({ grant_type: 'authorization_code', code: 'x' })).toBe('other');
    expect([jsonKind(null), jsonKind('x'), tokenRequestKind('{', 'application/json', placeholder)]).toEqual([
      'other',
      'other',
      'other',
    ]);
  });

  it('is answered with placeholders alone', () => {
    expect(JSON.parse(tokenAnswer(planned!, 90_500))).toEqual({
      ...{ access_token: planned!.placeholder, refresh_token: placeholder, token_type: 'Bearer', expires_in: 90 },
    });
    expect(JSON.parse(tokenAnswer(planned!, undefined))).toMatchObject({ expires_in: 3600 });
    expect(JSON.parse(tokenAnswer(planned!, 3))).toMatchObject({ expires_in: 1 });
  });
});
