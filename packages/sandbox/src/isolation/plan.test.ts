// The plan and the engine request are pure, complete and hardened, whatever the policy.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { NetworkMode } from '../contract/network.ts';
import type { PolicyFields } from '../contract/policy.ts';
import type { MountSpec } from '../contract/spec.ts';
import { CEILINGS } from '../policy/profiles.ts';
import { NO_LAYERS } from '../policy/layers.ts';
import { resolvePolicy } from '../policy/resolve.ts';
import { containerEnvironment, createRequest, joinedNetwork } from './docker/request.ts';
import { planSandbox, type PlanFacts } from './plan.ts';

const FACTOR = Number(process.env['ACODE_PROPERTY_FACTOR'] ?? 1);
const MIB = 1024 ** 2;
const workspaceMount = (source: string, inode: number): MountSpec => ({
  purpose: 'workspace',
  source,
  target: '/workspace',
  readOnly: false,
  identity: { device: 1, inode },
});
const engine = { network: 'none', runtime: 'runc', seccomp: '{}' };
const facts: PlanFacts = {
  level: 'docker',
  image: {
    reference: 'mine:1',
    id: 'sha256:aa',
    digest: 'sha256:bb',
    environment: ['PATH=/bin', 'LD_PRELOAD=/x.so', 'LANG=C', 'NODE_OPTIONS=--inspect', 'EMPTY'],
    volumes: ['/data', '/data/', '/tmp/', '/workspace'],
    repositoryDigests: [],
  },
  mounts: [workspaceMount('/w:x,source=/etc', 2)],
};
const policy = (input: PolicyFields = {}) =>
  resolvePolicy(input, NO_LAYERS, { caller: { uid: 1001, gid: 1002 }, cpus: 2 });
const plan = (input: PolicyFields = {}, more: Partial<PlanFacts> = {}) =>
  planSandbox(policy(input), { ...facts, ...more }, hash => ({
    sandboxId: 'id',
    name: 'acode-x-run-001',
    labels: { 'acode.spec': hash },
    correlationId: 'c',
  }));

