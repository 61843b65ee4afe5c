// Podman’s words and Docker’s: what means the same passes, and everything else still counts as a difference.

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AcodeError } from '../../../contract/errors.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { NO_LAYERS } from '../../../policy/layers.ts';
import { resolvePolicy } from '../../../policy/resolve.ts';
import { type KernelView, parseMountinfo } from '../../kernel.ts';
import { planSandbox } from '../../plan.ts';
import { type ContainerDetails, detailsReply } from '../engine/containers.ts';
import { createRequest } from '../request.ts';
import { compareWithEngine, connectionDifferences } from '../verify/verify.ts';
import {
  planForPodman,
  podmanAccount,
  podmanFacts,
  podmanKernelView,
  podmanRequest,
  podmanVariables,
  writeFilter,
} from './podman.ts';

const policy = resolvePolicy({}, NO_LAYERS, { caller: { uid: 1001, gid: 1001 }, cpus: 2 });
const image = {
  reference: 'x',
  id: 'sha256:aa',
  digest: 'sha256:aa',
  environment: ['PATH=/bin', 'LD_PRELOAD=/x'],
  volumes: [],
  repositoryDigests: [],
};
const mounts = [
  {
    purpose: 'workspace' as const,
    source: '/w',
    target: '/workspace',
    readOnly: false,
    identity: { device: 1, inode: 2 },
  },
];
const spec = planForPodman(
  planSandbox(policy, { level: 'docker', image, mounts }, () => ({
    sandboxId: 'i',
    name: 'n',
    labels: { 'acode.managed': 'true' },
    correlationId: 'c',
  })),
);
const podman = { filterFile: '/run/user/1001/acode/seccomp-1.json', mostProcesses: 4096 };
const facts = { network: 'none', runtime: 'runc', seccomp: '{"a":1}', podman };
const request = podmanRequest(createRequest(spec, facts), spec, podman);
const body = JSON.parse(JSON.stringify(request)) as {
  Env: string[];
  HostConfig: { SecurityOpt: string[]; Tmpfs: Record<string, string>; Ulimits: { Name: string; Hard: number }[] };
};

// As Podman 4.3 answered on a host with control groups of version 1.
const account = {
  Id: 'c0ffee',
  Name: '/n',
  Image: 'sha256:aa',
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
    ...body,
    Image: 'localhost/x',
    StdinOnce: false,
    Env: [...body.Env, 'PATH=/bin', 'TERM=xterm', 'container=podman', 'HOSTNAME=sandbox'],
    Healthcheck: { Test: ['NONE'], Interval: 1 },
  },
  HostConfig: {
    ...body.HostConfig,
    Binds: ['/w:/workspace:rprivate,bind,rw'],
    CapDrop:
      'AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID SYS_CHROOT'.split(
        ' ',
      ),
    CgroupnsMode: '',
    IpcMode: 'shareable',
    PidMode: 'private',
    UTSMode: 'private',
    Runtime: 'oci',
    Ulimits: body.HostConfig.Ulimits.map(limit => ({ ...limit, Name: `RLIMIT_${limit.Name.toUpperCase()}` })),
    MaskedPaths: null,
    ReadonlyPaths: null,
  },
  Mounts: [{ Type: 'bind', Source: '/w', Destination: '/workspace', RW: true, Propagation: 'rprivate' }],
  NetworkSettings: { Networks: {} },
};

const view: KernelView = {
  uids: [1001],
  gids: [1001],
  groups: [],
  capabilities: {},
  noNewPrivileges: true,
  seccompFilter: true,
  mounts: parseMountinfo(
    [
      '256 345 0:65 /sys /proc/sys ro - proc proc rw',
      '258 345 0:79 /null /proc/keys rw - tmpfs tmpfs rw',
      '260 349 0:85 / /sys/firmware ro - tmpfs tmpfs ro',
      '359 323 254:0 /s/overlay-containers/c0ffee/userdata/passwd /etc/passwd ro - ext4 /dev/vda rw',
      '360 323 254:0 /home/me/group /etc/group ro - ext4 /dev/vda rw',
    ].join('\n'),
  ),
  identities: new Map(),
  sources: new Map(),
  sharedNamespaces: [],
  interfaces: [],
};
const absent = ['/proc/kcore', '/proc/sysrq-trigger'];

