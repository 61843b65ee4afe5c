// Every key has a rule, old names lead to new ones, and a slip of the pen gets a hint.

import { describe, expect, it } from 'vitest';
import { ALIASES, checkConfig } from './check.ts';
import { parseConfig } from './parse.ts';
import { policyInputSchema } from '../../contract/policy-schema.ts';
import { isPlanned, keysOf, nearestField, nearestKey, repositoryRule } from './keys.ts';
import { configSchema, machineSchema } from './schema.ts';

const refused = (part: string) =>
  expect.objectContaining({ code: 'ACODE-SBX-013', message: expect.stringContaining(part) as string });

describe('keys', () => {
  const known = keysOf(configSchema);

  it('are all there, each with a rule for repositories', () => {
    expect(known.length).toBeGreaterThan(55);
    expect(known.filter(key => repositoryRule(key) === 'never').sort()).toEqual([
      'allow_root',
      'sandbox.bubblewrap.accept_process_limits',
      'sandbox.ceilings.cpu_limit',
      'sandbox.ceilings.memory_mb',
      'sandbox.ceilings.memory_swap_mb',
      'sandbox.ceilings.open_files',
      'sandbox.ceilings.output_bytes',
      'sandbox.ceilings.pids_limit',
      'sandbox.ceilings.timeout_seconds',
      'sandbox.ceilings.tmpfs_size',
      'sandbox.cleanup.timeout_seconds',
      'sandbox.containers.cleanup_orphans',
      'sandbox.containers.name_prefix',
      'sandbox.docker.host',
      'sandbox.fallback',
      'sandbox.max_cpu_seconds',
      'sandbox.max_file_size_mb',
      'sandbox.max_virtual_memory',
      'sandbox.mounts.allowed_host_roots',
      'sandbox.network.allow_bridge',
      'sandbox.network.allow_credentials',
      'sandbox.network.allow_learning',
      'sandbox.network.allowed_networks',
      'sandbox.network.ca_file',
      'sandbox.network.credentials',
      'sandbox.network.logins',
      'sandbox.network.private_hosts',
      'sandbox.network.ssh.identity_file',
      'sandbox.network.ssh.known_hosts',
      'sandbox.network.upstream_proxy',
      'sandbox.output.retention_days',
      'sandbox.output.save',
      'sandbox.security.allow_untrusted_registries',
      'sandbox.security.allowed_runtimes',
      'sandbox.security.trusted_images',
      'sandbox.terminal.clipboard',
      'sandbox.terminal.mouse',
      'sandbox.unmask',
    ]);
    expect(repositoryRule('toString')).toBe('never');
  });

  it('of the machine are a part of those of the user', () => {
    expect(keysOf(machineSchema).filter(key => !known.includes(key))).toEqual([]);
  });

  it.each([
    ['sandbox.defaults.memroy_mb', 'sandbox.defaults.memory_mb'],
    ['sandbox.memory_mb', 'sandbox.defaults.memory_mb'],
    ['pids_limit', 'sandbox.defaults.pids_limit'],
    ['sandbox.memory', 'sandbox.defaults.memory_mb'],
    ['sandbox.defaults.memory', 'sandbox.defaults.memory_mb'],
    ['sandbox.defaults.timeout', 'sandbox.defaults.timeout_seconds'],
    ['sandbox.network.timeout', 'sandbox.network.timeout_seconds'],
    ['timeout', 'sandbox.defaults.timeout_seconds'],
    ['sandbox.cpus', 'sandbox.defaults.cpu_limit'],
    ['sandbox.ceilings.memory', 'sandbox.ceilings.memory_mb'],
    ['workspace_mode', 'sandbox.mounts.workspace_mode'],
    ['sandbox.allow_bridge', 'sandbox.network.allow_bridge'],
    ['sandbx', 'sandbox'],
    ['sandbox.netwrok', 'sandbox.network'],
    ['completely.different', null],
    ['x'.repeat(5000), null],
  ])('%s was probably %s', (key, meant) => {
    expect(nearestKey(key, known)).toBe(meant);
  });

  it.each([
    ['limits.memory', 'limits.memoryBytes'],
    ['limits.memoryMb', 'limits.memoryBytes'],
    ['memory', 'limits.memoryBytes'],
    ['limits.cpu', 'limits.cpus'],
    ['limits.open_files', 'limits.openFiles'],
    ['limits.memroyBytes', 'limits.memoryBytes'],
    ['timeoutSeconds', 'timeoutMs'],
    ['limit', 'limits'],
    ['imgae', 'image'],
    ['privileged', null],
    ['capAdd', null],
    ['', null],
    ['x'.repeat(5000), null],
  ])('of a policy, %s was probably %s', (key, meant) => {
    expect(nearestField(key, keysOf(policyInputSchema))).toBe(meant);
  });

  it.each([
    ['sandbox.network.allow_bridge: true\n', '1:1'],
    ['sandbox:\n  network.allow_bridge: true\n', '2:3'],
    ['sandbox.network:\n  allow_bridge: true\n', '2:3'],
    ['sandbox:\n  network: { mode: none }\nsandbox.network.allow_bridge: true\n', '3:1'],
    ['sandbox:\n  network: { allow_bridge: true }\nsandbox.network.allow_bridge: true\n', '3:1'],
  ])('written with dots mean the nested ones, and keep their place: %j', (text, place) => {
    const loaded = parseConfig(text, 'f.yml');
    expect(loaded.config.sandbox?.network?.allow_bridge).toBe(true);
    expect(loaded.where('sandbox.network.allow_bridge')).toBe(`f.yml:${place}`);
    expect(loaded.warnings).toEqual([]);
  });

  it('written with dots have the places of lists and of mistakes in them', () => {
    expect(() => parseConfig('sandbox.network.dns_servers:\n  - 1.1.1.1\n  - nonsense\n', 'f.yml')).toThrow(
      refused('f.yml:3:5: `sandbox.network.dns_servers.1`'),
    );
    expect(() => parseConfig('sandbox.network.allow_bridge: hunter2\n', 'f.yml')).toThrow(
      refused('f.yml:1:1: `sandbox.network.allow_bridge` expected true or false, found text.'),
    );
  });

  it.each([
    ['sandbox:\n  network:\n    allow_bridge: false\nsandbox.network.allow_bridge: true\n', '4:1', '3:5'],
    ['sandbox.network.allow_bridge: true\nsandbox:\n  network: 5\n', '1:1', '3:3'],
    ['sandbox.network.mode: none\nsandbox:\n  network.mode: bridge\n', '3:3', '1:1'],
  ])('in both forms with two values are refused with both places: %j', (text, here, there) => {
    expect(() => parseConfig(text, 'f.yml')).toThrow(refused(`f.yml:${here}`));
    expect(() => parseConfig(text, 'f.yml')).toThrow(refused(`here with dots, and at f.yml:${there}`));
  });

  it('have names of the writer’s own with dots in them', () => {
    const labels = { 'com.example.team': 'a' };
    for (const text of [
      'sandbox: { containers: { labels: { com.example.team: a } } }',
      'sandbox.containers.labels.com.example.team: a',
      'sandbox.containers.labels: { com.example.team: a }',
    ])
      expect(parseConfig(text, 'f').config.sandbox?.containers?.labels).toEqual(labels);
  });

  it('with dots that are no keys are judged like any other', () => {
    expect(() => parseConfig('sandbox.netwrok: {}\n', 'f.yml')).toThrow(refused('did you mean sandbox.network?'));
  });

  it('are hinted at in the message', () => {
    expect(() => parseConfig('sandbox:\n  defaults:\n    memroy_mb: 5\n', 'f.yml')).toThrow(
      refused('f.yml:3:5: `sandbox.defaults.memroy_mb` is not a known key (did you mean sandbox.defaults.memory_mb?)'),
    );
  });
});

