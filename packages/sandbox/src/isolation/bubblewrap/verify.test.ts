// Every difference between what the kernel shows and the plan is found, and the plan itself has none.

import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../contract/spec.ts';
import { parseMountinfo, parseStatus } from '../kernel.ts';
import { compareWithKernel, type SandboxView } from './verify.ts';
import type { HostView } from './host-view.ts';

const MIB = 1024 ** 2;
const identity = { device: 7, inode: 8 };
const spec = {
  user: { uid: 1234, gid: 5678 },
  mounts: [
    { purpose: 'workspace', source: '/p', target: '/workspace', readOnly: false, identity },
    { purpose: 'protected', source: '/p/.git', target: '/workspace/.git', readOnly: true, identity },
  ],
  tmpfs: [{ target: '/tmp', bytes: MIB, mode: '1777' }],
  limits: { memoryBytes: 512 * MIB },
} as unknown as SandboxSpec;
const host: HostView = {
  system: [
    { kind: 'directory', path: '/usr', source: '/usr' },
    { kind: 'link', path: '/bin', to: '/usr/bin' },
  ],
  masked: [{ kind: 'file', path: '/proc/keys', source: '/proc/keys' }],
};

const MOUNTS = [
  '1 0 0:1 /newroot / ro,nosuid,nodev - tmpfs tmpfs rw',
  '2 1 8:1 /usr /usr ro,nosuid,nodev - ext4 d rw',
  '3 1 0:3 / /proc rw,nosuid,nodev,noexec - proc proc rw',
  '4 3 0:6 /null /proc/keys ro,nosuid,nodev - devtmpfs d rw',
  '5 1 0:5 / /dev ro,nosuid,nodev - tmpfs tmpfs rw',
  '6 5 0:6 /null /dev/null rw,nosuid - devtmpfs d rw',
  '10 5 0:8 / /dev/shm rw,nosuid,nodev - tmpfs tmpfs rw,size=65536k',
  '7 1 0:7 / /tmp rw,nosuid,nodev - tmpfs tmpfs rw,size=1024k',
  '8 1 8:1 /p /workspace rw,nosuid,nodev - ext4 d rw',
  '9 8 8:1 /p/.git /workspace/.git ro,nosuid,nodev - ext4 d rw',
];
const STATUS =
  'Uid:\t1234\t1234\t1234\t1234\nGid:\t5678\t5678\t5678\t5678\nGroups:\t5678 65534\nCapInh:\t0\nCapPrm:\t0\nCapEff:\t0\nCapBnd:\t0\nCapAmb:\t0\nNoNewPrivs:\t1\nSeccomp:\t2\n';

function view({ mounts = MOUNTS, status = STATUS, ...changes }: Record<string, unknown> = {}): SandboxView {
  const own = parseStatus(String(status));
  const shell = {
    ...own,
    mounts: parseMountinfo((mounts as string[]).join('\n')),
    identities: new Map([
      ['/workspace', identity],
      ['/workspace/.git', identity],
    ]),
    sources: new Map(),
    sharedNamespaces: [],
    interfaces: [],
    ...(changes['shell'] as object | undefined),
  };
  const rest = {
    userMap: '      1234       1234          1\n',
    groupMap: ' 5678 5678 1\n',
    sharesUsers: false,
    descriptors: [],
  };
  return { first: own, ...rest, ...changes, shell };
}
const found = (changes: Record<string, unknown>): string =>
  compareWithKernel(spec, host, view(changes))
    .map(({ detail }) => detail)
    .join('; ');
const replaced = (from: string, to: string): string[] =>
  MOUNTS.map(line => (line.includes(from) ? line.replace(from, to) : line));

describe('a sandbox as planned', () => {
  it('has no difference', () => {
    expect(compareWithKernel(spec, host, view())).toEqual([]);
  });
});

describe('shared memory', () => {
  it('is no larger than the memory of the whole sandbox', () => {
    const small = { ...spec, limits: { ...spec.limits, memoryBytes: 16 * MIB } };
    const details = (mounts: string[]): string[] =>
      compareWithKernel(small, host, view({ mounts })).map(({ detail }) => detail);
    expect(details(replaced('size=65536k', 'size=16384k'))).toEqual([]);
    expect(details(MOUNTS)).toEqual(['/dev/shm is not limited to size=16384k']);
  });
});

