// Keys that loosen: every key has a rule, and each rule tells a change that loosens from one that does not.

import { describe, expect, it } from 'vitest';
import { keysOf } from './keys.ts';
import { loosenings, ruledKeys } from './loosening.ts';
import { parseConfig } from './parse.ts';
import { configSchema } from './schema.ts';

const config = (text: string) => parseConfig(text, 'f.yml').config;
const keys = (before: string, after: string) => loosenings(config(before), config(after)).map(({ key }) => key);

describe('what loosens', () => {
  it('is decided for every key', () => {
    expect(ruledKeys().sort()).toEqual(keysOf(configSchema).sort());
  });

  it.each([
    ['', 'allow_root: true', 'allow_root'],
    ['mode: airgapped', '', 'mode'],
    ['mode: airgapped', 'mode: local-only', 'mode'],
    ['', 'mode: burst', 'mode'],
    ['mode: local-only', 'mode: burst', 'mode'],
    ['', 'sandbox.level: none', 'sandbox.level'],
    ['', 'sandbox.level: bubblewrap', 'sandbox.level'],
    ['sandbox.level: gvisor', '', 'sandbox.level'],
    ['', 'sandbox.require_for: [high, critical]', 'sandbox.require_for'],
    ['sandbox.require_for: [medium, high]', 'sandbox.require_for: [high]', 'sandbox.require_for'],
    ['', 'sandbox.fallback: warn', 'sandbox.fallback'],
    ['sandbox.risk_rules: [{ match: x, risk: high }]', '', 'sandbox.risk_rules'],
    ['sandbox.mask: [a, b]', 'sandbox.mask: [b]', 'sandbox.mask'],
    ['', 'sandbox.unmask: [.env]', 'sandbox.unmask'],
    ['sandbox.unmask: [.env]', 'sandbox.unmask: [.env, "*.pem"]', 'sandbox.unmask'],
    ['', 'sandbox.runtime: runc', 'sandbox.runtime'],
    ['sandbox.runtime: runsc', '', 'sandbox.runtime'],
    ['', 'sandbox.docker.host: unix:///work/engine.sock', 'sandbox.docker.host'],
    ['', 'sandbox.network.dns_servers: [9.9.9.9]', 'sandbox.network.dns_servers'],
    ['sandbox.images.pull_policy: never', 'sandbox.images.pull_policy: missing', 'sandbox.images.pull_policy'],
    ['', 'sandbox.defaults.network: true', 'sandbox.defaults.network'],
    ['', 'sandbox.network.mode: bridge', 'sandbox.network.mode'],
    ['', 'sandbox.network.allow_bridge: true', 'sandbox.network.allow_bridge'],
    ['', 'sandbox.network.allowed_networks: [db]', 'sandbox.network.allowed_networks'],
    ['', 'sandbox.network.ca_file: /ca.pem', 'sandbox.network.ca_file'],
    ['', 'sandbox.network.ports: [{ container: 80 }]', 'sandbox.network.ports'],
    ['sandbox.images.offline: true', '', 'sandbox.images.offline'],
    ['sandbox.mounts.workspace_mode: ro', '', 'sandbox.mounts.workspace_mode'],
    [
      'sandbox.mounts.allowed_host_roots: [/a]',
      'sandbox.mounts.allowed_host_roots: [/a, /b]',
      'sandbox.mounts.allowed_host_roots',
    ],
    ['', 'sandbox.security.trusted_images: [ghcr.io/a/b]', 'sandbox.security.trusted_images'],
    ['', 'sandbox.security.allow_untrusted_registries: true', 'sandbox.security.allow_untrusted_registries'],
    [
      'sandbox.security.require_digest: true',
      'sandbox.security.require_digest: false',
      'sandbox.security.require_digest',
    ],
    ['', 'sandbox.security.allowed_runtimes: [own]', 'sandbox.security.allowed_runtimes'],
    ['sandbox.ceilings.memory_mb: 1g', 'sandbox.ceilings.memory_mb: 2g', 'sandbox.ceilings.memory_mb'],
    ['sandbox.ceilings.memory_mb: 1g', '', 'sandbox.ceilings.memory_mb'],
  ])('%j to %j does: %s', (before, after, key) => {
    expect(keys(before, after)).toEqual([key]);
    // The way back is no loosening, but for values that neither side is stricter with.
    if (key !== 'sandbox.runtime') expect(keys(after, after)).toEqual([]);
  });

  it.each([
    ['', 'sandbox: { level: gvisor, defaults: { memory_mb: 4g, timeout_seconds: 2h }, images: { default: x } }'],
    ['', 'sandbox: { level: auto, network: { allow_bridge: false, mode: none }, fallback: refuse }'],
    ['sandbox.network.allow_bridge: true', ''],
    ['sandbox.security.trusted_images: [ghcr.io/a/b, ghcr.io/a/c]', 'sandbox.security.trusted_images: [ghcr.io/a/c]'],
    ['', 'sandbox: { ceilings: { memory_mb: 1g }, security: { require_digest: true } }'],
    ['sandbox.ceilings.memory_mb: 2g', 'sandbox.ceilings.memory_mb: 1g'],
    ['', 'mode: airgapped'],
    ['', 'sandbox.risk_rules: [{ match: x, risk: high }]'],
    ['', 'sandbox.mask: [secrets/**]'],
    ['sandbox.unmask: [.env, x]', 'sandbox.unmask: [x]'],
    ['sandbox.require_for: [high]', 'sandbox.require_for: [high, critical, low, medium]'],
    ['', 'sandbox.runtime: runsc'],
  ])('%j to %j does not', (before, after) => {
    expect(keys(before, after)).toEqual([]);
  });

  it('says in one sentence what it allows', () => {
    const all = loosenings(
      config('mode: airgapped'),
      config('sandbox: { network: { allow_bridge: true }, level: none }'),
    );
    expect(all).toHaveLength(3);
    for (const { allows } of all) expect(allows).toMatch(/^[A-Za-z][^.]*\.$/);
  });
});
