// Credentials as the engine takes them: whatever their length.

import { describe, expect, it } from 'vitest';
import { authHeaders } from './registry-auth.ts';

describe('the header with credentials', () => {
  it.each(['a', 'ab', 'abc', 'abcd', '~~~???>>>'])('is of whole groups of four for the password %j', password => {
    const { 'X-Registry-Auth': header = '' } = authHeaders({ username: 'me', password });
    expect(header.length % 4).toBe(0);
    expect(header).toMatch(/^[A-Za-z0-9_-]+={0,2}$/);
    expect(JSON.parse(Buffer.from(header, 'base64url').toString())).toEqual({ username: 'me', password });
  });

  it('is filled up for two lengths of three', () => {
    const fills = ['a', 'ab', 'abc'].map(password => authHeaders({ password })['X-Registry-Auth']?.split('=').length);
    expect(new Set(fills)).toEqual(new Set([1, 2, 3]));
  });

  it('is none without credentials', () => {
    expect(authHeaders(undefined)).toEqual({});
  });
});
