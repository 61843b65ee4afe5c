// Every single difference from the plan is found: each field the engine or the kernel reports is changed in turn.

import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { cacheSpec } from '../../../policy/caches.ts';
import { NO_LAYERS } from '../../../policy/layers.ts';
import { resolvePolicy } from '../../../policy/resolve.ts';
import { type KernelView, parseInterfaces, parseMountinfo } from '../../kernel.ts';
import { planSandbox } from '../../plan.ts';
import type { ContainerDetails } from '../engine/containers.ts';
import { createRequest } from '../request.ts';
import type { MountedCache } from '../resources/volume-rules.ts';
import {
  cacheDifferences,
  compareWithEngine,
  compareWithKernel,
  connectionDifferences,
  interfaceDifferences,
  wantedCaches,
} from './verify.ts';

const policy = resolvePolicy({}, NO_LAYERS, { caller: { uid: 1001, gid: 1001 }, cpus: 2 });
const image = {
  reference: 'x',
  id: 'sha256:aa',
  digest: 'sha256:aa',
  environment: ['PATH=/bin', 'LD_PRELOAD=/x'],
  volumes: [],
  repositoryDigests: [],
};
const facts = { network: 'none', runtime: 'runc', seccomp: '{}' };
const spec = planSandbox(
  policy,
  {
    level: 'docker',
    image,
    mounts: [
      {
        purpose: 'workspace',
        source: '/w',
        target: '/workspace',
        readOnly: false,
        identity: { device: 1, inode: 2 },
      },
    ],
  },
  () => ({ sandboxId: 'i', name: 'n', labels: { 'acode.managed': 'true' }, correlationId: 'c' }),
);

function details(): ContainerDetails {
  const request = createRequest(spec, facts);
  return {
    Id: 'c',
    Name: '/n',
    Image: spec.image.id,
    Created: '',
    State: {
      Status: 'running',
      Running: true,
      Pid: 1,
      ExitCode: 0,
      OOMKilled: false,
      Dead: false,
      StartedAt: '',
      FinishedAt: '',
    },
    Config: {
      ...request,
      Env: [...(request['Env'] as string[]), 'PATH=/bin'],
    } as unknown as ContainerDetails['Config'],
    HostConfig: {
      ...(request['HostConfig'] as object),
      // The engine reports its default where none was asked for.
      Runtime: 'runc',
      MaskedPaths: ['/proc/kcore', '/proc/keys', '/sys/firmware'],
      ReadonlyPaths: ['/proc/sys', '/proc/sysrq-trigger'],
    },
    Mounts: [{ Type: 'bind', Source: '/w', Destination: '/workspace', RW: true, Propagation: 'rprivate' }],
    NetworkSettings: { Networks: { none: {} } },
  };
}

function view(): KernelView {
  const tmpfs = spec.tmpfs.map(
    ({ target }, n) =>
      `${n} 1 0:${50 + n} / ${target} rw,nosuid,nodev - tmpfs t rw,size=${(spec.tmpfs[n]?.bytes ?? 0) / 1024}k`,
  );
  return {
    uids: [1001, 1001, 1001, 1001],
    gids: [1001, 1001, 1001, 1001],
    groups: [1001],
    capabilities: { CapEff: '0000', CapBnd: '0000' },
    noNewPrivileges: true,
    seccompFilter: true,
    mounts: parseMountinfo(
      [
        '1 0 0:1 / / ro - overlay o rw',
        '2 1 0:2 / /proc rw - proc p rw',
        '3 1 0:3 / /dev/shm rw - tmpfs t rw',
        '4 1 8:1 /w /workspace rw - ext4 d rw',
        ...tmpfs,
      ].join('\n'),
    ),
    identities: new Map([['/workspace', { device: 1, inode: 2 }]]),
    sources: new Map([['/w', { device: '8:1', root: '/w' }]]),
    sharedNamespaces: [],
    interfaces: [],
  };
}

