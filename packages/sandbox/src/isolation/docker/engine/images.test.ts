// Shows what a pull asks for.

import { describe, expect, it } from 'vitest';
import { authHeaders, splitReference } from './images.ts';

const digest = `sha256:${'a'.repeat(64)}`;

describe('splitReference', () => {
  it.each([
    ['alpine', 'alpine', 'latest'],
    ['alpine:3', 'alpine', '3'],
    ['library/alpine:3.19', 'library/alpine', '3.19'],
    ['127.0.0.1:5000/a/b', '127.0.0.1:5000/a/b', 'latest'],
    ['127.0.0.1:5000/a/b:1', '127.0.0.1:5000/a/b', '1'],
    [`alpine@${digest}`, 'alpine', digest],
    [`127.0.0.1:5000/a:1@${digest}`, '127.0.0.1:5000/a', digest],
  ])('%s', (reference, name, version) => {
    expect(splitReference(reference)).toEqual({ name, version });
  });
});

// Credentials as the engine takes them: whatever their length.

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
