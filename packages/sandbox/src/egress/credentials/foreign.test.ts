// Credentials in requests: where a request can carry one, and that each but the placeholder is seen.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { PlannedCredential } from '../../contract/credentials.ts';
import { carriesForeign, withoutCredentials } from './foreign.ts';

const PLACEHOLDER = 'corp_0123456789abcdefghij';
const planned = (as: PlannedCredential['as']): PlannedCredential => ({ name: 'corp', as, placeholder: PLACEHOLDER });
const bearer = planned('bearer');
const basic = (user: string, password: string): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;

describe('a request to a host that gets a credential', () => {
  it.each([
    ['Authorization', 'Bearer of-the-attacker'],
    ['AUTHORIZATION', 'token of-the-attacker'],
    ['Authorization', basic('me', 'of-the-attacker')],
    ['Authorization', basic('of-the-attacker', '')],
    ['Authorization', basic(PLACEHOLDER, 'of-the-attacker')],
    ['Authorization', `Bearer ${PLACEHOLDER}, Bearer of-the-attacker`],
    ['Authorization', `Bearer ${PLACEHOLDER}x`],
    ['Authorization', 'of-the-attacker'],
    ['Proxy-Authorization', 'Basic eA=='],
    ['X-Api-Key', 'of-the-attacker'],
    ['x-goog-api-key', 'of-the-attacker'],
    ['api-key', 'of-the-attacker'],
    ['Cookie', 'session=of-the-attacker'],
    ['Private-Token', 'of-the-attacker'],
    ['JOB-TOKEN', 'of-the-attacker'],
    ['X-Amz-Security-Token', 'of-the-attacker'],
    ['X-Auth-Token-V2', 'of-the-attacker'],
    ['Ocp-Apim-Subscription-Key', 'of-the-attacker'],
    ['npm-auth', 'of-the-attacker'],
  ])('carries a foreign one in %s: %s', (name, value) => {
    expect(carriesForeign({ target: '/', headers: ['Host', 'corp.example', name, value] }, bearer)).toBe(true);
  });

  it.each([
    '/?key=of-the-attacker',
    '/?a=1&api_key=of-the-attacker',
    '/?a=1;access_token=of-the-attacker',
    '/?API-KEY=of-the-attacker',
    '/?%61pi_key=of-the-attacker',
    '/?api%5Fkey=of-the-attacker',
    '/?auth%5Btoken%5D=of-the-attacker',
    `/?token=${PLACEHOLDER}&token=of-the-attacker`,
    '/?X-Amz-Credential=of-the-attacker',
    '/?sig=of-the-attacker',
    '/?token=%FF',
  ])('carries a foreign one in the query of %s', target => {
    expect(carriesForeign({ target, headers: [] }, bearer)).toBe(true);
  });

  it('carries none with the placeholder, with an empty value, or with names that hold no credential', () => {
    const headers = [
      ...['Authorization', `Bearer ${PLACEHOLDER}`, 'authorization', basic('anybody', PLACEHOLDER)],
      ...['Authorization', basic(PLACEHOLDER, 'x-oauth-basic'), 'X-Api-Key', PLACEHOLDER, 'Cookie', ''],
      ...['Accept', 'application/json', 'anthropic-version', '2023-06-01', 'X-Request-Id', 'k', 'Author', 'me'],
    ];
    const target = `/v1/keys/token?page=2&token=${PLACEHOLDER}&api_key=&monkey=1&keyboard=us`;
    expect(carriesForeign({ target, headers }, bearer)).toBe(false);
  });

  it('knows the header and the key that the credential itself has', () => {
    const own = planned({ header: 'X-Corp' });
    expect(carriesForeign({ target: '/', headers: ['x-corp', 'of-the-attacker'] }, own)).toBe(true);
    expect(carriesForeign({ target: '/', headers: ['x-corp', 'of-the-attacker'] }, bearer)).toBe(false);
    expect(carriesForeign({ target: '/?corp=of-the-attacker', headers: [] }, planned({ query: 'corp' }))).toBe(true);
    expect(carriesForeign({ target: '/?corp=of-the-attacker', headers: [] }, bearer)).toBe(false);
  });

  it('is free of credentials once they were taken out, and the rest of it is what it was', () => {
    const name = fc.constantFrom('Accept', 'Authorization', 'X-Api-Key', 'Cookie', 'If-Match', 'X-Access-Token');
    const pair = fc.tuple(name, fc.string({ unit: 'grapheme-ascii', minLength: 1 }));
    const part = fc.tuple(fc.constantFrom('q', 'key', 'page', 'access_token', 'sig'), fc.webQueryParameters());
    fc.assert(
      fc.property(fc.array(pair), fc.array(part), (pairs, parts) => {
        const query = parts.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join('&');
        const request = { target: query === '' ? '/a' : `/a?${query}`, headers: pairs.flat() };
        const left = withoutCredentials(request, bearer);
        expect(carriesForeign(left, bearer)).toBe(false);
        expect(left.headers).toEqual(pairs.filter(([one]) => ['Accept', 'If-Match'].includes(one)).flat());
        const kept = parts.filter(([key]) => ['q', 'page'].includes(key));
        expect(left.target.split(/[?&]/).slice(1)).toEqual(
          kept.map(([key, value]) => `${key}=${encodeURIComponent(value)}`),
        );
      }),
    );
  });
});