describe('compareWithEngine', () => {
  it('finds nothing in what was planned', () => {
    expect(compareWithEngine(spec, facts, details())).toEqual([]);
  });

  it('finds labels that speak for acode and were not planned, and minds no others', () => {
    const found = (labels: Record<string, string>): ContainerDetails => {
      const made = details();
      return { ...made, Config: { ...made.Config, Labels: { ...made.Config.Labels, ...labels } } };
    };
    expect(compareWithEngine(spec, facts, found({ 'org.example': 'x' }))).toEqual([]);
    for (const labels of [{ 'acode.keep': 'true' }, { 'acode.managed': 'false' }])
      expect(compareWithEngine(spec, facts, found(labels))).toMatchObject([{ violation: 'SpecMismatch' }]);
    const without = details();
    expect(compareWithEngine(spec, facts, { ...without, Config: { ...without.Config, Labels: {} } })).toMatchObject([
      { violation: 'SpecMismatch' },
    ]);
  });

  const hostConfig: [string, unknown][] = [
    ['Privileged', true],
    ['CapAdd', ['NET_ADMIN']],
    ['CapDrop', []],
    ['CapDrop', undefined],
    ['SecurityOpt', ['no-new-privileges', 'no-new-privileges=false']],
    ['SecurityOpt', null],
    ['SecurityOpt', ['no-new-privileges']],
    ['SecurityOpt', ['no-new-privileges', 'seccomp=unconfined']],
    ['Runtime', 'runsc'],
    ['Runtime', undefined],
    ['ReadonlyRootfs', false],
    ['NetworkMode', 'bridge'],
    ['IpcMode', 'host'],
    ['CgroupnsMode', 'host'],
    ['PidMode', 'host'],
    ['UTSMode', 'host'],
    ['UsernsMode', 'host'],
    ['Init', false],
    ['Devices', [{ PathOnHost: '/dev/kmsg' }]],
    ['DeviceRequests', [{}]],
    ['DeviceCgroupRules', ['c 1:1 rwm']],
    ['Binds', ['/:/host']],
    ['VolumesFrom', ['other']],
    ['GroupAdd', ['docker']],
    ['PortBindings', { '80/tcp': [{}] }],
    ['PublishAllPorts', true],
    ['Sysctls', { 'net.ipv4.ip_forward': '1' }],
    ['CgroupParent', '/other'],
    ['LogConfig', { Type: 'json-file' }],
    ['RestartPolicy', { Name: 'always' }],
    ['AutoRemove', true],
    ['MaskedPaths', []],
    ['ReadonlyPaths', null],
    ['Memory', 0],
    ['MemorySwap', 0],
    ['MemorySwap', -1],
    ['NanoCpus', 0],
    ['PidsLimit', 0],
    ['PidsLimit', null],
    ['OomKillDisable', true],
    ['ShmSize', 2 ** 30],
    ['BlkioDeviceReadBps', [{ Path: '/dev/sda', Rate: 1 }]],
    ['Ulimits', null],
    ['Tmpfs', {}],
  ];
  it.each(hostConfig)('finds %s = %j', (key, value) => {
    const changed = details();
    changed.HostConfig[key] = value;
    expect(compareWithEngine(spec, facts, changed)).toHaveLength(1);
  });

  const config: [string, unknown][] = [
    ['User', 'root'],
    ['User', ''],
    ['Entrypoint', ['/bin/echo', 'hijacked']],
    ['Entrypoint', null],
    ['Cmd', ['x']],
    ['WorkingDir', '/proc/self/fd/7'],
    ['Healthcheck', { Test: ['CMD', 'x'] }],
    ['Tty', true],
    ['Hostname', 'production-db'],
    ['StdinOnce', false],
    ['Labels', {}],
    ['Env', ['HOME=/home/sandbox', 'TINI_KILL_PROCESS_GROUP=1', 'LD_PRELOAD', 'SECRET=x']],
    ['Env', ['HOME=/home/sandbox', 'TINI_KILL_PROCESS_GROUP=1', 'LD_PRELOAD=/x']],
    ['Env', null],
    ['Env', ['HOME=/home/sandbox', 'TINI_KILL_PROCESS_GROUP=1', 'LD_PRELOAD', 'PATH=/evil']],
  ];
  it.each(config)('finds %s = %j', (key, value) => {
    const changed = details();
    (changed.Config as Record<string, unknown>)[key] = value;
    expect(compareWithEngine(spec, facts, changed)).toHaveLength(1);
  });

  it('finds a limit of disk throughput that the engine left out, or has for another device', () => {
    const limited = { ...spec, throughput: { devices: ['/dev/sda'], readBytes: 1024 } };
    const found = (BlkioDeviceReadBps: unknown): unknown[] => {
      const changed = details();
      changed.HostConfig['BlkioDeviceReadBps'] = BlkioDeviceReadBps;
      return compareWithEngine(limited, facts, changed);
    };
    expect(found([{ Path: '/dev/sda', Rate: 1024 }])).toEqual([]);
    for (const one of [null, [], [{ Path: '/dev/sdb', Rate: 1024 }], [{ Path: '/dev/sda', Rate: 2048 }]])
      expect(found(one)).toMatchObject([{ violation: 'SpecMismatch', detail: expect.stringContaining('disk reads') }]);
  });

  it('never repeats the value of a variable', () => {
    const changed = details();
    changed.Config.Env = ['SECRET=hunter2'];
    expect(JSON.stringify(compareWithEngine(spec, facts, changed))).not.toContain('hunter2');
  });

  it('finds another image and every kind of wrong mount', () => {
    expect(compareWithEngine(spec, facts, { ...details(), Image: 'sha256:other' })).toHaveLength(1);
    const [mount] = details().Mounts;
    for (const Mounts of [
      [],
      [mount, mount],
      [{ ...mount, Source: '/etc' }],
      [{ ...mount, RW: false }],
      [{ ...mount, Propagation: 'rshared' }],
      [{ ...mount, Type: 'volume' }],
    ]) {
      expect(
        compareWithEngine(spec, facts, { ...details(), Mounts: Mounts as ContainerDetails['Mounts'] }),
      ).toMatchObject([{ violation: 'MountMismatch' }]);
    }
  });

  it('does not mind engines that leave empty things out', () => {
    const sparse = details();
    for (const key of [
      'CapAdd',
      'PidMode',
      'UTSMode',
      'UsernsMode',
      'Devices',
      'DeviceRequests',
      'PortBindings',
      'Sysctls',
      'OomKillDisable',
    ])
      delete sparse.HostConfig[key];
    sparse.Config.Cmd = null;
    sparse.Config.Healthcheck = null;
    delete sparse.Config.Tty;
    expect(compareWithEngine(spec, facts, sparse)).toEqual([]);
  });
});