describe('fixed values', () => {
  it('are taken as they are, and refused in any other form', () => {
    const safe =
      'no_new_privileges: true, capabilities_drop: [ALL], capabilities_add: [], seccomp_profile: default, readonly_rootfs: true';
    expect(() => parseConfig(`sandbox: { security: { ${safe} } }`, 'f')).not.toThrow();
    for (const other of [
      'no_new_privileges: false',
      'capabilities_drop: []',
      'capabilities_drop: [NET_RAW]',
      'capabilities_add: [SYS_ADMIN]',
      'capabilities_add: [CHOWN]',
      'seccomp_profile: unconfined',
      'seccomp_profile: /etc/passwd',
      'readonly_rootfs: false',
      'privileged: true',
    ]) {
      expect(() => parseConfig(`sandbox: { security: { ${other} } }`, 'f')).toThrow(
        refused(`sandbox.security.${other.split(':')[0]}`),
      );
    }
  });
});

describe('nonsense', () => {
  it.each([
    ['defaults', 'memory_mb', '0'],
    ['defaults', 'memory_mb', '-5'],
    ['defaults', 'memory_mb', '.nan'],
    ['defaults', 'memory_mb', '.inf'],
    ['defaults', 'memory_mb', '5m'],
    ['defaults', 'memory_mb', '2t'],
    ['defaults', 'cpu_limit', '0'],
    ['defaults', 'pids_limit', '-1'],
    ['defaults', 'timeout_seconds', '0'],
    ['ceilings', 'memory_mb', '1'],
    ['ceilings', 'pids_limit', '0'],
    ['network', 'dns_servers', '[example.org]'],
    ['network', 'dns_servers', '[1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]'],
    ['network', 'ports', '[{ container: 0 }]'],
    ['network', 'mode', '"a b"'],
    ['mounts', 'allowed_host_roots', '[relative]'],
    ['mounts', 'allowed_host_roots', '[/a/../etc]'],
    ['images', 'combined', '{ node+dotnet: x, dotnet+node: y }'],
    ['images', 'combined', '{ node: x }'],
    ['images', 'combined', '{ node+cobol: x }'],
    ['images', 'combined', '{ node+node: x }'],
    ['cache_volumes', 'npm', 'true'],
    ['cache_volumes', 'npm', 'my-volume'],
    ['cache_volumes', 'npm', '/var/lib'],
    ['cache_volumes', 'npm', '"acode-cache-a/../b"'],
    ['security', 'trusted_images', '[node]'],
    ['security', 'trusted_images', '["*"]'],
    ['security', 'trusted_images', '["docker.io/lib*"]'],
  ])('sandbox.%s.%s: %s is refused with its place', (section, key, value) => {
    expect(() => parseConfig(`sandbox:\n  ${section}:\n    ${key}: ${value}\n`, 'f.yml')).toThrow(
      refused(`sandbox.${section}.${key}`),
    );
  });

  it.each([
    ['node', 'docker.io/library/node'],
    ['node:20-alpine', 'docker.io/library/node'],
    ['me/tool', 'docker.io/me/tool'],
    ['me/*', 'docker.io/me/*'],
    ['ghcr.io/me/tool:1', 'ghcr.io/me/tool'],
    ['localhost:5000/tool:1', 'localhost:5000/tool'],
  ])('names the whole repository that %s means', (given, whole) => {
    expect(() => parseConfig(`sandbox.security.trusted_images: ["${given}"]\n`, 'f.yml')).toThrow(
      refused(`; write ${whole}.`),
    );
    expect(() => parseConfig(`sandbox.security.trusted_images: ["${whole}"]\n`, 'f.yml')).not.toThrow();
  });

  it('is also a file that contradicts itself', () => {
    expect(() => parseConfig('sandbox:\n  defaults: { network: true }\n  network:\n    mode: none\n', 'f.yml')).toThrow(
      refused('f.yml:4:5: `sandbox.network.mode` contradicts sandbox.defaults.network'),
    );
    expect(() => parseConfig('sandbox: { defaults: { network: true }, network: { mode: bridge } }', 'f')).not.toThrow();
  });
});

