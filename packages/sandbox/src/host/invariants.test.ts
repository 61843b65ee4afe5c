// Invariants of the engine request hold for any layers, request, image and paths; otherwise nothing reaches the engine.
//
// The checks are written from the rules and not from the code: which requests may have a network, where mounts may come
// from, which limits are required. The pipeline is the real one, from text and objects to the engine request, on a real
// directory tree.

import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, sep } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { networkName as nameOf } from '../contract/network.ts';
import { checkConfig, holdTo } from '../policy/config/check.ts';
import { machineSchema } from '../policy/config/schema.ts';
import { AcodeError } from '../contract/errors.ts';
import type { MountSpec } from '../contract/spec.ts';
import { createRequest } from '../isolation/docker/request.ts';
import { seccompProfile } from '../isolation/seccomp/profile.ts';
import { WORKSPACE_TARGET, planSandbox } from '../isolation/plan.ts';
import type { Layers, RepositoryLayer } from '../policy/layers.ts';
import { CEILINGS } from '../policy/profiles.ts';
import { resolvePolicy } from '../policy/resolve.ts';
import { validateWorkspace } from '../workspace/locate.ts';
import { planMounts } from '../workspace/mounts.ts';

const CASES = 20_000 * Number(process.env['ACODE_PROPERTY_FACTOR'] ?? 1);
const MIB = 1024 ** 2;
const SECCOMP = seccompProfile('x86_64');
const BUILT_IN_RUNTIMES = /^(?:runc|runsc|crun|kata.*|sysbox-runc|io\.containerd\.(?:runc|kata|runsc).*)$/;

// A small model of a machine: a project full of hostile files, a shared folder, a secret, and acode’s own directories.
let top: string;
let tree: {
  readonly project: string;
  readonly shared: string;
  readonly secret: string;
  readonly directories: Parameters<typeof validateWorkspace>[1];
};

beforeAll(() => {
  top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-invariants-')));
  const at = (...names: string[]): string => join(top, ...names);
  for (const name of [
    'p/proj/.git/hooks',
    'p/proj/.agent',
    'p/proj/sub/deep',
    'p/proj-evil',
    'shared/data',
    'home/.ssh',
  ])
    mkdirSync(at(name), { recursive: true });
  for (const name of ['config/acode', 'state/acode', 'run/acode']) mkdirSync(at(name), { recursive: true });
  writeFileSync(at('home/.ssh/id'), 'secret');
  symlinkSync(at('home/.ssh'), at('p/proj/link-to-secret'));
  symlinkSync('/etc', at('p/proj/link-to-etc'));
  symlinkSync(at('shared'), at('p/proj/link-to-shared'));
  symlinkSync(at('p/proj/.git'), at('shared/link-to-git'));
  symlinkSync('/', at('shared/link-to-root'));
  tree = {
    project: at('p/proj'),
    shared: at('shared'),
    secret: at('home/.ssh'),
    directories: {
      home: at('home'),
      config: at('config/acode'),
      state: at('state/acode'),
      runtime: at('run/acode'),
    },
  };
});
afterAll(() => rmSync(top, { recursive: true, force: true }));

const wild = fc.oneof(
  fc.string(),
  fc.integer(),
  fc.boolean(),
  fc.constant(null),
  fc.array(fc.string(), { maxLength: 2 }),
  fc.dictionary(fc.string(), fc.string(), { maxKeys: 2 }),
);
const mostly = <Value>(usual: fc.Arbitrary<Value>): fc.Arbitrary<unknown> =>
  fc.oneof({ weight: 60, arbitrary: usual }, { weight: 1, arbitrary: wild });
// Mostly valid values, and some that no user should write: unless enough requests of both kinds pass, a property proves
// nothing.
const biased = <Value>(good: readonly Value[], bad: readonly Value[]): fc.Arbitrary<Value> =>
  fc.oneof({ weight: 12, arbitrary: fc.constantFrom(...good) }, { weight: 1, arbitrary: fc.constantFrom(...bad) });