describe('compareWithKernel', () => {
  it('finds nothing in what was planned', () => {
    expect(compareWithKernel(spec, view())).toEqual([]);
    expect(compareWithKernel(spec, { ...view(), sharedNamespaces: null, identities: new Map() })).toEqual([]);
  });

  const mounts = (change: (lines: KernelView['mounts']) => KernelView['mounts']) => ({ mounts: change(view().mounts) });
  it.each<[string, Partial<KernelView>]>([
    ['a capability', { capabilities: { CapEff: '0', CapBnd: '2000' } }],
    ['an unknown capability set', { capabilities: { CapEff: 'unknown' } }],
    ['privileges that may be gained', { noNewPrivileges: false }],
    ['no filter', { seccompFilter: false }],
    ['another user', { uids: [1001, 0, 1001, 1001] }],
    ['another group', { gids: [0, 1001, 1001, 1001] }],
    ['a group besides', { groups: [1001, 998] }],
    ['a shared namespace', { sharedNamespaces: ['net'] }],
    ['another directory by inode', { identities: new Map([['/workspace', { device: 1, inode: 3 }]]) }],
    ['another device by inode', { identities: new Map([['/workspace', { device: 9, inode: 2 }]]) }],
    [
      'another directory by the mount table',
      { identities: new Map(), sources: new Map([['/w', { device: '8:1', root: '/other' }]]) },
    ],
    [
      'another device by the mount table',
      { identities: new Map(), sources: new Map([['/w', { device: '9:9', root: '/w' }]]) },
    ],
    ['a mount nobody asked for', mounts(lines => [...lines, ...parseMountinfo('9 1 8:1 /etc /mnt rw - ext4 d rw')])],
    [
      'a mount below the workspace',
      mounts(lines => [...lines, ...parseMountinfo('9 1 8:1 /etc /workspace/x rw - ext4 d rw')]),
    ],
    ['a missing workspace', mounts(lines => lines.filter(({ target }) => target !== '/workspace'))],
    [
      'a read-only workspace',
      mounts(lines => lines.map(line => (line.target === '/workspace' ? { ...line, options: ['ro'] } : line))),
    ],
    [
      'a shared workspace',
      mounts(lines => lines.map(line => (line.target === '/workspace' ? { ...line, shared: true } : line))),
    ],
    [
      'a second mount over the workspace',
      {
        ...mounts(lines => [...lines, ...parseMountinfo('9 1 8:1 /etc /workspace rw - ext4 d rw')]),
        identities: new Map(),
      },
    ],
    [
      'a writable root',
      mounts(lines => lines.map(line => (line.target === '/' ? { ...line, options: ['rw'] } : line))),
    ],
    ['a /tmp on disk', mounts(lines => lines.map(line => (line.target === '/tmp' ? { ...line, type: 'ext4' } : line)))],
    [
      'a /tmp of another size',
      mounts(lines => lines.map(line => (line.target === '/tmp' ? { ...line, superOptions: ['rw'] } : line))),
    ],
    [
      'a /tmp with setuid',
      mounts(lines => lines.map(line => (line.target === '/tmp' ? { ...line, options: ['rw', 'nodev'] } : line))),
    ],
  ])('finds %s', (_, change) => {
    expect(compareWithKernel(spec, { ...view(), ...change })).toHaveLength(1);
  });

  describe('a mount over a part of another', () => {
    const part = { purpose: 'protected', source: '/w/.git', target: '/workspace/.git', readOnly: true } as const;
    const nested = { ...spec, mounts: [...spec.mounts, { ...part, identity: { device: 1, inode: 3 } }] };
    const seen = (line: string): KernelView => ({
      ...view(),
      mounts: [...view().mounts, ...parseMountinfo(line)],
      identities: new Map([...view().identities, ['/workspace/.git', { device: 1, inode: 3 }]]),
      sources: new Map([...view().sources, ['/w/.git', { device: '8:1', root: '/w/.git' }]]),
    });

    it('is as planned, by its inode and by the mount table', () => {
      const right = seen('5 4 8:1 /w/.git /workspace/.git ro - ext4 d rw');
      expect(compareWithKernel(nested, right)).toEqual([]);
      expect(compareWithKernel(nested, { ...right, identities: new Map() })).toEqual([]);
    });

    it.each([
      ['is writable', '5 4 8:1 /w/.git /workspace/.git rw - ext4 d rw'],
      ['was made before the other and is covered by it', '5 1 8:1 /w/.git /workspace/.git ro - ext4 d rw'],
    ])('is found where it %s', (_, line) => {
      expect(compareWithKernel(nested, seen(line))).toMatchObject([{ violation: 'MountMismatch' }]);
    });

    it('is found where it is missing', () => {
      expect(compareWithKernel(nested, view())).toMatchObject([{ violation: 'MountMismatch' }]);
    });

    it('is found in whatever order the engine lists mounts', () => {
      const [first] = details().Mounts;
      const second = {
        Type: 'bind',
        Source: '/w/.git',
        Destination: '/workspace/.git',
        RW: false,
        Propagation: 'rprivate',
      };
      const listed = { ...details(), Mounts: [second, ...(first ? [first] : [])] };
      expect(compareWithEngine(nested, facts, listed)).toEqual([]);
    });
  });

  it('finds a read-only workspace that is writable', () => {
    const readonly = { ...spec, mounts: spec.mounts.map(mount => ({ ...mount, readOnly: true })) };
    expect(compareWithKernel(readonly, view())).toMatchObject([
      { violation: 'MountMismatch', detail: expect.stringContaining('writable') },
    ]);
  });
});

