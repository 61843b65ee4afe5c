// Precedence of configuration layers: every layer against every other, and the source that is reported.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { holdTo } from './config/check.ts';
import { parseConfig, rawConfig } from './config/parse.ts';
import { keysOf, repositoryRule } from './config/keys.ts';
import { machineSchema, teamSchema } from './config/schema.ts';
import { AcodeError } from '../contract/errors.ts';
import type { PolicyFields } from '../contract/policy.ts';
import { environmentMode } from './config/load.ts';
import { NO_LAYERS, resolveMode } from './layers.ts';
import type { Layers } from './layers.ts';
import { resolvePolicy, resolveRules } from './resolve.ts';

const FACTOR = Number(process.env['ACODE_PROPERTY_FACTOR'] ?? 1);
const MIB = 1024 ** 2;
const host = { caller: { uid: 1001, gid: 1002 }, cpus: 8 };

interface Said {
  readonly machine?: string;
  readonly user?: string;
  readonly repository?: string;
  readonly trusted?: boolean;
  readonly environmentMode?: Layers['environmentMode'];
}

const layers = (said: Said): Layers => ({
  machine: said.machine === undefined ? null : holdTo(machineSchema, rawConfig(said.machine, '/etc/acode/policy.yml')),
  user: parseConfig(said.user ?? '', 'user.yml'),
  repository:
    said.repository === undefined
      ? null
      : {
          ...parseConfig(said.repository, '.agent/config.yml'),
          root: '/repo',
          file: '/repo/.agent/config.yml',
          hash: 'sha256:x',
          trusted: said.trusted ?? false,
        },
  environmentMode: said.environmentMode ?? null,
});
const resolve = (said: Said, input: PolicyFields = {}) => resolvePolicy(input, layers(said), host);
const memory = (mb: number) => `sandbox:\n  defaults:\n    memory_mb: ${mb}\n`;
const ceiling = (mb: number) => `sandbox:\n  ceilings:\n    memory_mb: ${mb}\n`;