const ABSENT = Symbol('absent');
const some = (shape: Record<string, fc.Arbitrary<unknown>>, present = 1): fc.Arbitrary<Record<string, unknown>> => {
  const maybe = (value: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
    fc.oneof({ weight: present, arbitrary: value }, { weight: 3, arbitrary: fc.constant(ABSENT) });
  return fc
    .record(Object.fromEntries(Object.entries(shape).map(([key, value]) => [key, maybe(value)])))
    .map(record => Object.fromEntries(Object.entries(record).filter(([, value]) => value !== ABSENT)));
};

const megabytes = fc.oneof(
  fc.integer({ min: 8, max: 20_000 }),
  biased<unknown>(['512m', '1.5g'], ['9t', '0', -1, '64k']),
);
const limits = {
  cpu_limit: mostly(fc.double({ min: 0.01, max: 100, noNaN: true })),
  memory_mb: mostly(megabytes),
  memory_swap_mb: mostly(fc.integer({ min: 0, max: 20_000 })),
  pids_limit: mostly(fc.integer({ min: 8, max: 10_000 })),
  open_files: mostly(fc.integer({ min: 32, max: 100_000 })),
  timeout_seconds: mostly(fc.integer({ min: 1, max: 80_000 })),
};
const networkName = biased(['mine', 'theirs'], ['host', 'container:x', 'default', 'evil']);
const networkMode = biased(['none', 'bridge', 'mine'], ['host', 'container:x', 'theirs']);
const hostRoot = biased(['shared', 'p'], ['home', '', '/', '/etc', 'shared/link-to-root']).map(rooted);
const image = biased(['docker.io/library/node:20', 'mine:1'], ['evil/node', '-rf', 'a b', 'x@sha256:00']);
const runtime = biased(['runc', 'runsc', 'kata-fc'], ['nvidia', 'evil', 'sysbox-runc']);
const sourceOf = fc
  .oneof(
    fc.constantFrom('sub', 'sub/deep', '@shared/data', '@shared', 'link-to-shared'),
    fc.constantFrom(
      '.git',
      '.git/hooks',
      '.',
      '..',
      'link-to-secret',
      'link-to-etc',
      '../proj-evil',
      '@shared/link-to-git',
      '@shared/link-to-root',
      '@home/.ssh',
      '@home',
      '@config',
      '@p/proj',
      '@p',
      '/',
      '/etc',
      '/proc/self/root',
      '/var/run/docker.sock',
      'missing',
      'a\0b',
      String.raw`C:\Windows`,
    ),
  )
  .map(path => (path.startsWith('@') ? rooted(path.slice(1)) : path));
const mountTarget = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom('/data', '/data/inner', '/mnt/x', '/srv/y/', '//mnt//z') },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      '/workspace',
      '/workspace/.git',
      '/workspace/x',
      '/proc/x',
      '/sys',
      '/dev/shm',
      '/etc',
      '/usr/bin',
      '/',
      'relative',
      '/data/../proc',
      '/tmp',
      '/home/sandbox',
    ),
  },
);
const ports = fc.array(
  fc.record(
    { container: fc.integer({ min: 1, max: 66_000 }), host: fc.integer({ min: 1, max: 66_000 }) },
    { requiredKeys: ['container'] },
  ),
  { maxLength: 2 },
);
const servers = fc.array(biased(['10.0.0.1', '::1'], ['evil', '10.0.0.1 x']), { maxLength: 3 });
const configMounts = fc.array(
  fc.record({ source: sourceOf, target: mountTarget, readonly: fc.boolean() }, { requiredKeys: ['source', 'target'] }),
  { maxLength: 1 },
);
const ownConfig = some(
  {
    mode: mostly(biased(['local-only'], ['airgapped'])),
    sandbox: some(
      {
        level: mostly(biased(['auto', 'docker'], ['none', 'gvisor'])),
        runtime: mostly(runtime),
        defaults: some({
          ...limits,
          network: mostly(fc.boolean()),
          user: mostly(biased(['host', '5:5'], ['0:0', 'root'])),
        }),
        network: some(
          {
            mode: mostly(networkMode),
            dns_servers: mostly(servers),
            ports: mostly(ports),
            allowed_networks: mostly(fc.array(networkName, { maxLength: 2 })),
            allow_bridge: mostly(fc.boolean()),
            timeout_seconds: mostly(fc.integer({ min: 1, max: 100 })),
          },
          2,
        ),
        images: some({ default: mostly(image) }),
        mounts: some(
          {
            workspace_mode: mostly(fc.constantFrom('rw', 'ro')),
            tmpfs_size: mostly(megabytes),
            workspace_path: mostly(fc.constantFrom('same', '/src')),
            fork_size: mostly(megabytes),
            allowed_host_roots: mostly(fc.array(hostRoot, { maxLength: 2 })),
            additional: configMounts,
          },
          2,
        ),
        security: some({
          capabilities_add: biased<unknown>([[]], [['SYS_ADMIN']]),
          seccomp_profile: biased(['default'], ['unconfined']),
          readonly_rootfs: biased([true], [false]),
          allowed_runtimes: mostly(fc.array(runtime, { maxLength: 2 })),
        }),
        ceilings: some(limits),
      },
      2,
    ),
  },
  9,
);
// Mostly settings that a repository may contain, and some that it may not.
const repositoryConfig = fc.oneof(
  {
    weight: 6,
    arbitrary: some({
      mode: fc.constantFrom('local-only', 'airgapped'),
      sandbox: some(
        {
          level: biased(['auto', 'docker'], ['none']),
          runtime: biased(['runsc'], ['evil', 'runc']),
          defaults: some({ ...limits, network: fc.boolean() }),
          network: some({ mode: networkMode, ports, dns_servers: servers }),
          images: some({ default: image }),
          mounts: some({ workspace_mode: fc.constantFrom('rw', 'ro'), additional: configMounts }),
        },
        2,
      ),
    }),
  },
  { weight: 1, arbitrary: ownConfig },
);
const request = some({
  profile: mostly(fc.constantFrom('exec', 'task', 'swarm')),
  level: mostly(biased(['auto', 'docker'], ['none', 'ulimit'])),
  runtime: mostly(runtime),
  image: mostly(image),
  limits: some({
    memoryBytes: mostly(fc.integer({ min: 5 * MIB, max: 2 ** 36 })),
    swapBytes: mostly(fc.integer({ min: 0, max: 2 ** 36 })),
    cpus: mostly(fc.double({ min: 0.01, max: 1e6, noNaN: true })),
    pids: mostly(fc.integer({ min: 7, max: 1e7 })),
    openFiles: mostly(fc.integer({ min: 32, max: 1e7 })),
    tmpBytes: mostly(fc.integer({ min: 60_000, max: 2 ** 36 })),
    outputBytes: mostly(fc.integer({ min: 0, max: 2 ** 36 })),
  }),
  timeoutMs: mostly(fc.integer({ min: 1, max: 1e9 })),
  network: mostly(
    fc.oneof(
      fc.constantFrom<unknown>('none', 'bridge', 'bridge', { name: 'mine' }),
      fc.record({ name: networkName }),
      fc.constant('host'),
    ),
  ),
  ports: mostly(ports),
  dns: mostly(servers),
  workspace: mostly(fc.constantFrom('direct', 'readonly')),
  mounts: mostly(
    fc.array(
      fc.record(
        { source: sourceOf, target: mountTarget, readOnly: fc.boolean() },
        { requiredKeys: ['source', 'target'] },
      ),
      { minLength: 1, maxLength: 2 },
    ),
  ),
  user: mostly(biased(['caller', '5:5'], ['0:0', '5:0'])),
});
const volumes = fc.oneof(
  { weight: 4, arbitrary: fc.constant<string[]>([]) },
  {
    weight: 1,
    arbitrary: fc.array(
      fc.oneof(fc.constantFrom('/data', '/proc/x', '/workspace/.git', '/', '/workspace', '/tmp'), fc.string()),
      { maxLength: 2 },
    ),
  },
);
const machine = some({
  mode: biased(['local-only'], ['airgapped']),
  sandbox: some(
    {
      ceilings: some(limits),
      network: some({ allow_bridge: fc.boolean(), allowed_networks: fc.array(networkName, { maxLength: 2 }) }),
      mounts: some({ allowed_host_roots: fc.array(hostRoot, { maxLength: 2 }) }),
      security: some({ allowed_runtimes: fc.array(runtime, { maxLength: 2 }) }),
    },
    2,
  ),
});