// A sandbox on any network but its own is found out, by the engine’s account and by the kernel’s.

const NONE = { network: 'none', networkName: 'none', runtime: 'runc', seccomp: null };
const BRIDGE = { network: 'id1', networkName: 'mine', runtime: 'runc', seccomp: null };
const container = (Running: boolean, Networks: Record<string, Record<string, unknown>> | null) =>
  ({ State: { Running }, NetworkSettings: { Networks } }) as unknown as ContainerDetails;

describe('a service', () => {
  const joined = { ...facts, network: 'container:cc' };
  const seen = (change: Partial<ContainerDetails['Config']>, networkMode = joined.network): ContainerDetails => {
    const all = details();
    return {
      ...all,
      Id: 'abcdefabcdefabcdef',
      Config: { ...all.Config, ...change },
      HostConfig: { ...all.HostConfig, NetworkMode: networkMode },
      NetworkSettings: { Networks: {} },
    };
  };

  it('has the host name of its sandbox, or its own id before it is started', () => {
    for (const Hostname of ['sandbox', 'abcdefabcdef'])
      expect(compareWithEngine(spec, joined, seen({ Hostname }))).toEqual([]);
    expect(compareWithEngine(spec, joined, seen({ Hostname: 'other' }))).toMatchObject([
      { detail: expect.stringContaining('host name') },
    ]);
  });

  it('is in the network of its sandbox and no other', () => {
    expect(connectionDifferences(joined, seen({}))).toEqual([]);
    expect(compareWithEngine(spec, joined, seen({}, 'container:dd'))).toMatchObject([
      { detail: expect.stringContaining('network') },
    ]);
    const connected = { ...seen({}), NetworkSettings: { Networks: { bridge: {} } } };
    expect(connectionDifferences(joined, connected)).toMatchObject([{ violation: 'SpecMismatch' }]);
    // Any other sandbox has a network, if only `none`.
    expect(connectionDifferences(facts, seen({}))).toMatchObject([{ violation: 'SpecMismatch' }]);
  });

  it('gives its sandbox one name, on the loopback', () => {
    const service = { name: 'db', port: 1, argv: ['/db'], environment: {}, readyMs: 1, spec };
    const beside = { ...spec, services: [service] };
    const with_ = (ExtraHosts: readonly string[]): ContainerDetails => {
      const all = details();
      return { ...all, HostConfig: { ...all.HostConfig, ExtraHosts } };
    };
    expect(compareWithEngine(beside, facts, with_(['db:127.0.0.1']))).toEqual([]);
    for (const hosts of [[], ['db:192.0.2.1'], ['db:127.0.0.1', 'more:127.0.0.1']])
      expect(compareWithEngine(beside, facts, with_(hosts))).toMatchObject([
        { detail: expect.stringContaining('name service') },
      ]);
    expect(compareWithEngine(spec, facts, with_(['db:127.0.0.1']))).toHaveLength(1);
  });
});