describe('lines that say what acode does anyway', () => {
  it.each([
    'sandbox: { enabled: true }',
    'docker: { enabled: true }',
    'sandbox: { docker: { host: null, api_version: null } }',
    'sandbox: { docker: { api_version: "1.41" } }',
    'sandbox: { docker: { api_version: 1.44 } }',
    'sandbox: { docker: { api_version: v2.0 } }',
    'docker: { cleanup: { on_task_complete: true, on_agent_exit: true } }',
    'sandbox: { containers: { labels: { acode.managed: "true" } } }',
  ])('%s is accepted, and sets nothing', text => {
    const { sandbox = {} } = parseConfig(text, 'f').config;
    expect(Object.values(sandbox).every(section => Object.keys(section as object).length === 0)).toBe(true);
  });

  it.each([
    ['sandbox: { enabled: false }', 'sandbox.enabled', 'Write true'],
    ['sandbox: { enabled: "true" }', 'sandbox.enabled', 'Write true'],
    ['sandbox: { docker: { api_version: "1.40" } }', 'sandbox.docker.api_version', 'Write 1.41'],
    ['sandbox: { docker: { api_version: latest } }', 'sandbox.docker.api_version', 'Write 1.41'],
    ['docker: { cleanup: { on_task_complete: false } }', 'sandbox.cleanup.on_task_complete', 'Write true'],
    ['docker: { cleanup: { on_agent_exit: false } }', 'sandbox.cleanup.on_agent_exit', 'Write true'],
  ])('%s is refused, with what to write instead', (text, key, instead) => {
    expect(() => parseConfig(text, 'f')).toThrow(
      expect.objectContaining({
        code: 'ACODE-SBX-016',
        message: expect.stringContaining(key) as string,
        hint: expect.stringContaining(instead) as string,
      }),
    );
  });

  it('do not change a program’s own object', () => {
    const own = { sandbox: { require_for: ['HIGH' as 'high'], risk_rules: [{ match: 'x', risk: 'Low' as 'low' }] } };
    expect(checkConfig(own, 'x').config).toEqual({
      sandbox: { require_for: ['high'], risk_rules: [{ match: 'x', risk: 'low' }] },
    });
    expect(own.sandbox.require_for).toEqual(['HIGH']);
  });

  it.each(['[HIGH]', '["HIGH", "CRITICAL"]', '[High, critical]'])('risks are understood in any case: %s', list => {
    expect(parseConfig(`sandbox: { require_for: ${list} }`, 'f').config.sandbox?.require_for).toContain('high');
    expect(() => parseConfig('sandbox: { require_for: [SEVERE] }', 'f')).toThrow(refused('sandbox.require_for'));
  });
});