describe('planSandbox', () => {
  it('takes the image’s environment without what loads code', () => {
    expect(plan().image).toMatchObject({
      environment: ['PATH=/bin', 'LANG=C', 'EMPTY'],
      removed: ['LD_PRELOAD', 'NODE_OPTIONS'],
    });
  });

  it('begins in the workspace, wherever that is', () => {
    const at = { ...workspaceMount('/w', 2), target: '/src/app' };
    expect([plan(), plan({}, { mounts: [at] }), plan({}, { mounts: [] })].map(({ workdir }) => workdir)).toEqual([
      '/workspace',
      '/src/app',
      '/workspace',
    ]);
  });

  it('has services with sandboxes of their own: no workspace, no network, volumes in memory', () => {
    const alone = { mounts: [], alone: { workdir: '/srv' } };
    const service = {
      name: 'db',
      port: 5432,
      argv: ['/db'],
      environment: { A: '1' },
      readyMs: 1000,
      spec: plan({}, alone),
    };
    const { services, hash, identity } = plan({}, { services: [service] });
    const [db] = services ?? [];
    expect(db?.spec).toMatchObject({ mounts: [], workdir: '/srv', network: { kind: 'none' }, hash: service.spec.hash });
    // The workspace is a directory like any other there.
    expect(db?.spec.tmpfs.map(({ target }) => target)).toEqual([
      '/tmp',
      '/run',
      '/home/sandbox',
      '/data',
      '/workspace',
    ]);
    expect(db?.spec.identity.labels).toMatchObject({ 'acode.service': 'db', 'acode.service-of': identity.sandboxId });
    const others = [
      plan(),
      plan({}, { services: [{ ...service, port: 5433 }] }),
      plan({}, { services: [{ ...service, environment: {} }] }),
      plan({}, { services: [{ ...service, spec: plan({ limits: { pids: 99 } }, alone) }] }),
    ];
    expect(new Set([hash, ...others.map(other => other.hash)]).size).toBe(5);
    // Who it is says nothing about what it can do.
    const named = { ...service.spec, identity: { ...service.spec.identity, name: 'other' } };
    expect(plan({}, { services: [{ ...service, spec: named }] }).hash).toBe(hash);
    expect(plan()).not.toHaveProperty('services');
    expect(createRequest(plan({}, { services: [service] }), engine)).toMatchObject({
      HostConfig: { ExtraHosts: ['db:127.0.0.1'], NetworkMode: 'none' },
    });
    const joined = createRequest(service.spec, { ...engine, network: joinedNetwork('abc') });
    expect(joined).not.toHaveProperty('Hostname');
    expect(joined).toMatchObject({ HostConfig: { NetworkMode: 'container:abc', ExtraHosts: [], CapDrop: ['ALL'] } });
    expect(JSON.stringify(joined)).not.toContain('A=1');
  });

  it('has one hash for every allow-list, and another than without a network', () => {
    const hash = (network: NetworkMode) =>
      planSandbox(
        { ...policy(), network: { value: network, layer: 'request', where: 'policy.network' } },
        facts,
        spec => ({
          sandboxId: 'id',
          name: 'acode-x-run-001',
          labels: { 'acode.spec': spec },
          correlationId: 'c',
        }),
      ).hash;
    const list = (entry: string): NetworkMode => ({ kind: 'allow', entries: [entry], rules: [] });
    expect(hash(list('a.example'))).toBe(hash(list('b.example')));
    expect(hash(list('a.example'))).not.toBe(hash({ kind: 'none' }));
  });

  it('has a place for what is to be brought out only where something is', () => {
    const targets = (artifacts: boolean) => plan({}, { artifacts }).tmpfs.map(({ target }) => target);
    expect(targets(true)).toContain('/out');
    expect(targets(false)).not.toContain('/out');
  });

  it('has a disk limit only where a fork is written', () => {
    const disk = { bytes: 16 * MIB };
    expect(plan({ workspace: 'fork', disk }).disk).toEqual(disk);
    expect('disk' in plan({ workspace: 'fork' })).toBe(false);
    const files = { ...policy(), diskBytes: { value: 16 * MIB, layer: 'user', where: 'x' } } as const;
    expect('disk' in planSandbox(files, facts, () => plan().identity)).toBe(false);
  });

  it('has the dependencies of a project image only where some are asked for', () => {
    const dependencies = [{ source: '/project/node_modules', target: '/workspace/node_modules' }];
    expect(plan({}, { dependencies }).dependencies).toEqual(dependencies);
    expect(plan({}, { dependencies: [] })).not.toHaveProperty('dependencies');
    expect(plan({}, { dependencies: [] }).hash).toBe(plan().hash);
    expect(plan({}, { dependencies }).hash).not.toBe(plan().hash);
  });

  it('covers the image’s volumes with memory, each path once', () => {
    expect(plan({ limits: { tmpBytes: 8 * MIB } }).tmpfs).toEqual([
      { target: '/tmp', bytes: 8 * MIB, mode: '1777' },
      { target: '/run', bytes: 8 * MIB, mode: '0755' },
      { target: '/home/sandbox', bytes: 8 * MIB, mode: '0700' },
      { target: '/data', bytes: 8 * MIB, mode: '0755' },
    ]);
    expect(plan().tmpfs[1]?.bytes).toBe(16 * MIB);
  });

  it.each(['/proc/x', '/sys', '/dev/shm', '/', 'proc/../sys', '/x/../proc', '/workspace/.git/hooks'])(
    'refuses an image with a volume at %s',
    volume => {
      expect(() => plan({}, { image: { ...facts.image, volumes: [volume] } })).toThrow(
        expect.objectContaining({
          code: 'ACODE-SBX-010',
          context: expect.objectContaining({ violation: 'DangerousImage' }),
        }),
      );
    },
  );

  it('hashes everything but who it is: the same for the same, another for any difference', () => {
    const one = plan();
    const other = planSandbox(policy(), facts, () => ({
      sandboxId: 'other',
      name: 'other',
      labels: {},
      correlationId: 'd',
    }));
    expect(other.hash).toBe(one.hash);
    expect(one.identity.labels['acode.spec']).toBe(one.hash);
    const changes = [
      plan({ limits: { pids: 9 } }),
      plan({ timeoutMs: 5, limits: { pids: 10 } }),
      plan({ user: '5:5' }),
      plan({}, { image: { ...facts.image, id: 'sha256:cc' } }),
      plan({}, { mounts: [workspaceMount('/w', 3)] }),
    ];
    expect(new Set([one, ...changes].map(({ hash }) => hash)).size).toBe(6);
  });
});