// `@` stands for the root of the tree, which exists only once the tests run.
const rootMark = '\u{1}';
function rooted(path: string): string {
  return path.startsWith('/') ? path : `${rootMark}/${path}`;
}
function placed<Value>(value: Value): Value {
  return JSON.parse(JSON.stringify(value).replaceAll(String.raw`\u0001`, top)) as Value;
}

interface Generated {
  readonly request: Record<string, unknown>;
  readonly user: Record<string, unknown>;
  readonly repository: Record<string, unknown> | null;
  readonly trusted: boolean;
  readonly machine: Record<string, unknown> | null;
  readonly volumes: readonly string[];
}

const generated: fc.Arbitrary<Generated> = fc.record({
  request,
  user: ownConfig,
  repository: fc.oneof(fc.constant(null), repositoryConfig),
  trusted: fc.boolean(),
  machine: fc.oneof({ weight: 2, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: machine }),
  volumes,
});

function layersOf({ user, repository, trusted, machine: limit }: Generated): Layers {
  const loaded = repository === null ? null : checkConfig(repository, '.agent/config.yml');
  const layer: RepositoryLayer | null = loaded
    ? { ...loaded, root: tree.project, file: join(tree.project, '.agent/config.yml'), hash: 'sha256:0', trusted }
    : null;
  return {
    machine:
      limit === null ? null : holdTo(machineSchema, { value: limit, source: 'policy.yml', where: () => 'policy.yml' }),
    user: checkConfig(user, 'config.yml'),
    repository: layer,
    environmentMode: null,
  };
}