describe('old names', () => {
  it('lead to keys that exist or are planned', () => {
    const known = keysOf(configSchema);
    for (const { key } of ALIASES) expect(known.includes(key) || isPlanned(key)).toBe(true);
  });

  it('are understood with a warning that names the new one, and keep their place', () => {
    const loaded = parseConfig('docker:\n  resources:\n    memory: 4g\n    cpus: 2\n', 'f.yml');
    expect(loaded.config).toEqual({ sandbox: { defaults: { memory_mb: 4 * 1024 ** 3, cpu_limit: 2 } } });
    expect(loaded.warnings).toContain(
      'f.yml:3:5: docker.resources.memory is an old name; write sandbox.defaults.memory_mb.',
    );
    expect(loaded.where('sandbox.defaults.memory_mb')).toBe('f.yml:3:5');
  });

  it.each([
    ['sandbox: { limits: { memory: 64m, pids_limit: 9, timeout: 5, cpu_limit: 1 } }', 4],
    ['sandbox: { network: { enabled: false } }', 1],
    ['DefaultImage: x', 1],
    ['MaxOpenFiles: 64', 1],
    ['DnsServers: [1.1.1.1]', 1],
    ['Ports: [{ container: 80 }]', 1],
    ['DropCapabilities: [ALL]', 1],
    ['ReadOnlyRootFilesystem: true', 1],
    ['security: { RunAsNonRoot: true }', 1],
    ['docker: { images: { default: x, node: y } }', 2],
    ['LanguageImages: { csharp: x, fsharp: x, typescript: y }', 3],
    ['docker: { cleanup: { timeout_seconds: 5 } }', 1],
    ['sandbox: { docker_image: x, memory_limit: 2g, cpu_limit: "2" }', 3],
  ])('%s is understood', (text, warnings) => {
    expect(parseConfig(text, 'f').warnings).toHaveLength(warnings);
  });

  it('may repeat a new one, and not contradict it', () => {
    const both = (old: number) =>
      `sandbox: { defaults: { pids_limit: 64 }, limits: { pids_limit: ${old} } }\ndocker: { resources: { pids_limit: 64 } }`;
    expect(parseConfig(both(64), 'f').config.sandbox?.defaults?.pids_limit).toBe(64);
    expect(() => parseConfig(both(65), 'f.yml')).toThrow(
      refused('f.yml:1:52: `sandbox.limits.pids_limit` is an old name of sandbox.defaults.pids_limit'),
    );
    expect(() =>
      parseConfig('sandbox: { limits: { memory: 1g } }\ndocker: { resources: { memory: 2g } }', 'f'),
    ).toThrow(refused('docker.resources.memory'));
  });

  it('do not change a program’s own object', () => {
    const own = { sandbox: { limits: { memory: '64m' } } };
    checkConfig(own, 'x');
    expect(own).toEqual({ sandbox: { limits: { memory: '64m' } } });
  });

  it.each(['docker: 5', 'docker: { resources: [] }', 'sandbox: 3\nDefaultImage: x', 'docker: { resources: { x: 1 } }'])(
    '%s is refused like any other mistake',
    text => {
      expect(() => parseConfig(text, 'f')).toThrow(refused(''));
    },
  );
});
