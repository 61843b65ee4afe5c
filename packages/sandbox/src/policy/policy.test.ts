// The effective policy: who wins, what is clamped, what is refused.

import { describe, expect, it } from 'vitest';
import { checkConfig } from './config/check.ts';
import type { ConfigInput } from '../contract/config.ts';
import type { PolicyFields } from '../contract/policy.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import { decideLevel } from './runtime.ts';
import { checkEnvironment, defaultEnvironment, isDangerous } from './environment.ts';
import { resolvePolicy } from './resolve.ts';
import { NO_LAYERS } from './layers.ts';
import type { Layers, RepositoryLayer } from './layers.ts';
import { formatBytes, parseBytes } from '../contract/units.ts';

const MIB = 1024 ** 2;
const host = { caller: { uid: 1001, gid: 1002 }, cpus: 2 };
const user = (config: ConfigInput): Layers => ({ ...NO_LAYERS, user: checkConfig(config, 'user.yml') });
const resolve = (input: PolicyFields, layers = NO_LAYERS) => resolvePolicy(input, layers, host);

describe('resolvePolicy', () => {
  it('gives every value a built-in default and says so', () => {
    const policy = resolve({});
    expect(Object.fromEntries(Object.entries(policy.limits).map(([name, { value }]) => [name, value]))).toEqual({
      memoryBytes: 512 * MIB,
      swapBytes: 0,
      cpus: 1,
      pids: 256,
      openFiles: 1024,
      tmpBytes: 64 * MIB,
      outputBytes: 10 * MIB,
    });
    expect(policy).toMatchObject({
      profile: { value: 'exec' },
      level: { value: 'auto' },
      network: { value: { kind: 'none' }, layer: 'built-in', where: 'default' },
      workspace: { value: 'direct' },
      timeoutMs: { value: 300_000 },
      user: { value: { uid: 1001, gid: 1002 } },
      warnings: [],
    });
  });

  it('lets the user’s file beat the defaults and the request beat the file, and knows where each came from', () => {
    const config = user({
      sandbox: {
        defaults: {
          memory_mb: 100,
          memory_swap_mb: 1,
          pids_limit: 10,
          cpu_limit: 0.5,
          open_files: 64,
          timeout_seconds: 1.5,
          user: '7:8',
        },
        mounts: { workspace_mode: 'ro', tmpfs_size: '8m' },
        output: { max_bytes: 77 },
        images: { default: 'mine:1' },
      },
    });
    const policy = resolve({ limits: { pids: 20 }, workspace: 'direct' }, config);
    expect(policy.limits.memoryBytes).toEqual({
      value: 100 * MIB,
      layer: 'user',
      where: 'user.yml (sandbox.defaults.memory_mb)',
    });
    expect(policy.limits.pids).toEqual({ value: 20, layer: 'request', where: 'policy.limits.pids' });
    expect(policy).toMatchObject({
      limits: {
        swapBytes: { value: MIB },
        cpus: { value: 0.5 },
        openFiles: { value: 64 },
        tmpBytes: { value: 8 * MIB },
        outputBytes: { value: 77 },
      },
      timeoutMs: { value: 1500, layer: 'user' },
      workspace: { value: 'direct', layer: 'request' },
      user: { value: { uid: 7, gid: 8 }, layer: 'user' },
      image: { value: 'mine:1' },
    });
    expect(resolve({}, config).workspace.value).toBe('readonly');
    expect(
      resolve({}, user({ sandbox: { mounts: { workspace_mode: 'rw' }, defaults: { user: 'host' } } })),
    ).toMatchObject({ workspace: { value: 'direct' }, user: { value: host.caller } });
  });

  it('has a profile for tasks and one for swarms', () => {
    expect(resolve({ profile: 'task' })).toMatchObject({
      profile: { value: 'task' },
      limits: { cpus: { value: 0.5 } },
    });
    expect(resolve({ profile: 'swarm' })).toMatchObject({
      limits: {
        memoryBytes: { value: 4096 * MIB },
        swapBytes: { value: 4096 * MIB },
        cpus: { value: 2 },
        pids: { value: 1000 },
      },
      timeoutMs: { value: 4 * 3600 * 1000 },
      network: { value: { kind: 'none' } },
    });
  });

  it('has a profile for a person’s own work that follows the machine', () => {
    const GIB = 1024 * MIB;
    const machines: readonly (readonly [cpus: number, memory: number, wantedCpus: number, wantedMemory: number])[] = [
      [1, 2 * GIB, 1, GIB],
      [2, 8 * GIB, 2, 2 * GIB],
      [16, 64 * GIB, 4, 4 * GIB],
      [4, 6.5 * GIB, 4, 1664 * MIB],
    ];
    for (const [cpus, memoryBytes, wantedCpus, wantedMemory] of machines) {
      const { profile, limits, timeoutMs } = resolvePolicy({}, NO_LAYERS, {
        ...host,
        cpus,
        memoryBytes,
        profile: 'dev',
      });
      const { memoryBytes: memory, swapBytes, cpus: given, pids, tmpBytes } = limits;
      expect([profile, timeoutMs]).toMatchObject([{ value: 'dev', layer: 'built-in' }, { value: 600_000 }]);
      expect(
        [given.value, memory.value, swapBytes.value, pids.value, tmpBytes.value],
        `${cpus} ${memoryBytes}`,
      ).toEqual([wantedCpus, wantedMemory, 0, 1024, Math.min(GIB, wantedMemory / 4)]);
    }
    expect(resolve({ profile: 'exec' }).limits.memoryBytes.value).toBe(512 * MIB);
    expect(resolve({}).profile.value).toBe('exec');
  });

  it('lowers what is above a ceiling, and says so', () => {
    const policy = resolve({ limits: { cpus: 64, memoryBytes: 2 ** 40, pids: 1e6, openFiles: 1e6 }, timeoutMs: 1e10 });
    expect(policy).toMatchObject({
      limits: {
        cpus: { value: 2 },
        memoryBytes: { value: 8 * 1024 * MIB },
        pids: { value: 2048 },
        openFiles: { value: 10_000 },
      },
      timeoutMs: { value: 86_400_000 },
    });
    expect(policy.warnings).toHaveLength(5);
    expect(policy.warnings[1]).toContain('the CPU limit was lowered from 64 to 2');
  });

  it('lowers a default to a small machine without a word', () => {
    expect(resolvePolicy({}, NO_LAYERS, { ...host, cpus: 0.5 })).toMatchObject({
      limits: { cpus: { value: 0.5 } },
      warnings: [],
    });
  });

  it.each<[string, PolicyFields]>([
    ['disk', { disk: { bytes: 1024 ** 3 } }],
    ['disk', { workspace: 'readonly', disk: { bytes: 1024 ** 3 } }],
    ['forkCopy', { forkCopy: true }],
    ['forkCopy', { workspace: 'readonly', forkCopy: true }],
  ])('refuses %s that has no effect yet, and never ignores it', (field, input) => {
    expect(() => resolve(input)).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-016', message: expect.stringContaining(`policy.${field}`) }),
    );
  });

  it('takes the name of a fork for a fork, and refuses one beside another kind of workspace', () => {
    expect(resolve({ fork: 'new' })).toMatchObject({
      workspace: { value: 'fork', layer: 'request' },
      fork: { value: 'new', layer: 'request' },
    });
    expect(resolve({ workspace: 'fork', fork: 'api' })).toMatchObject({ fork: { value: 'api' } });
    expect(resolve({ workspace: 'fork' })).toMatchObject({ workspace: { value: 'fork' }, fork: { value: null } });
    for (const workspace of ['direct', 'readonly'] as const)
      expect(() => resolve({ workspace, fork: 'api' })).toThrow(
        expect.objectContaining({ code: 'ACODE-SBX-017', context: expect.objectContaining({ field: 'policy.fork' }) }),
      );
  });

  it('takes the path of the workspace from the request, a repository, the user’s file, else the built-in one', () => {
    const file = (path: string) => checkConfig({ sandbox: { mounts: { workspace_path: path } } }, 'mine.yml');
    const theirs = { ...file('/theirs'), trusted: false, file: 'theirs.yml', hash: '' } as unknown as RepositoryLayer;
    const from = (input: PolicyFields, layers: Partial<Layers>) =>
      resolvePolicy(input, { ...NO_LAYERS, ...layers }, host).workspacePath;
    expect(from({}, {})).toMatchObject({ value: '/workspace', layer: 'built-in' });
    expect(from({}, { user: file('same') })).toMatchObject({ value: 'same', layer: 'user' });
    expect(from({}, { user: file('same'), repository: theirs })).toMatchObject({
      value: '/theirs',
      layer: 'repository',
    });
    expect(from({ workspacePath: '/src' }, { repository: theirs })).toMatchObject({ value: '/src', layer: 'request' });
    expect(() => resolve({ workspacePath: 'src' })).toThrow(/policy.workspacePath/);
  });

  it('takes a hard disk limit from the request alone', () => {
    expect(resolve({ fork: 'new', disk: { bytes: MIB, hard: true } }).diskHard).toMatchObject({
      value: true,
      layer: 'request',
    });
    expect(resolve({ fork: 'new', disk: { bytes: MIB } }).diskHard).toMatchObject({ value: false });
  });

  it('takes limits of disk throughput from files, and a repository only lowers them', () => {
    const file = (read_bps: string) => checkConfig({ sandbox: { defaults: { blkio: { read_bps } } } }, 'mine.yml');
    const from = (own: string | null, theirs: string | null) => {
      const repository =
        theirs === null
          ? null
          : ({ ...file(theirs), trusted: false, file: 'theirs.yml', hash: '' } as unknown as RepositoryLayer);
      return resolvePolicy({}, { ...NO_LAYERS, ...(own === null ? {} : { user: file(own) }), repository }, host);
    };
    expect(from(null, null)).toMatchObject({ diskReadRate: { value: null }, diskWriteRate: { value: null } });
    expect(from('2m', null)).toMatchObject({ diskReadRate: { value: 2 * MIB, layer: 'user' } });
    expect(from('2m', '8m')).toMatchObject({ diskReadRate: { value: 2 * MIB, layer: 'user' } });
    expect(from('2m', '1m')).toMatchObject({ diskReadRate: { value: MIB, layer: 'repository' } });
    expect(() => file('512k')).toThrow(/read_bps/);
  });

  it('takes a disk limit for a fork, from the request, else from a file', () => {
    const file = (size: string) => checkConfig({ sandbox: { mounts: { fork_size: size } } }, 'mine.yml');
    const repository = { ...file('1g'), trusted: false, file: 'theirs.yml', hash: '' } as unknown as RepositoryLayer;
    const from = (size: string | null, input: PolicyFields = { workspace: 'fork' }, theirs = false) =>
      resolvePolicy(
        input,
        { ...NO_LAYERS, ...(size === null ? {} : { user: file(size) }), repository: theirs ? repository : null },
        host,
      ).diskBytes;
    expect(from(null)).toMatchObject({ value: null, layer: 'built-in' });
    expect(from('2g')).toMatchObject({ value: 2 * 1024 ** 3, layer: 'user' });
    expect(from('2g', { fork: 'api', disk: { bytes: 4 * 1024 ** 3, hard: false } })).toMatchObject({
      value: 4 * 1024 ** 3,
      layer: 'request',
    });
    // A repository may ask for less, and never for more.
    expect(from('2g', {}, true)).toMatchObject({ value: 1024 ** 3, layer: 'repository' });
    expect(from('512m', {}, true)).toMatchObject({ value: 512 * 1024 ** 2, layer: 'user' });
    expect(from(null, {}, true)).toMatchObject({ value: 1024 ** 3, layer: 'repository' });
    expect(() => resolve({ fork: 'api', disk: { bytes: 1 } })).toThrow(/policy.disk/);
  });

  it('takes the harmless forms of those', () => {
    expect(() =>
      resolve({ network: 'none', ports: [], dns: [], mounts: [], caches: false, pull: 'never', level: 'docker' }),
    ).not.toThrow();
  });

  it.each<[string, unknown, string]>([
    ['a misspelt field', { limit: {} }, 'policy: limit is not a known field (did you mean limits?).'],
    [
      'a misspelt limit',
      { limits: { memory: 1 } },
      'policy.limits: memory is not a known field (did you mean memoryBytes?).',
    ],
    ['a limit beside the limits', { memory_mb: 1 }, '(did you mean limits.memoryBytes?)'],
    ['a field among the limits', { limits: { timeout: 1 } }, '(did you mean policy.timeoutMs?)'],
    ['text for a number', { limits: { memoryBytes: '1024; id' } }, 'policy.limits.memoryBytes'],
    ['a negative limit', { limits: { pids: -1 } }, 'policy.limits.pids'],
    ['no limit on processes', { limits: { pids: 0 } }, 'policy.limits.pids'],
    ['an unknown level', { level: 'strongest' }, 'policy.level'],
    ['a user by name', { user: 'root' }, 'policy.user'],
    ['a user without a group', { user: '1000' }, 'policy.user'],
    ['too little memory', { limits: { memoryBytes: 1024 } }, 'the minimum is 6 MiB'],
    ['a user beyond what kernels have', { user: '4294967296:1' }, 'uid:gid'],
    ['almost no CPU', { limits: { cpus: 1e-10 } }, 'policy.limits.cpus'],
    ['too few processes', { limits: { pids: 2 } }, 'policy.limits.pids'],
    ['an image like an option', { image: '-v' }, 'not an image reference'],
    ['an image with a space', { image: ' x' }, 'not an image reference'],
    ['an image like a path', { image: '../x' }, 'not an image reference'],
    ['an image with a newline', { image: 'x\n' }, 'not an image reference'],
    ['privileged mode', { privileged: true }, 'privileged is not a known field.'],
    ['capabilities', { capAdd: ['SYS_ADMIN'] }, 'capAdd is not a known field.'],
  ])('refuses %s', (_, input, part) => {
    expect(() => resolve(input as PolicyFields)).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-017', message: expect.stringContaining(part) }),
    );
  });

  it.each(['0:0', '0:5', '5:0'] as const)('refuses root as %s', root => {
    expect(() => resolve({ user: root })).toThrow(expect.objectContaining({ code: 'ACODE-SBX-010' }));
  });
});