describe('precedence', () => {
  it('only a request asks for the dependencies of a project image', () => {
    expect(resolve({}).deps).toMatchObject({ value: false, layer: 'built-in' });
    expect(resolve({}, { deps: true }).deps).toMatchObject({ value: true, layer: 'request', where: 'policy.deps' });
  });

  it('a repository may go offline, and a user of its file that is not a uid is named by its place', () => {
    const offline = 'sandbox: { images: { offline: true } }';
    expect(resolve({ repository: offline }).offline).toMatchObject({ value: true, layer: 'repository' });
    expect(resolve({ repository: offline, user: offline }).offline).toMatchObject({ value: true, layer: 'user' });
    expect(() => resolve({ user: 'sandbox: { defaults: { user: "99999999999:1" } }' })).toThrow(/user\.yml/);
  });

  it('every layer adds masks, and only the user’s own file removes some', () => {
    const mask = (name: string) => `sandbox:\n  mask:\n    - ${name}\n`;
    const said = { machine: mask('m/**'), user: `${mask('u')}  unmask: [.env]\n`, repository: mask('"*.r"') };
    expect(resolve(said).masks).toEqual({
      add: [
        { value: 'm/**', layer: 'machine', where: '/etc/acode/policy.yml:3:7 (sandbox.mask.0)' },
        { value: 'u', layer: 'user', where: 'user.yml:3:7 (sandbox.mask.0)' },
        { value: '*.r', layer: 'repository', where: '.agent/config.yml:3:7 (sandbox.mask.0)' },
      ],
      remove: { value: ['.env'], layer: 'user', where: 'user.yml:4:3 (sandbox.unmask)' },
    });
    expect(resolve({}).masks).toEqual({ add: [], remove: { value: [], layer: 'built-in', where: 'default' } });
    // Trusted or not, a repository has no key for it; nor have the machine and the team.
    expect(repositoryRule('sandbox.unmask')).toBe('never');
    expect(keysOf(machineSchema)).not.toContain('sandbox.unmask');
    expect(keysOf(teamSchema)).not.toContain('sandbox.unmask');
    expect(() => parseConfig('sandbox: { mask: [/etc] }', 'f')).toThrow(/sandbox\.mask/);
    for (const bad of ['../x', 'a/../b', '**', './', '.', 'a//b', '!x', '[ab]', '{a,b}', 'a\\b', '/', ''])
      expect(() => parseConfig(JSON.stringify({ sandbox: { unmask: [bad] } }), bad)).toThrow(AcodeError);
    for (const good of ['.env', '*.pem', 'a/**', '**/x', 'a b/c,d', './x', 'a..b', '..a', 'dir/', '?'])
      expect(parseConfig(JSON.stringify({ sandbox: { unmask: [good] } }), good).config.sandbox?.unmask).toEqual([good]);
  });

  it.each<[string, Said, PolicyFields, number, string, string]>([
    ['no layer', {}, {}, 512, 'built-in', 'default'],
    ['the user', { user: memory(100) }, {}, 100, 'user', 'user.yml:3:5 (sandbox.defaults.memory_mb)'],
    [
      'the repository before the user',
      { user: memory(100), repository: memory(200) },
      {},
      200,
      'repository',
      '.agent/config.yml:3:5 (sandbox.defaults.memory_mb)',
    ],
    [
      'the request before all',
      { user: memory(100), repository: memory(200) },
      { limits: { memoryBytes: 300 * MIB } },
      300,
      'request',
      'policy.limits.memoryBytes',
    ],
    [
      'the user’s ceiling after all',
      { user: ceiling(64), repository: memory(200) },
      { limits: { memoryBytes: 300 * MIB } },
      64,
      'user',
      'user.yml:3:5 (sandbox.ceilings.memory_mb)',
    ],
    [
      'the machine’s ceiling where it is the strictest',
      { machine: ceiling(32), user: ceiling(64), repository: memory(200) },
      {},
      32,
      'machine',
      '/etc/acode/policy.yml:3:5 (sandbox.ceilings.memory_mb)',
    ],
    ['a ceiling above what is asked for', { machine: ceiling(900) }, {}, 512, 'built-in', 'default'],
    [
      'no ceiling above the built-in one',
      { user: `${ceiling(900_000)}  defaults: { memory_mb: 500g }` },
      {},
      8192,
      'user',
      'user.yml:4:15 (sandbox.defaults.memory_mb)',
    ],
  ])('%s', (_, said, input, mb, layer, where) => {
    expect(resolve(said, input).limits.memoryBytes).toEqual({ value: mb * MIB, layer, where });
  });

  it('is the same for every limit and for the time', () => {
    const file = `sandbox:
  ceilings: { cpu_limit: 0.5, memory_swap_mb: 1, pids_limit: 16, open_files: 32, timeout_seconds: 2, tmpfs_size: 1m, output_bytes: 9 }
  network: { timeout_seconds: 60 }
`;
    const policy = resolve(
      { user: file },
      {
        limits: { cpus: 4, swapBytes: 2 ** 30, pids: 999, openFiles: 999, tmpBytes: 2 ** 30, outputBytes: 999 },
        timeoutMs: 1e6,
      },
    );
    expect(policy).toMatchObject({
      limits: {
        cpus: { value: 0.5 },
        swapBytes: { value: MIB },
        pids: { value: 16 },
        openFiles: { value: 32 },
        tmpBytes: { value: MIB },
        outputBytes: { value: 9 },
      },
      timeoutMs: { value: 2000, layer: 'user' },
      networkTimeoutMs: { value: 2000 },
    });
    expect(policy.warnings).toHaveLength(8);
    expect(policy.warnings.join('\n')).toContain(
      'the process limit was lowered from 999 to 16, the ceiling set by user.yml:2:50 (sandbox.ceilings.pids_limit).',
    );
    expect(policy.warnings.join('\n')).toContain('the time limit was lowered from 1000 s to 2 s, ');
    expect(policy.warnings.join('\n')).toContain('(sandbox.network.timeout_seconds) was lowered from 60 s to 2 s, ');
  });

  it('says what old names were understood', () => {
    expect(resolve({ user: 'docker: { resources: { memory: 64m } }' })).toMatchObject({
      limits: { memoryBytes: { value: 64 * MIB, where: 'user.yml:1:24 (sandbox.defaults.memory_mb)' } },
      warnings: [expect.stringContaining('docker.resources.memory is an old name')],
    });
  });
});