function differences(
  change: (host: Record<string, unknown>, whole: ContainerDetails) => void,
  seen: KernelView | null = view,
): string[] {
  const whole = detailsReply.parse(structuredClone(account));
  change(whole.HostConfig, whole);
  const read = podmanAccount(whole, { spec, facts, view: seen, absent });
  const all = [...compareWithEngine(spec, facts, read), ...connectionDifferences(facts, read)];
  return all.map(({ detail }) => detail.replace(/:.*/s, ''));
}

describe('podmanRequest', () => {
  it('names the filter by its file, and leaves everything else against privileges as it was', () => {
    expect(body.HostConfig.SecurityOpt).toEqual(['no-new-privileges', `seccomp=${podman.filterFile}`]);
    expect(body.HostConfig).toMatchObject({ CapDrop: ['ALL'], ReadonlyRootfs: true, Privileged: false });
  });

  it('gives every memory file system a size and the user, with no word that Podman does not know', () => {
    expect(Object.keys(body.HostConfig.Tmpfs).sort()).toEqual(['/home/sandbox', '/run', '/tmp', '/var/tmp']);
    for (const options of Object.values(body.HostConfig.Tmpfs)) {
      expect(options).toMatch(/^rw,exec,nosuid,nodev,size=\d+,mode=\d+,U,notmpcopyup$/);
    }
  });

  it('empties a variable of the image that is to be removed: its bare name would leave it', () => {
    expect(body.Env).toContain('LD_PRELOAD=');
    expect(body.Env).not.toContain('LD_PRELOAD');
    expect(podmanVariables(spec)).toEqual(['TERM', 'container', 'LD_PRELOAD']);
  });

  it('leaves out a number of processes that is not known', () => {
    const without = podmanRequest(createRequest(spec, facts), spec, { ...podman, mostProcesses: null });
    expect(JSON.stringify(without)).not.toContain('nproc');
    expect(JSON.stringify(request)).toContain('nproc');
  });

  it('plans nothing where something else is mounted already', () => {
    const taken = { ...spec, tmpfs: [], mounts: mounts.map(mount => ({ ...mount, target: '/var/tmp' })) };
    expect(planForPodman(taken)).toBe(taken);
  });
});

describe('podmanAccount', () => {
  it('is what was planned where Podman says the same in other words', () => {
    expect(differences(() => undefined)).toEqual([]);
  });

  it('has a volume as Docker shows one, and no text of a bind besides', () => {
    const volume = { Type: 'volume', Name: 'v', Source: '/v', Destination: '/workspace', RW: true };
    const details = detailsReply.parse({
      ...account,
      Mounts: [{ ...volume, Propagation: 'rprivate' }],
      HostConfig: { ...account.HostConfig, Binds: ['v:/workspace:rw', 'v:/other:rw'] },
    });
    const { Mounts, HostConfig } = podmanAccount(details, { spec, facts, view, absent });
    expect(Mounts).toEqual([{ ...volume, Propagation: '' }]);
    expect(HostConfig['Binds']).toEqual(['v:/other:rw']);
  });

  it.each<[string, (host: Record<string, unknown>, whole: ContainerDetails) => void]>([
    ['dropped capabilities', host => void (host['CapDrop'] = ['CHOWN'])],
    ['added capabilities', host => void (host['CapAdd'] = ['SYS_ADMIN'])],
    ['security options', host => void (host['SecurityOpt'] = ['no-new-privileges', 'seccomp=/other.json'])],
    ['security options', host => void (host['SecurityOpt'] = [`seccomp=${podman.filterFile}`])],
    ['runtime', host => void (host['Runtime'] = 'crun')],
    ['ipc namespace', host => void (host['IpcMode'] = 'host')],
    ['pid namespace', host => void (host['PidMode'] = 'host')],
    ['uts namespace', host => void (host['UTSMode'] = 'host')],
    ['cgroup namespace', host => void (host['CgroupnsMode'] = 'host')],
    ['bind strings', host => void (host['Binds'] = ['/w:/workspace:rw', '/etc:/host:rw'])],
    ['memory file systems', host => void (host['Tmpfs'] = { '/tmp': '' })],
    [
      'open files, core size and file size',
      host => void (host['Ulimits'] = [{ Name: 'RLIMIT_NOFILE', Soft: 1, Hard: 2 }]),
    ],
    ['environment', (_, whole) => void whole.Config.Env?.push('TERM=other')],
    ['environment', (_, whole) => void (whole.Config.Env = whole.Config.Env?.filter(name => name !== 'LD_PRELOAD='))],
    ['standard input', (_, whole) => void (whole.Config.OpenStdin = false)],
    ['connected networks', (_, whole) => void (whole.NetworkSettings.Networks = { podman: {} })],
    ['network', host => void (host['NetworkMode'] = 'bridge')],
    ['mounts', (_, whole) => void (whole.Mounts = whole.Mounts.map(mount => ({ ...mount, Type: 'volume' })))],
  ])('still differs in %s', (what, change) => {
    expect(differences(change)).toContain(what);
  });

  it('takes the kernel’s word where Podman has none, and no word for a difference', () => {
    expect(differences(() => undefined, { ...view, mounts: [] })).toEqual(['masked paths', 'read-only paths']);
    for (const sharedNamespaces of [null, ['cgroup']])
      expect(differences(() => undefined, { ...view, sharedNamespaces })).toEqual(['cgroup namespace']);
    // As with an engine in a virtual machine.
    expect(differences(() => undefined, null)).toEqual(['cgroup namespace', 'masked paths', 'read-only paths']);
  });
});

