// Names that were not resolved: told where the engine gave a network, and nowhere else.

import { describe, expect, it } from 'vitest';
import { lacksNames, unreachedHosts } from './unresolved-names.ts';

const usage = { peakMemoryBytes: 1, cpuMs: 1, throttledMs: 0 };
const onBridge = { exitCode: 1, stderr: '', usage: { ...usage, rxBytes: 200, txBytes: 42 } };

describe('names that were not resolved on a network of the engine', () => {
  it.each([
    'npm error request to https://registry.npmjs.org/left-pad failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org',
    'fatal: unable to access ‘https://github.com/x/y/’: Could not resolve host: github.com',
    'urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>',
    "wget: bad address 'example.com'",
    'dial tcp: lookup proxy.golang.org on 127.0.0.11:53: no such host',
  ])('are known by what the program printed: %s', stderr => {
    expect(lacksNames({ ...onBridge, stderr })).toBe(true);
    // The controls: no failure, no network, and an allow-list, where acode resolves the names.
    expect(lacksNames({ ...onBridge, stderr, exitCode: 0 })).toBe(false);
    expect(lacksNames({ ...onBridge, stderr, usage })).toBe(false);
    expect(lacksNames({ ...onBridge, stderr, network: [] })).toBe(false);
  });

  it('are not supposed where the network failed in another way', () => {
    for (const stderr of ['', 'Connection refused', 'TLS handshake failed', 'Error: ECONNRESET'])
      expect(lacksNames({ ...onBridge, stderr })).toBe(false);
  });
});

describe('hosts of an allow-list that could not be reached', () => {
  const row = { host: 'a.example', port: 443, verdict: 'denied', count: 1, bytesIn: 0, bytesOut: 0, ms: 0 } as const;

  it.each([
    ['unresolved', /^a\.example is on the allow-list, but this machine found no address/],
    ['unreachable', /^a\.example:443 is on the allow-list, but did not answer.*upstream_proxy/],
    ['untrusted-server', /certificate is not trusted.*acode config set sandbox\.network\.ca_file/],
  ] as const)('are told with what to do: %s', (reason, expected) => {
    const network = [{ ...row, reason }];
    expect(unreachedHosts({ exitCode: 1, network })).toMatch(expected);
    expect(unreachedHosts({ exitCode: 0, network })).toBeNull();
    expect(
      unreachedHosts({ exitCode: 1, network: [...network, { ...row, verdict: 'allowed', bytesIn: 9 }] }),
    ).toBeNull();
  });

  it('are none where the list refused, or nothing failed', () => {
    expect(unreachedHosts({ exitCode: 1, network: [{ ...row, reason: 'not-listed' }] })).toBeNull();
    expect(unreachedHosts({ exitCode: 1 })).toBeNull();
  });
});