describe('createRequest', () => {
  it('has the caches of the plan after the mounts, as layers of the sandbox’s own, and leads each tool there', () => {
    const environment = { npm_config_cache: '/cache/npm/data' };
    const cache = { tool: 'npm' as const, volume: 'acode-cache-npm-1', target: '/cache/npm', fill: false, environment };
    const spec = { ...plan(), caches: [cache] };
    const { Mounts } = createRequest(spec, engine)['HostConfig'] as { Mounts: unknown[] };
    expect(Mounts.length).toBe(spec.mounts.length + 1);
    expect(Mounts.at(-1)).toMatchObject({
      Type: 'volume',
      Source: `acode-${spec.identity.sandboxId}-npm-layer`,
      Target: '/cache/npm',
    });
    expect(containerEnvironment(spec)).toContain('npm_config_cache=/cache/npm/data');
    expect(containerEnvironment(plan())).not.toContain('npm_config_cache=/cache/npm/data');
  });

  it('is exactly this, field by field', () => {
    expect(createRequest(plan(), engine)).toEqual({
      Image: 'sha256:aa',
      Hostname: 'sandbox',
      User: '1001:1002',
      WorkingDir: '/workspace',
      Entrypoint: ['/bin/sh', '-c', expect.stringContaining('read -r')],
      Cmd: [],
      Env: ['HOME=/home/sandbox', 'TINI_KILL_PROCESS_GROUP=1', 'LD_PRELOAD', 'NODE_OPTIONS'],
      Labels: { 'acode.spec': expect.stringMatching(/^[0-9a-f]{64}$/) },
      ExposedPorts: {},
      Healthcheck: { Test: ['NONE'] },
      StopSignal: 'SIGTERM',
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
      OpenStdin: true,
      StdinOnce: true,
      Tty: false,
      HostConfig: {
        Privileged: false,
        CapAdd: [],
        CapDrop: ['ALL'],
        SecurityOpt: ['no-new-privileges', 'seccomp={}'],
        ReadonlyRootfs: true,
        NetworkMode: 'none',
        IpcMode: 'private',
        CgroupnsMode: 'private',
        PidMode: '',
        UTSMode: '',
        UsernsMode: '',
        Init: true,
        Mounts: [
          {
            Type: 'bind',
            Source: '/w:x,source=/etc',
            Target: '/workspace',
            ReadOnly: false,
            BindOptions: { Propagation: 'rprivate', NonRecursive: true },
          },
        ],
        Tmpfs: {
          '/tmp': 'rw,exec,nosuid,nodev,size=67108864,nr_inodes=65536,mode=1777,uid=1001,gid=1002',
          '/run': 'rw,exec,nosuid,nodev,size=16777216,nr_inodes=16384,mode=0755,uid=1001,gid=1002',
          '/home/sandbox': 'rw,exec,nosuid,nodev,size=67108864,nr_inodes=65536,mode=0700,uid=1001,gid=1002',
          '/data': 'rw,exec,nosuid,nodev,size=67108864,nr_inodes=65536,mode=0755,uid=1001,gid=1002',
        },
        ShmSize: 64 * MIB,
        Memory: 512 * MIB,
        MemorySwap: 512 * MIB,
        NanoCpus: 1_000_000_000,
        PidsLimit: 256,
        OomKillDisable: false,
        OomScoreAdj: 500,
        Ulimits: [
          { Name: 'nofile', Soft: 1024, Hard: 1024 },
          { Name: 'core', Soft: 0, Hard: 0 },
          { Name: 'fsize', Soft: 64 * 1024 ** 3, Hard: 64 * 1024 ** 3 },
        ],
        LogConfig: { Type: 'none', Config: {} },
        RestartPolicy: { Name: 'no', MaximumRetryCount: 0 },
        AutoRemove: false,
        PublishAllPorts: false,
        PortBindings: {},
        Devices: [],
        DeviceRequests: [],
        DeviceCgroupRules: [],
        GroupAdd: [],
        Dns: [],
        ExtraHosts: [],
        Sysctls: {},
      },
    });
  });

  it('publishes ports on the loopback alone, and asks for the network, name servers and runtime of the plan', () => {
    const spec = {
      ...plan(),
      runtime: 'runsc',
      dns: ['10.0.0.1'],
      ports: [{ container: 80 }, { container: 53, host: 5353, protocol: 'udp' as const }],
    };
    expect(createRequest(spec, { network: 'id', runtime: 'runsc', seccomp: null, ownTasks: 64 })).toMatchObject({
      ExposedPorts: { '80/tcp': {}, '53/udp': {} },
      HostConfig: {
        NetworkMode: 'id',
        Runtime: 'runsc',
        Dns: ['10.0.0.1'],
        SecurityOpt: ['no-new-privileges'],
        PidsLimit: 256 + 64,
        PortBindings: {
          '80/tcp': [{ HostIp: '127.0.0.1', HostPort: '' }],
          '53/udp': [{ HostIp: '127.0.0.1', HostPort: '5353' }],
        },
      },
    });
  });

  it('has swap only where it was asked for, and never the engine’s “unlimited”', () => {
    expect(createRequest(plan({ limits: { swapBytes: MIB } }), engine)).toMatchObject({
      HostConfig: { MemorySwap: 513 * MIB },
    });
  });

  it('never has shared memory above the memory limit', () => {
    expect(createRequest(plan({ limits: { memoryBytes: 32 * MIB } }), engine)).toMatchObject({
      HostConfig: { ShmSize: 32 * MIB },
    });
  });

  it('limits what is read from disks and written to them where the plan does, and never says so otherwise', () => {
    const devices = ['/dev/sda', '/dev/sdb'];
    const both = plan({}, { throughput: { devices, readBytes: 1024, writeBytes: 2048 } });
    const rates = (Rate: number) => devices.map(Path => ({ Path, Rate }));
    const limits = { BlkioDeviceReadBps: rates(1024), BlkioDeviceWriteBps: rates(2048) };
    expect(createRequest(both, engine)).toMatchObject({ HostConfig: limits });
    const reads = plan({}, { throughput: { devices, readBytes: 1024 } });
    expect(createRequest(reads, engine)).toMatchObject({ HostConfig: { ...limits, BlkioDeviceWriteBps: [] } });
    expect(new Set([both.hash, reads.hash, plan().hash]).size).toBe(3);
    expect(JSON.stringify(createRequest(plan(), engine))).not.toContain('Blkio');
  });

  it('holds memory for the fork of another sandbox, whose changes nobody has to watch then', () => {
    const holder = plan({}, { mounts: [], alone: { workdir: '/' }, store: { bytes: MIB } });
    const limited = { workspace: 'fork', disk: { bytes: 16 * MIB, hard: true } } as const;
    const { memoryLayer, disk, hash } = plan(limited, { memoryLayer: { bytes: MIB, holder } });
    expect(disk).toBeUndefined();
    expect(memoryLayer?.holder).toMatchObject({
      store: { target: '/store', bytes: MIB },
      mounts: [],
      identity: { labels: { 'acode.service': 'disk', 'acode.service-of': 'id' } },
    });
    expect(plan(limited).hash).not.toBe(hash);
    const made = { ...holder, store: { target: '/store', bytes: MIB, volume: 'acode-main-disk', mountpoint: '/v' } };
    const { Mounts } = createRequest(made, engine)['HostConfig'] as { Mounts: unknown[] };
    expect(Mounts).toMatchObject([{ Type: 'volume', Source: 'acode-main-disk', Target: '/store', ReadOnly: false }]);
  });

  it('never has CpuQuota or CpuPeriod beside NanoCpus, which the engine would refuse', () => {
    expect(Object.keys(createRequest(plan(), engine)['HostConfig'] as object)).not.toEqual(
      expect.arrayContaining(['CpuQuota']),
    );
  });

  it('never has a variable with a value but its own', () => {
    expect(containerEnvironment(plan()).filter(variable => variable.includes('='))).toEqual([
      'HOME=/home/sandbox',
      'TINI_KILL_PROCESS_GROUP=1',
    ]);
  });

  it('is hardened and limited for every policy that is accepted', () => {
    const limits = fc.record(
      {
        memoryBytes: fc.nat(2 ** 41),
        swapBytes: fc.nat(2 ** 41),
        cpus: fc.double({ min: 0.01, max: 1e6, noNaN: true }),
        pids: fc.nat(1e7),
        openFiles: fc.nat(1e7),
        tmpBytes: fc.nat(2 ** 41),
        outputBytes: fc.nat(2 ** 41),
      },
      { requiredKeys: [] },
    );
    const input = fc.record(
      {
        profile: fc.constantFrom('exec', 'task', 'swarm'),
        workspace: fc.constantFrom('direct', 'readonly', 'fork'),
        network: fc.constantFrom('none', 'bridge'),
        limits,
        user: fc.tuple(fc.nat(70_000), fc.nat(70_000)).map(([uid, gid]) => `${uid}:${gid}`),
      },
      { requiredKeys: [] },
    );
    let accepted = 0;
    fc.assert(
      fc.property(input, fc.array(fc.string()), (generated, volumes) => {
        let request;
        try {
          request = createRequest(plan(generated as PolicyFields, { image: { ...facts.image, volumes } }), engine) as {
            User: string;
            HostConfig: Record<string, number>;
          };
        } catch {
          return;
        }
        accepted += 1;
        expect(request).toMatchObject({
          HostConfig: {
            Privileged: false,
            CapAdd: [],
            CapDrop: ['ALL'],
            NetworkMode: 'none',
            ReadonlyRootfs: true,
            SecurityOpt: ['no-new-privileges', 'seccomp={}'],
          },
        });
        expect(request.User).not.toMatch(/^0:|:0$/);
        const { Memory = 0, MemorySwap = 0, NanoCpus = 0, PidsLimit = 0 } = request.HostConfig;
        expect(Memory).toBeGreaterThanOrEqual(6 * MIB);
        expect(Memory).toBeLessThanOrEqual(CEILINGS.memoryBytes);
        expect(MemorySwap).toBeGreaterThanOrEqual(Memory);
        expect(NanoCpus).toBeLessThanOrEqual(2e9);
        expect(NanoCpus).toBeGreaterThan(0);
        expect(PidsLimit).toBeGreaterThan(0);
        expect((request.HostConfig['Mounts'] as unknown as object[]).length).toBe(1);
      }),
      { numRuns: FACTOR * 1500 },
    );
    // About one in seventeen.
    expect(accepted).toBeGreaterThan(20);
  });
});