interface Outcome {
  readonly layers: Layers;
  readonly mounts: readonly MountSpec[];
  readonly body: Body;
  /** Whether the request named a runtime. */
  readonly runtimeAsked: boolean;
}

interface Body {
  readonly User: string;
  readonly HostConfig: Record<string, unknown> & {
    readonly Mounts: { Source: string; Target: string; ReadOnly: boolean; Type: string; BindOptions: object }[];
  };
}

// The pipeline from layers to the engine request. Null if it refused, which it may do only with an AcodeError.
async function throughThePipe(input: Generated): Promise<Outcome | null> {
  try {
    const layers = layersOf(input);
    const policy = resolvePolicy(input.request, layers, { caller: { uid: 1001, gid: 1001 }, cpus: 2 });
    const workspace = await validateWorkspace(tree.project, tree.directories, { engineSocket: '/var/run/docker.sock' });
    const { mounts } = await planMounts({
      workspace,
      target: WORKSPACE_TARGET,
      readOnly: policy.workspace.value === 'readonly',
      additional: policy.mounts.value,
      hostRoots: policy.hostRoots.value,
      uid: process.getuid?.() ?? 0,
    });
    const facts = {
      reference: policy.image.value,
      id: 'sha256:aa',
      digest: 'sha256:aa',
      environment: ['PATH=/bin', 'LD_PRELOAD=/x.so'],
      volumes: input.volumes,
      repositoryDigests: [],
    };
    const spec = planSandbox(policy, { level: 'docker', image: facts, mounts }, () => ({
      sandboxId: 's',
      name: 'n',
      labels: {},
      correlationId: 'c',
    }));
    const { network } = policy;
    const name = nameOf(network.value);
    // The request is written field by field from the plan; its shape is what is under test.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const body = createRequest(spec, { network: name, runtime: 'runc', seccomp: SECCOMP }) as unknown as Body;
    return { layers, mounts, body, runtimeAsked: input.request.runtime !== undefined };
  } catch (error) {
    if (error instanceof AcodeError) return null;
    throw error;
  }
}

