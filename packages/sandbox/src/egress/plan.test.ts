// The plan of a proxy: which names have an address inside.

import { describe, expect, it } from 'vitest';
import type { EgressRule } from '../contract/egress.ts';
import { EGRESS_LIMITS, limitsOf, loopbackAddress, planOf, upstreamOf } from './plan.ts';

const rule = (host: string, port = 443, verdict: 'allow' | 'deny' = 'allow'): EgressRule => ({
  id: `${verdict}/${host}:${port}`,
  verdict,
  host,
  port,
  protocol: 'tls',
  mode: 'pass',
  setBy: { layer: 'request', where: 'policy.network' },
});

describe('a plan', () => {
  it('gives each exact name one address inside, with all its ports', () => {
    const plan = planOf([rule('a.example', 8443), rule('*.b.example'), rule('host', 5432), rule('a.example')]);
    expect(plan).toMatchObject({ generation: 1, limits: EGRESS_LIMITS });
    expect(plan.names).toEqual([
      { host: 'a.example', address: '127.8.0.1', ports: [443, 8443] },
      { host: 'host', address: '127.8.0.2', ports: [5432] },
    ]);
  });

  it('gives a name that is only denied no address', () => {
    expect(planOf([rule('a.example', 0, 'deny')]).names).toEqual([]);
  });

  it('has addresses for more than 255 names', () => {
    expect([loopbackAddress(1), loopbackAddress(255), loopbackAddress(256)]).toEqual([
      '127.8.0.1',
      '127.8.0.255',
      '127.8.1.0',
    ]);
  });

  it('has the limits and the proxy of its policy', () => {
    const of = <Value>(value: Value) => ({ value, layer: 'user', where: 'c.yml:1:1' }) as const;
    const none = of<number | null>(null);
    const limits = (some: Partial<Parameters<typeof limitsOf>[0]>) =>
      limitsOf({ ...{ networkRate: none, networkBytes: none, networkRequests: none, networkTokens: none }, ...some });
    expect(limits({})).toEqual(EGRESS_LIMITS);
    expect(limits({ networkRate: of(1024) })).toEqual({ ...EGRESS_LIMITS, bytesPerSecond: 1024 });
    expect(limits({ networkBytes: of(5) })).toEqual({ ...EGRESS_LIMITS, bytes: 5 });
    expect(limits({ networkRequests: of(6), networkTokens: of(7) })).toEqual({
      ...EGRESS_LIMITS,
      requests: 6,
      tokens: 7,
    });
    const upstream = (url: string | null) => upstreamOf({ upstreamProxy: of(url) });
    expect(upstream(null)).toBeUndefined();
    expect(upstream('http://proxy.example:3128')).toEqual({ host: 'proxy.example', port: 3128 });
    expect(upstream('http://[::1]:3128/')).toEqual({ host: '::1', port: 3128 });
    expect(planOf([], EGRESS_LIMITS, 1, { upstream: { host: 'p', port: 1 } }).upstream).toEqual({ host: 'p', port: 1 });
  });
});