describe('decideLevel', () => {
  it('takes the strongest there is, and exactly what was asked for', () => {
    expect(decideLevel('auto', ['docker'])).toBe('docker');
    expect(decideLevel('auto', ['docker', 'gvisor'])).toBe('gvisor');
    expect(decideLevel('docker', ['docker'])).toBe('docker');
  });

  it.each([
    ['auto', []],
    ['gvisor', ['docker']],
  ] as const)('fails closed for %s where there is %j', (asked, available) => {
    expect(() => decideLevel(asked, available)).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-012', message: expect.stringContaining('fail-closed') }),
    );
  });
});

describe('a level weaker than what there is', () => {
  it('is refused in words of its own, and never chosen', () => {
    expect(() => decideLevel('none', ['docker'])).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-016', message: expect.stringContaining('policy.level: none') }),
    );
  });
});

describe('defaultEnvironment', () => {
  const spec = (of: Partial<SandboxSpec>, environment: readonly string[] = []) =>
    ({ level: 'docker', network: { kind: 'none' }, image: { environment }, mounts: [], ...of }) as SandboxSpec;

  it('tells package managers to work offline where there is no network', () => {
    const names = Object.keys(defaultEnvironment(spec({})));
    expect(names).toEqual(
      expect.arrayContaining(['npm_config_offline', 'PIP_NO_INDEX', 'CARGO_NET_OFFLINE', 'GOPROXY']),
    );
    expect(defaultEnvironment(spec({ level: 'bubblewrap' }))).toEqual(defaultEnvironment(spec({})));
    expect(() => checkEnvironment(defaultEnvironment(spec({})))).not.toThrow();
  });

  it.each([
    ['a bridge', { network: { kind: 'bridge' } }],
    ['a network by name', { network: { kind: 'named', name: 'n' } }],
    ['the host’s own network', { level: 'ulimit' }],
    ['the host’s own network and nothing else', { level: 'none' }],
  ] as const)('sets nothing with %s', (_, of) => {
    expect(defaultEnvironment(spec(of))).toEqual({});
  });

  it('leaves what the image sets', () => {
    const found = defaultEnvironment(spec({}, ['GOPROXY=file:///modules', 'PIP_NO_INDEX=', 'PATH=/bin']));
    expect(found).not.toHaveProperty('GOPROXY');
    expect(found).not.toHaveProperty('PIP_NO_INDEX');
    expect(found).toHaveProperty('npm_config_offline', 'true');
  });
});