describe('nonsense in a request', () => {
  it.each<[string, PolicyFields]>([
    ['limits.memoryBytes', { limits: { memoryBytes: 1024 } }],
    ['limits.memoryBytes', { limits: { memoryBytes: 0 } }],
    ['limits.memoryBytes', { limits: { memoryBytes: NaN } }],
    ['limits.memoryBytes', { limits: { memoryBytes: 32 * 2 ** 40 } }],
    ['limits.swapBytes', { limits: { swapBytes: 32 * 2 ** 40 } }],
    ['limits.cpus', { limits: { cpus: -1 } }],
    ['timeoutMs', { timeoutMs: 0 }],
  ])('in %s is refused, with the limit as the cause', (field, input) => {
    expect(() => resolve({}, input)).toThrow(
      expect.objectContaining({
        code: 'ACODE-SBX-017',
        message: expect.stringContaining(`policy.${field}`) as string,
        cause: expect.objectContaining({ code: 'ACODE-CTN-007' }) as unknown,
      }),
    );
  });

  it('is also a name that no field may have', () => {
    const input = JSON.parse('{"limits":{"__proto__":{"polluted":1}}}') as PolicyFields;
    expect(() => resolve({}, input)).toThrow(expect.objectContaining({ code: 'ACODE-SBX-017' }));
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
  });
});

describe('the machine', () => {
  it('has a floor for the level', () => {
    const machine = 'sandbox: { level: gvisor }';
    expect(resolve({ machine }).level).toMatchObject({ value: 'gvisor', layer: 'machine' });
    const raised = resolve({ machine }, { level: 'docker' });
    expect(raised.level.value).toBe('gvisor');
    expect(raised.warnings[0]).toContain('raised from docker to gvisor, the least that /etc/acode/policy.yml:1:12');
    expect(resolve({ machine }, { level: 'microvm' }).level).toMatchObject({ value: 'microvm', layer: 'request' });
    expect(resolve({ machine: 'sandbox: { level: docker }' }).level).toMatchObject({ value: 'auto', layer: 'machine' });
  });

  it('is named beside the other layers as the source of rules about risks', () => {
    const rules = 'sandbox: { require_for: [high], risk_rules: [{ match: deploy, risk: critical }] }';
    const all = layers({ machine: 'sandbox: { require_for: [medium] }', user: rules, repository: 'mode: airgapped' });
    const { requireFor, riskRules, ceilings } = resolveRules(all, { cpus: 8 });
    expect(requireFor.map(({ layer, value }) => [layer, value])).toEqual([
      ['machine', ['medium']],
      ['user', ['high']],
    ]);
    expect(riskRules).toMatchObject([{ layer: 'user', value: [{ match: 'deploy' }] }]);
    expect(ceilings).toEqual(resolveRules(all, { cpus: 8, memoryBytes: 4 * 1024 ** 3 }).ceilings);
    const none = resolveRules(NO_LAYERS, host);
    expect(none.requireFor).toMatchObject([{ layer: 'built-in' }]);
    expect(none.riskRules).toEqual([]);
  });

  it('narrows the user’s roots to what lies in both', () => {
    const machine = 'sandbox: { mounts: { allowed_host_roots: [/data, /srv/x] } }';
    const user = 'sandbox: { mounts: { allowed_host_roots: [/data/a, /srv, /data-evil, /home/me] } }';
    expect(resolve({ machine, user }).hostRoots).toMatchObject({ value: ['/data/a', '/srv/x'], layer: 'machine' });
    expect(resolve({ user }).hostRoots).toMatchObject({ layer: 'user', value: { length: 4 } });
    expect(resolve({ machine }).hostRoots.value).toEqual([]);
  });

  it('has a list of images of its own, and can require digests', () => {
    const machine = 'sandbox: { security: { trusted_images: ["ghcr.io/me/*"], require_digest: true } }';
    expect(resolve({ machine, user: 'sandbox: { security: { require_digest: false } }' }).imageTrust).toMatchObject({
      machineRepositories: { value: ['ghcr.io/me/*'], layer: 'machine' },
      requireDigest: { value: true, layer: 'machine' },
    });
  });
});