describe('connectionDifferences', () => {
  it.each([
    ['none', NONE, container(true, { none: { NetworkID: 'x' } })],
    ['the planned one', BRIDGE, container(true, { mine: { NetworkID: 'id1' } })],
    ['the planned one under another name', BRIDGE, container(true, { renamed: { NetworkID: 'id1' } })],
    ['the planned one before the start', BRIDGE, container(false, { mine: { NetworkID: '' } })],
    ['the planned one by id before the start', BRIDGE, container(false, { id1: {} })],
  ])('finds nothing in %s', (_, connected, seen) => {
    expect(connectionDifferences(connected, seen)).toEqual([]);
  });

  it.each([
    ['a network where none was planned', NONE, container(true, { bridge: { NetworkID: 'x' } })],
    ['a network beside none', NONE, container(true, { none: {}, bridge: {} })],
    ['no account at all', NONE, container(true, null)],
    ['another network of the same name', BRIDGE, container(true, { mine: { NetworkID: 'id2' } })],
    ['a second network', BRIDGE, container(true, { mine: { NetworkID: 'id1' }, other: { NetworkID: 'id2' } })],
    ['no network', BRIDGE, container(true, { none: { NetworkID: 'x' } })],
    ['a name alone when it runs', BRIDGE, container(true, { mine: { NetworkID: '' } })],
    ['another before the start', BRIDGE, container(false, { other: { NetworkID: '' } })],
    ['another id before the start', BRIDGE, container(false, { mine: { NetworkID: 'id2' } })],
  ])('finds %s', (_, connected, seen) => {
    expect(connectionDifferences(connected, seen)).toMatchObject([{ violation: 'SpecMismatch' }]);
  });
});

describe('interfaceDifferences', () => {
  const planned = (network: SandboxSpec['network']) => ({ network }) as SandboxSpec;
  const shown = (interfaces: readonly string[] | null) => ({ interfaces }) as KernelView;

  it('allows no address without a network and those of one interface with one', () => {
    expect(interfaceDifferences(planned({ kind: 'none' }), shown([]))).toEqual([]);
    expect(interfaceDifferences(planned({ kind: 'bridge' }), shown(['eth0']))).toEqual([]);
    expect(interfaceDifferences(planned({ kind: 'none' }), shown(null))).toEqual([]);
    expect(interfaceDifferences(planned({ kind: 'none' }), shown(['eth0']))).toMatchObject([
      { violation: 'KernelMismatch' },
    ]);
    expect(interfaceDifferences(planned({ kind: 'named', name: 'n' }), shown(['eth0', 'eth1']))).toMatchObject([
      { detail: expect.stringContaining('eth0, eth1') },
    ]);
  });
});