describe('checkEnvironment', () => {
  it('takes ordinary variables', () => {
    expect(() => checkEnvironment({ A: '1', _b2: 'x\n', PYTHONUNBUFFERED: '1', CI: 'true' })).not.toThrow();
  });

  it.each([
    'LD_PRELOAD',
    'LD_LIBRARY_PATH',
    'PATH',
    'NODE_OPTIONS',
    'BASH_ENV',
    'ENV',
    'IFS',
    'PYTHONSTARTUP',
    'PERL5OPT',
    'GIT_SSH_COMMAND',
    'GIT_CONFIG_COUNT',
    'DOCKER_HOST',
    'DYLD_INSERT_LIBRARIES',
    'TINI_SUBREAPER',
  ])('refuses %s', name => {
    expect(isDangerous(name)).toBe(true);
    expect(() => checkEnvironment({ [name]: 'x' })).toThrow(expect.objectContaining({ code: 'ACODE-SBX-010' }));
  });

  it.each(['', 'A B', 'A=B', '1A', 'A;id', 'A\n'])('refuses the name %j', name => {
    expect(() => checkEnvironment({ [name]: 'x' })).toThrow(expect.objectContaining({ code: 'ACODE-SBX-017' }));
  });

  it('refuses a NUL', () => {
    expect(() => checkEnvironment({ A: 'a\0b' })).toThrow(expect.objectContaining({ code: 'ACODE-SBX-017' }));
  });
});

describe('sizes', () => {
  it.each([
    ['512', 512 * MIB],
    ['512m', 512 * MIB],
    ['1.5g', 1.5 * 1024 * MIB],
    ['64KiB', 65_536],
    ['100 b', 100],
    ['2T', 2 * 1024 ** 4],
    [' 1G ', 1024 * MIB],
  ])('%s is %d bytes', (text, bytes) => {
    expect(parseBytes(text)).toBe(bytes);
  });

  it.each(['', 'x', '-512m', '1024; id', '1.2.3', '1e9', '5x', '9999999999t', '.5g'])('%j is none', text => {
    expect(parseBytes(text)).toBeNull();
  });

  it.each([
    [0, '0 bytes'],
    [1023, '1023 bytes'],
    [1536, '1.5 KiB'],
    [64 * MIB, '64 MiB'],
    [3 * 1024 ** 4, '3 TiB'],
    [1024 ** 5, '1024 TiB'],
  ])('%d bytes read as %s', (bytes, text) => {
    expect(formatBytes(bytes)).toBe(text);
  });
});