const FIXED = {
  Privileged: false,
  CapAdd: [],
  CapDrop: ['ALL'],
  SecurityOpt: ['no-new-privileges', `seccomp=${SECCOMP}`],
  ReadonlyRootfs: true,
  IpcMode: 'private',
  CgroupnsMode: 'private',
  PidMode: '',
  UTSMode: '',
  UsernsMode: '',
  Devices: [],
  DeviceRequests: [],
  DeviceCgroupRules: [],
  GroupAdd: [],
  ExtraHosts: [],
  Sysctls: {},
  PublishAllPorts: false,
  AutoRemove: false,
  OomKillDisable: false,
};
const FREE = [
  'NetworkMode',
  'Mounts',
  'Tmpfs',
  'ShmSize',
  'Memory',
  'MemorySwap',
  'NanoCpus',
  'PidsLimit',
  'OomScoreAdj',
  'Ulimits',
  'LogConfig',
  'RestartPolicy',
  'PortBindings',
  'Dns',
  'Init',
  'Runtime',
];

function checkHardening({ body }: Outcome): void {
  expect(body.User).toMatch(/^[1-9]\d*:[1-9]\d*$/);
  expect(body.HostConfig).toMatchObject(FIXED);
  const unknown = Object.keys(body.HostConfig).filter(key => !(key in FIXED) && !FREE.includes(key));
  expect(unknown).toEqual([]);
  expect(JSON.stringify(body)).not.toContain('LD_PRELOAD=');
}

function checkLimits({ body, layers }: Outcome): void {
  const { Memory, MemorySwap, NanoCpus, PidsLimit, Ulimits, Tmpfs, ShmSize } = body.HostConfig as unknown as Record<
    string,
    number
  > & { Ulimits: { Name: string; Soft: number; Hard: number }[]; Tmpfs: Record<string, string> };
  const ceilings = [layers.user, layers.machine].map(layer => layer?.config.sandbox?.ceilings);
  const most = (built: number, read: (one: NonNullable<(typeof ceilings)[number]>) => number | undefined): number =>
    Math.min(built, ...ceilings.flatMap(one => (one ? [read(one) ?? Infinity] : [])));
  expect(Memory).toBeGreaterThanOrEqual(6 * MIB);
  expect(Memory).toBeLessThanOrEqual(most(CEILINGS.memoryBytes, one => one.memory_mb));
  expect(MemorySwap).toBeGreaterThanOrEqual(Memory ?? NaN);
  expect(NanoCpus).toBeGreaterThan(0);
  expect(NanoCpus).toBeLessThanOrEqual(Math.max(1e7, most(2, one => one.cpu_limit) * 1e9 + 1));
  expect(PidsLimit).toBeGreaterThan(0);
  expect(PidsLimit).toBeLessThanOrEqual(most(CEILINGS.pids, one => one.pids_limit));
  expect(ShmSize).toBeGreaterThan(0);
  expect(Ulimits.map(({ Name }) => Name)).toEqual(expect.arrayContaining(['nofile', 'core']));
  for (const options of Object.values(Tmpfs)) expect(options).toMatch(/size=\d+,nr_inodes=\d+/);
}

function checkNetwork({ body, layers }: Outcome): void {
  const mode = body.HostConfig['NetworkMode'];
  const { user, machine: limit, repository } = layers;
  const airgapped = [user, limit, repository].some(layer => layer?.config.mode === 'airgapped');
  const bindings = Object.values((body.HostConfig['PortBindings'] ?? {}) as Record<string, { HostIp: string }[]>);
  for (const [binding] of bindings) expect(binding?.HostIp).toBe('127.0.0.1');
  if (mode === 'none') {
    expect([bindings, body.HostConfig['Dns']]).toEqual([[], []]);
    return;
  }
  expect(airgapped).toBe(false);
  if (mode === 'bridge') {
    expect(user.config.sandbox?.network?.allow_bridge).toBe(true);
    expect(limit?.config.sandbox?.network?.allow_bridge).not.toBe(false);
    return;
  }
  // Any name from the user’s own file, but never one that has a special meaning for the engine.
  expect(['mine', 'theirs', 'evil']).toContain(mode);
  expect(user.config.sandbox?.network?.allowed_networks).toContain(mode);
  const machines = limit?.config.sandbox?.network?.allowed_networks;
  if (machines) expect(machines).toContain(mode);
}