describe('image trust', () => {
  it('adds the user’s repositories to the built-in ones', () => {
    const user = 'sandbox: { security: { trusted_images: ["ghcr.io/me/*"], allow_untrusted_registries: true } }';
    expect(resolve({ user }).imageTrust).toMatchObject({
      repositories: { value: ['docker.io/library/*', 'mcr.microsoft.com/dotnet/*', 'ghcr.io/me/*'], layer: 'user' },
      anywhere: { value: true, layer: 'user' },
    });
  });
});

describe('mounts', () => {
  it('come from the strongest voice, read-only unless it says otherwise', () => {
    const file = (source: string, more = '') =>
      `sandbox: { mounts: { additional: [{ source: ${source}, target: /x${more} }], allowed_host_roots: [/data] } }`;
    expect(resolve({ user: file('/data/a') }).mounts.value).toEqual([
      { source: '/data/a', target: '/x', readOnly: true },
    ]);
    expect(resolve({ user: file('/data/a', ', readonly: false') }).mounts.value[0]?.readOnly).toBe(false);
    const repository = 'sandbox: { mounts: { additional: [{ source: tools, target: /t }] } }';
    // The roots are the user’s, for the user’s own mounts: a link in a repository must not lead there.
    expect(resolve({ user: file('/data/a'), repository })).toMatchObject({
      mounts: { value: [{ source: 'tools' }], layer: 'repository' },
      hostRoots: { value: [] },
    });
    const asked = resolve({ user: file('/data/a'), repository }, { mounts: [{ source: '/data/b', target: '/b' }] });
    expect(asked).toMatchObject({ mounts: { layer: 'request' }, hostRoots: { value: ['/data'] } });
  });
});

describe('runtimes', () => {
  it.each([
    'runc',
    'runsc',
    'crun',
    'kata',
    'kata-qemu',
    'sysbox-runc',
    'io.containerd.runsc.v1',
    'io.containerd.kata.v2',
  ])('knows %s', runtime => {
    expect(resolve({}, { runtime }).runtime).toEqual({ value: runtime, layer: 'request', where: 'policy.runtime' });
    expect(resolve({ user: `sandbox: { runtime: ${runtime} }` }).runtime).toMatchObject({ layer: 'user' });
  });

  const unknown = (part: string) =>
    expect.objectContaining({
      code: 'ACODE-SBX-010',
      message: expect.stringContaining(part) as string,
      context: expect.objectContaining({ violation: 'UnknownRuntime' }) as unknown,
    });

  it.each(['evil', 'runc2', '/bin/sh', '../runc', 'kata;id', 'io.containerd.evil.v1', 'RUNC', 'runc\n'])(
    'does not know %j',
    runtime => {
      expect(() => resolve({}, { runtime })).toThrow(unknown('is not a runtime that acode knows'));
    },
  );

  it('takes others that the user lists', () => {
    const user = 'sandbox: { security: { allowed_runtimes: [mine] } }';
    expect(resolve({ user }, { runtime: 'mine' }).runtime.value).toBe('mine');
  });

  it('are within the machine’s list, its first if no layer names one', () => {
    const machine = 'sandbox: { security: { allowed_runtimes: [runsc, kata] } }';
    expect(resolve({ machine }).runtime).toMatchObject({ value: 'runsc', layer: 'machine' });
    expect(resolve({ machine }, { runtime: 'kata' }).runtime.value).toBe('kata');
    expect(() => resolve({ machine }, { runtime: 'runc' })).toThrow(unknown('this machine allows only runsc, kata'));
    expect(() => resolve({ machine: 'sandbox: { security: { allowed_runtimes: [] } }' })).toThrow(
      unknown('no runtime at all'),
    );
  });
});