describe('podmanKernelView', () => {
  it('leaves out the list of users that Podman mounts, and nothing that only lies in the same place', () => {
    const targets = podmanKernelView(view, 'c0ffee').mounts.map(({ target }) => target);
    expect(targets).toEqual(['/proc/sys', '/proc/keys', '/sys/firmware', '/etc/group']);
    expect(podmanKernelView(view, 'other').mounts).toHaveLength(view.mounts.length);
  });
});

// The system call filter as a file: whole, unchanged and its owner’s alone, or no sandbox.

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'acode-filter-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const named = { identity: { name: 'n', sandboxId: 'i', labels: {}, correlationId: 'c' } } as unknown as SandboxSpec;

it('is written once, also by many at a time, and put right where somebody changed it', async () => {
  const { filterFile } = podmanFacts(join(directory, 'new'), '{"a":1}');
  await Promise.all(Array.from({ length: 20 }, () => writeFilter(filterFile, '{"a":1}', named)));
  expect(readFileSync(filterFile, 'utf8')).toBe('{"a":1}');
  expect(statSync(filterFile).mode & 0o777).toBe(0o600);
  expect(readdirSync(join(directory, 'new'))).toHaveLength(1);
  const before = statSync(filterFile).mtimeMs;
  await writeFilter(filterFile, '{"a":1}', named);
  expect(statSync(filterFile).mtimeMs).toBe(before);
  writeFileSync(filterFile, '{}');
  await writeFilter(filterFile, '{"a":1}', named);
  expect(readFileSync(filterFile, 'utf8')).toBe('{"a":1}');
});

it('has another name for another content', () => {
  expect(podmanFacts('/d', 'x').filterFile).not.toBe(podmanFacts('/d', 'y').filterFile);
});

it('keeps a sandbox from being made where it cannot be written', async () => {
  const { filterFile } = podmanFacts(join(directory, 'taken'), 'x');
  mkdirSync(filterFile, { recursive: true });
  const failure: unknown = await writeFilter(filterFile, 'x', named).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(AcodeError);
  expect(failure).toMatchObject({ code: 'ACODE-SBX-001', message: expect.stringContaining('system call filter') });
});

it('asks for no more processes than the kernel has numbers for', () => {
  const most = Number(readFileSync('/proc/sys/kernel/pid_max', 'utf8'));
  const { mostProcesses } = podmanFacts('/d', 'x');
  expect(mostProcesses).toBeGreaterThan(0);
  expect(mostProcesses).toBeLessThanOrEqual(most);
});