describe('what is not as planned', () => {
  it.each([
    ['capabilities', { status: STATUS.replace('CapEff:\t0', 'CapEff:\t1') }, 'capabilities'],
    ['privileges to gain', { status: STATUS.replace('NoNewPrivs:\t1', 'NoNewPrivs:\t0') }, 'may gain privileges'],
    ['no filter', { status: STATUS.replace('Seccomp:\t2', 'Seccomp:\t0') }, 'no system call filter'],
    [
      'no filter on the first process',
      { first: parseStatus(STATUS.replace('Seccomp:\t2', '')) },
      'for the first process',
    ],
    ['another user', { status: STATUS.replace('Uid:\t1234', 'Uid:\t0') }, 'runs as uid 0'],
    ['another group', { status: STATUS.replace('Gid:\t5678', 'Gid:\t0') }, 'runs as gid 0'],
    ['a shared namespace', { shell: { sharedNamespaces: ['net'] } }, 'shares namespaces with the host: net'],
    ['namespaces that cannot be read', { shell: { sharedNamespaces: null } }, 'namespaces cannot be read'],
    ['a shared user namespace', { sharesUsers: true }, 'shares the user namespace'],
    ['more users', { userMap: '0 0 4294967295' }, 'other users of the host'],
    ['more groups', { groupMap: '5678 5678 2' }, 'other groups of the host'],
    ['an interface', { shell: { interfaces: ['eth0'] } }, 'network interfaces eth0'],
    ['a network that cannot be read', { shell: { interfaces: null } }, 'network cannot be read'],
    ['an open descriptor', { descriptors: ['/dev/null', 'socket:[1]'] }, 'holds open what is not its own: socket:[1]'],
    [
      'a swapped workspace',
      { shell: { identities: new Map([['/workspace/.git', identity]]) } },
      '/workspace is not what',
    ],
    ['a writable protected part', { mounts: replaced('/workspace/.git ro', '/workspace/.git rw') }, '.git is writable'],
    ['a covered protected part', { mounts: replaced('9 8 8:1', '9 1 8:1') }, '.git is covered by another mount'],
    ['a missing mount', { mounts: MOUNTS.slice(0, -1) }, '.git is not mounted'],
    ['setuid programs', { mounts: replaced('/workspace rw,nosuid', '/workspace rw') }, 'allows setuid programs'],
    [
      'mounts that go back to the host',
      { mounts: replaced('rw,nosuid,nodev - ext4', 'rw,nosuid,nodev shared:1 - ext4') },
      'would go from',
    ],
    ['a mount nobody planned', { mounts: [...MOUNTS, '20 1 8:1 /etc /secrets ro - ext4 d rw'] }, '/secrets is mounted'],
    [
      'a mount in the workspace',
      { mounts: [...MOUNTS, '20 8 8:2 / /workspace/x rw - ext4 d rw'] },
      'of its own below /p',
    ],
    [
      'a mount over the kernel’s files',
      { mounts: [...MOUNTS, '20 3 8:2 / /proc/x rw - ext4 d rw'] },
      '/proc/x is mounted',
    ],
    ['writable programs', { mounts: replaced('/usr ro', '/usr rw') }, '/usr is writable'],
    ['a writable root', { mounts: replaced('/ ro', '/ rw') }, '/ is writable'],
    ['writable devices', { mounts: replaced('/dev ro', '/dev rw') }, '/dev is writable'],
    [
      'the host’s root',
      { mounts: replaced('ro,nosuid,nodev - tmpfs tmpfs rw', 'ro - ext4 d rw') },
      '/ is mounted and was not',
    ],
    ['the host’s processes', { mounts: replaced('- proc proc', '- ext4 d') }, '/proc is mounted and was not'],
    ['an open mask', { mounts: MOUNTS.filter(line => !line.includes('keys')) }, '/proc/keys is not masked'],
    ['memory without a size', { mounts: replaced('size=1024k', 'size=9k') }, '/tmp is not limited to size=1024k'],
    ['shared memory without a size', { mounts: replaced('rw,size=65536k', 'rw') }, '/dev/shm is not limited to size='],
    [
      'shared memory that is larger',
      { mounts: replaced('size=65536k', 'size=163840k') },
      '/dev/shm is not limited to size=65536k',
    ],
    [
      'shared memory that is none of its own',
      { mounts: MOUNTS.filter(line => !line.includes('/dev/shm')) },
      '/dev/shm is not a file system in memory',
    ],
    [
      'a disk in place of memory',
      { mounts: replaced('/tmp rw,nosuid,nodev - tmpfs', '/tmp rw - ext4') },
      'not a file system in memory',
    ],
  ])('%s is found', (_, changes, detail) => {
    expect(found(changes)).toContain(detail);
  });
});