describe('what a repository may do', () => {
  it('asks for no more than profile dev, unless the user’s own file gives more anyway', () => {
    const repository =
      'sandbox: { defaults: { memory_mb: 6g, pids_limit: 2000, timeout_seconds: 3600 }, mounts: { tmpfs_size: 2g } }';
    const asked = resolve({ repository });
    const values = ({ limits, timeoutMs }: typeof asked) =>
      [limits.memoryBytes, limits.pids, limits.tmpBytes, timeoutMs].map(({ value }) => value);
    expect(values(asked)).toEqual([1024 ** 3, 1024, 256 * 1024 ** 2, 600_000]);
    expect(asked.warnings.join('\n')).toMatch(
      /memory_mb\) was lowered from 6 GiB to 1 GiB, the most that a repository/,
    );
    // Control: the same in the user’s own file counts, and a repository may ask for less than that.
    const user = repository.replace('6g', '7g');
    expect(values(resolve({ user }))).toEqual([7 * 1024 ** 3, 2000, 2 * 1024 ** 3, 3_600_000]);
    expect(values(resolve({ user, repository }))).toEqual([6 * 1024 ** 3, 2000, 2 * 1024 ** 3, 3_600_000]);
  });

  const refusal = (key: string, line: number, part: string, remedy: string) =>
    expect.objectContaining({
      code: 'ACODE-SBX-020',
      context: expect.objectContaining({
        key,
        where: expect.stringMatching(`^\\.agent/config\\.yml:${line}:\\d+$`) as string,
        rule: expect.stringContaining(part) as string,
      }) as unknown,
      hint: expect.stringContaining(remedy) as string,
    });

  it.each<[string, string, string]>([
    ['sandbox.defaults.network', 'sandbox:\n  defaults:\n    network: true\n', 'true'],
    ['sandbox.network.mode', 'sandbox:\n  network:\n    mode: bridge\n', '"bridge"'],
    ['sandbox.network.mode', 'sandbox:\n  network:\n    mode: mine\n', '"mine"'],
    ['sandbox.network.dns_servers', 'sandbox:\n  network:\n    dns_servers: [1.1.1.1]\n', ''],
    ['sandbox.network.ports', 'sandbox:\n  network:\n    ports: [{ container: 80 }]\n', ''],
    ['sandbox.defaults.user', 'sandbox:\n  defaults:\n    user: "5:5"\n', ''],
    ['sandbox.defaults.network', 'sandbox:\n  network:\n    enabled: true\n', ''],
  ])('%s only where the file is trusted', (key, repository) => {
    const user = 'sandbox: { network: { allow_bridge: true, allowed_networks: [mine] } }';
    expect(() => resolve({ user, repository })).toThrow(refusal(key, 3, 'not trusted', '`acode trust`'));
    expect(() => resolve({ user, repository, trusted: true })).not.toThrow();
  });

  it('and even then a bridge needs the user’s own consent', () => {
    const repository = 'sandbox: { network: { mode: bridge } }';
    expect(() => resolve({ repository, trusted: true })).toThrow(expect.objectContaining({ code: 'ACODE-SBX-005' }));
    const user = 'sandbox: { network: { allow_bridge: true } }';
    expect(resolve({ user, repository, trusted: true }).network).toEqual({
      value: { kind: 'bridge' },
      layer: 'repository',
      where: '.agent/config.yml:1:23 (sandbox.network.mode)',
    });
  });

  it.each<[string, string, string, string]>([
    ['mode', 'mode: airgapped', 'mode: local-only', 'the mode is airgapped'],
    ['mode', '', 'mode: burst', 'the mode is local-only'],
    ['sandbox.level', 'sandbox: { level: gvisor }', 'sandbox: { level: docker }', 'yours is gvisor'],
    ['sandbox.level', 'sandbox: { level: gvisor }', 'sandbox: { level: auto }', 'yours is gvisor'],
    ['sandbox.level', '', 'sandbox: { level: none }', 'yours is auto'],
    ['sandbox.level', '', 'sandbox: { level: bubblewrap }', 'yours is auto'],
    ['sandbox.runtime', '', 'sandbox: { runtime: runc }', 'only runsc and kata'],
    ['sandbox.runtime', '', 'sandbox: { runtime: sysbox-runc }', 'only runsc and kata'],
    ['sandbox.runtime', 'sandbox: { runtime: kata }', 'sandbox: { runtime: runsc }', 'yours is kata'],
    [
      'sandbox.images.pull_policy',
      'sandbox: { images: { pull_policy: never } }',
      'sandbox: { images: { pull_policy: missing } }',
      'yours is never',
    ],
    ['sandbox.images.pull_policy', '', 'sandbox: { images: { pull_policy: always } }', 'yours is missing'],
    [
      'sandbox.images.offline',
      'sandbox: { images: { offline: true } }',
      'sandbox: { images: { offline: false } }',
      'yours is true',
    ],
    [
      'sandbox.cache_volumes.enabled',
      'sandbox: { cache_volumes: { enabled: false } }',
      'sandbox: { cache_volumes: { enabled: true } }',
      'yours is false',
    ],
    [
      'sandbox.cache_volumes.npm',
      '',
      'sandbox: { cache_volumes: { npm: acode-cache-of-another } }',
      'only switch a cache off',
    ],
    [
      'sandbox.mounts.workspace_mode',
      'sandbox: { mounts: { workspace_mode: ro } }',
      'sandbox: { mounts: { workspace_mode: rw } }',
      'yours is ro',
    ],
    [
      'sandbox.security.require_digest',
      'sandbox: { security: { require_digest: true } }',
      'sandbox: { security: { require_digest: false } }',
      'a digest is required',
    ],
  ])('never loosen %s, not even where it is trusted', (key, user, repository, part) => {
    for (const trusted of [false, true]) {
      expect(() => resolve({ user, repository, trusted })).toThrow(refusal(key, 1, part, 'Take the line out'));
    }
    // What is no looser is fine: the user’s own value, as a control.
    if (user !== '') expect(() => resolve({ user, repository: user })).not.toThrow();
  });

  it('tighten, without anybody’s trust', () => {
    const repository = `mode: airgapped
sandbox:
  level: gvisor
  runtime: runsc
  defaults: { network: false, memory_mb: 64, user: host }
  network: { mode: none, dns_servers: [], ports: [] }
  images: { default: "node:20", pull_policy: never }
  mounts: { workspace_mode: ro, additional: [{ source: ./tools, target: /t }, { source: /repo/x, target: /u }] }
  security: { require_digest: true }
`;
    expect(resolve({ repository })).toMatchObject({
      mode: { value: 'airgapped', layer: 'repository' },
      level: { value: 'gvisor' },
      runtime: { value: 'runsc' },
      image: { value: 'node:20', layer: 'repository' },
      pull: { value: 'never' },
      workspace: { value: 'readonly' },
      imageTrust: { requireDigest: { value: true, layer: 'repository' } },
      limits: { memoryBytes: { value: 64 * MIB } },
    });
  });

  it.each(['/etc', '..', '../repo-evil', '/repo-evil', 'a/../../x', '/', 'C:\\Windows', '"a\\0b"'])(
    'add no mount from %s',
    source => {
      const repository = `sandbox:\n  mounts:\n    additional:\n      - { source: ${source}, target: /x }\n`;
      expect(() => resolve({ repository, trusted: true })).toThrow(
        refusal('sandbox.mounts.additional.0', 4, 'not inside the repository', 'own configuration file'),
      );
    },
  );

  it('add no writable mount, which could be a second way to what is protected', () => {
    const repository = 'sandbox: { mounts: { additional: [{ source: .git, target: /g, readonly: false }] } }';
    expect(() => resolve({ repository, trusted: true })).toThrow(
      refusal('sandbox.mounts.additional.0', 1, 'read-only mounts only', 'own configuration file'),
    );
  });
});

