// Only who knows the token comes in, and no page that a browser was led to.

import { describe, expect, it } from 'vitest';
import { isToken, turnedAway } from './admission.ts';
import type { Arrival } from './admission.ts';

const TOKEN = 'a-token-that-nobody-can-guess-0123456789';
const WELCOME: Arrival = { path: '/mcp', host: '127.0.0.1:8931', origin: undefined, authorization: `Bearer ${TOKEN}` };

describe('a request', () => {
  it.each([{}, { host: 'localhost:8931' }, { host: 'LOCALHOST:8931' }, { origin: 'http://127.0.0.1:8931' }])(
    'with the token comes in: %o',
    part => {
      expect(turnedAway({ ...WELCOME, ...part }, 8931, TOKEN)).toBeNull();
    },
  );

  it.each([
    [{ host: undefined }, 403],
    [{ host: 'evil.example:8931' }, 403],
    [{ host: '127.0.0.1' }, 403],
    [{ host: '127.0.0.1:8932' }, 403],
    [{ host: '127.0.0.1.evil.example:8931' }, 403],
    [{ origin: 'https://evil.example' }, 403],
    [{ origin: 'http://localhost:3000' }, 403],
    [{ origin: 'null' }, 403],
    [{ authorization: undefined }, 401],
    [{ authorization: '' }, 401],
    [{ authorization: 'Bearer ' }, 401],
    [{ authorization: `Bearer ${TOKEN}x` }, 401],
    [{ authorization: `Bearer ${TOKEN.slice(1)}` }, 401],
    [{ authorization: `Basic ${TOKEN}` }, 401],
    [{ authorization: TOKEN }, 401],
    [{ path: '/' }, 404],
    [{ path: '/mcp/../etc' }, 404],
  ] as const)('with %o is turned away with %i', (part, status) => {
    expect(turnedAway({ ...WELCOME, ...part }, 8931, TOKEN)?.status).toBe(status);
  });

  it('is never let in by an empty token on both sides', () => {
    expect(isToken('Bearer ', '')).toBe(false);
    expect(isToken(undefined, '')).toBe(false);
  });
});