function checkRuntime({ body, layers, runtimeAsked }: Outcome): void {
  const name = body.HostConfig['Runtime'];
  if (typeof name !== 'string' || BUILT_IN_RUNTIMES.test(name)) return;
  // If no layer named a runtime, the first one that the machine allows replaces a default that it might not allow.
  const [machines] = layers.machine?.config.sandbox?.security?.allowed_runtimes ?? [];
  const users = layers.user.config.sandbox?.security?.allowed_runtimes ?? [];
  const asked =
    runtimeAsked || [layers.user, layers.repository].some(layer => layer?.config.sandbox?.runtime !== undefined);
  expect(asked || machines === undefined ? users : [...users, machines]).toContain(name);
}

function within(path: string, root: string): boolean {
  const way = relative(root, path);
  return way === '' || (way !== '..' && !way.startsWith(`..${sep}`) && !way.startsWith(sep));
}

function checkMounts({ body, layers }: Outcome): void {
  const { Mounts } = body.HostConfig;
  const roots = (layers.user.config.sandbox?.mounts?.allowed_host_roots ?? []).map(root => safeReal(root));
  const machineRoots = layers.machine?.config.sandbox?.mounts?.allowed_host_roots?.map(root => safeReal(root));
  const closed = [tree.secret, tree.directories.home, tree.directories.config, '/etc', '/proc', '/sys', '/dev', '/run'];
  const targets = new Set<string>();
  for (const { Source, Target, Type, BindOptions } of Mounts) {
    expect(Type).toBe('bind');
    expect(BindOptions).toEqual({ Propagation: 'rprivate', NonRecursive: true });
    expect(realpathSync(Source)).toBe(Source);
    const inProject = within(Source, tree.project);
    const inRoots = roots.some(root => within(Source, root));
    const inMachine = machineRoots === undefined || machineRoots.some(root => within(Source, root));
    expect(inProject || (inRoots && inMachine)).toBe(true);
    for (const place of closed) expect(within(Source, place) || within(place, Source)).toBe(false);
    for (const place of ['/proc', '/sys', '/dev', '/etc', '/usr', '/bin'])
      expect(within(Target, place) || Target === '/').toBe(false);
    expect(targets.has(Target)).toBe(false);
    targets.add(Target);
  }
  checkProtection(Mounts);
}

// The contents of the project’s `.git` and `.agent` are read-only, whatever writable mount contains them.
function checkProtection(mounts: Body['HostConfig']['Mounts']): void {
  for (const name of ['.git', '.agent']) {
    const path = join(tree.project, name);
    for (const { Source, Target } of mounts.filter(({ ReadOnly }) => !ReadOnly)) {
      expect(within(Source, path)).toBe(false);
      if (!within(path, Source)) continue;
      const inside = join(Target, relative(Source, path));
      expect(mounts.some(one => one.Target === inside && one.Source === path && one.ReadOnly)).toBe(true);
    }
  }
}

function safeReal(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

describe('no combination of layers, request, image and paths', () => {
  it('yields an engine request that breaks an invariant', { timeout: 900_000 }, async () => {
    let accepted = 0;
    let networks = 0;
    let further = 0;
    await fc.assert(
      fc.asyncProperty(generated, async input => {
        const outcome = await throughThePipe(placed(input));
        if (!outcome) return;
        accepted += 1;
        if (outcome.body.HostConfig['NetworkMode'] !== 'none') networks += 1;
        if (outcome.mounts.some(({ purpose }) => purpose === 'additional')) further += 1;
        checkHardening(outcome);
        checkLimits(outcome);
        checkNetwork(outcome);
        checkRuntime(outcome);
        checkMounts(outcome);
      }),
      { numRuns: CASES },
    );
    process.stdout.write(
      `FIGURE ${CASES} cases, ${accepted} accepted, ${networks} with a network, ${further} with further mounts\n`,
    );
    // A property that holds only because every request is refused proves nothing.
    expect(accepted).toBeGreaterThan(CASES / 100);
    expect(networks).toBeGreaterThan(0);
    expect(further).toBeGreaterThan(0);
  });
});