describe('parseInterfaces', () => {
  const head = 'Iface\tDestination\tGateway \tFlags\n';
  it('names what has a route or an address, and not the loopback', () => {
    expect(parseInterfaces(head, '')).toEqual([]);
    expect(parseInterfaces('', '')).toEqual([]);
    expect(parseInterfaces(`${head}eth0\t00000000\t010012AC\t0003\neth0\t000012AC\t00000000\t0001\n`, '')).toEqual([
      'eth0',
    ]);
    expect(
      parseInterfaces(head, '00000000000000000000000000000001 01 80 10 80       lo\nfe80 02 40 20 80 eth1\n'),
    ).toEqual(['eth1']);
  });
});

// A cache that is anything but the layer made for the sandbox is found, by the engine’s account and by the kernel’s.

const VOLUMES = '/var/lib/docker/volumes';
const at = (name: string): string => `${VOLUMES}/${name}/_data`;

const planned = (fill: boolean): SandboxSpec =>
  ({
    identity: { sandboxId: 's', labels: {} },
    caches: [cacheSpec({ tool: 'npm', volume: 'acode-cache-npm-1' }, fill)],
  }) as unknown as SandboxSpec;

const layer = { lower: at('acode-cache-npm-1'), upper: at('acode-s-npm-upper'), work: at('acode-s-npm-work') };
const own: MountedCache = {
  target: '/cache/npm',
  volume: 'acode-s-npm-layer',
  mountpoint: at('acode-s-npm-layer'),
  layer,
  labels: {},
};
const whole: MountedCache = {
  target: '/cache/npm',
  volume: 'acode-cache-npm-1',
  mountpoint: at('acode-cache-npm-1'),
  layer: null,
  labels: {},
};
const overlay = (parts: Partial<typeof layer> = {}): string => {
  const { lower, upper, work } = { ...layer, ...parts };
  return `9 1 0:50 / /cache/npm rw,nosuid,nodev,relatime - overlay overlay rw,lowerdir=${lower},upperdir=${upper},workdir=${work}`;
};
const plain = (name: string): string => `9 1 8:1 /lib/docker/volumes/${name}/_data /cache/npm rw - ext4 /dev/sda1 rw`;
const seen = (line: string): KernelView => ({ mounts: parseMountinfo(line) }) as unknown as KernelView;

describe('a cache in the kernel’s account', () => {
  it('is as planned: a layer of its own, or the volume that is filled', () => {
    expect(cacheDifferences(planned(false), seen(overlay()), [own])).toEqual([]);
    expect(cacheDifferences(planned(false), seen(overlay().replace(' - ', ' master:8 - ')), [own])).toEqual([]);
    expect(cacheDifferences(planned(true), seen(plain('acode-cache-npm-1')), [whole])).toEqual([]);
  });

  it.each<[string, boolean, string, readonly MountedCache[]]>([
    ['is not mounted', false, '', [own]],
    ['is the cache itself, in place of a layer', false, plain('acode-cache-npm-1'), [own]],
    ['is another sandbox’s layer', false, overlay({ upper: at('acode-t-npm-upper') }), [own]],
    ['lies over something else', false, overlay({ lower: '/etc' }), [own]],
    ['has the work of another', false, overlay({ work: at('acode-t-npm-work') }), [own]],
    ['lets programs gain rights', false, overlay().replace('nosuid,', ''), [own]],
    ['lets devices be', false, overlay().replace('nodev,', ''), [own]],
    ['was never made', false, overlay(), []],
    ['was made as the cache itself', false, plain('acode-cache-npm-1'), [whole]],
    ['is another volume than the one to be filled', true, plain('acode-cache-npm-2'), [whole]],
    ['is a directory of the host', true, '9 1 8:1 /etc /cache/npm rw - ext4 /dev/sda1 rw', [whole]],
    ['gives mounts to the host', false, overlay().replace(' - ', ' shared:7 - '), [own]],
    ['gives mounts to the host as well', false, overlay().replace(' - ', ' shared:7 master:8 - '), [own]],
  ])('is found where it %s', (_, fill, line, made) => {
    expect(cacheDifferences(planned(fill), seen(line), made)).toMatchObject([{ violation: 'MountMismatch' }]);
  });
});

it('a cache in the engine’s account is a writable volume at the place that was made for it', () => {
  expect(wantedCaches(planned(false), { caches: [own] })).toEqual([
    { type: 'volume', source: own.mountpoint, target: '/cache/npm', writable: true, propagation: '' },
  ]);
  expect(wantedCaches(planned(false), {})).toMatchObject([{ source: '' }]);
});