describe('the environment', () => {
  it('can only tighten, and a slip of the pen does not pass for protection', () => {
    expect(environmentMode({})).toBeNull();
    expect(environmentMode({ ACODE_MODE: '' })).toBeNull();
    expect(environmentMode({ ACODE_MODE: 'airgapped' })).toBe('airgapped');
    expect(() => environmentMode({ ACODE_MODE: 'air-gapped' })).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-013', message: expect.stringContaining('ACODE_MODE') as string }),
    );
    expect(resolve({ environmentMode: 'airgapped' }).mode).toEqual({
      value: 'airgapped',
      layer: 'request',
      where: 'ACODE_MODE',
    });
    expect(resolve({ user: 'mode: airgapped', environmentMode: 'local-only' }).mode.value).toBe('airgapped');
    expect(resolve({ user: 'mode: burst', environmentMode: 'local-only' }).mode.value).toBe('local-only');
  });
});

it('NO_LAYERS sets nothing', () => {
  expect(resolvePolicy({}, NO_LAYERS, host)).toEqual(resolve({}));
});

describe('whatever a program asks for', () => {
  const fields = [
    'limits',
    'network',
    'ports',
    'dns',
    'mounts',
    'image',
    'runtime',
    'user',
    'level',
    'timeoutMs',
    '__proto__',
  ];
  const input = fc.oneof(
    fc.jsonValue(),
    fc.dictionary(fc.constantFrom(...fields), fc.oneof(fc.jsonValue(), fc.anything())),
  );

  it(
    'ends in a policy or an AcodeError',
    () => {
      const property = fc.property(input, asked => {
        try {
          resolve({}, asked as PolicyFields);
        } catch (error) {
          if (!(error instanceof AcodeError)) throw error;
        }
        return Object.keys(Object.prototype).length === 0;
      });
      expect(fc.check(property, { numRuns: 500 * FACTOR })).toMatchObject({ failed: false, counterexample: null });
    },
    60_000 * FACTOR,
  );
});

describe('the mode', () => {
  it.each<[machine: string, user: string, repository: string, mode: string, layer: string]>([
    ['', '', '', 'local-only', 'built-in'],
    ['', 'burst', '', 'burst', 'user'],
    ['', 'burst', 'burst', 'burst', 'user'],
    ['', 'burst', 'local-only', 'local-only', 'repository'],
    ['', 'burst', 'airgapped', 'airgapped', 'repository'],
    ['local-only', 'burst', '', 'local-only', 'machine'],
    ['airgapped', 'burst', '', 'airgapped', 'machine'],
    ['', 'local-only', 'airgapped', 'airgapped', 'repository'],
  ])('of machine “%s”, user “%s” and repository “%s” is %s, by the %s', (machine, user, repository, mode, layer) => {
    const of = (value: string): string => (value === '' ? '' : `mode: ${value}`);
    const all = layers({ machine: of(machine), user: of(user), repository: of(repository) });
    expect(resolveMode(all)).toMatchObject({ value: mode, layer });
  });
});
