// Group A by raw system calls: the calls, with arguments that tell a filter’s answer from the kernel’s.

import type { SystemCall } from '../program.ts';
import type { Attack } from '../trial.ts';

/** A call, and what it is there to show. */
export interface Step extends SystemCall {
  /**
   * What a kernel without the filter answers to these very arguments, which are chosen so that it is not what the filter
   * answers. Absent where another layer gives the same answer: then a harmless twin is the control.
   */
  readonly unfiltered?: readonly string[];
}

/** An attack by system calls. */
export interface CallAttack extends Attack {
  readonly steps: readonly Step[];
  /** The same program doing something harmless of the same kind, which must succeed in the sandbox itself. */
  readonly twin: SystemCall;
  readonly twinText: string;
}

// The working directory, which is the workspace.
const HERE = -100;
const WRITE_ONLY = 1;
// Creates and writes.
const NEW_FILE = 0o101;
const NEW_USER_NAMESPACE = 0x1000_0000;
const NO_SUCH_TYPE = 15;
const BLOCK_DEVICE = 0o060_600;
const PIPE = 0o010_600;
const FAMILIES = { packet: 17, rds: 21, can: 29, tipc: 30, bluetooth: 31, alg: 38, nfc: 39, xdp: 44 };

const writing = (path: string): SystemCall => ({ call: 'openat', args: [HERE, path, WRITE_ONLY, 0] });
const ASKED: Pick<CallAttack, 'twin' | 'twinText'> = { twin: { call: 'getpid', args: [] }, twinText: 'getpid works' };
const OWN_FILE: Pick<CallAttack, 'twin' | 'twinText'> = {
  twin: writing('/proc/self/oom_score_adj'),
  twinText: 'its own /proc/self/oom_score_adj opens for writing',
};
// A type that no family has: a kernel that looks at the family at all refuses the type.
const family = (number: number): Step => ({ call: 'socket', args: [number, NO_SUCH_TYPE, 0], unfiltered: ['EINVAL'] });

/** Every attack of group A that is a system call or a few. */
export const CALLS: readonly CallAttack[] = [
  {
    id: 'A1',
    title: 'core_pattern, sysrq',
    ...OWN_FILE,
    steps: [writing('/proc/sys/kernel/core_pattern'), writing('/proc/sysrq-trigger')],
  },
  {
    id: 'A2',
    title: 'control group release_agent',
    steps: [
      { call: 'mkdirat', args: [HERE, '/sys/fs/cgroup/acode-probe', 0o755] },
      { call: 'mkdirat', args: [HERE, '/sys/fs/cgroup/memory/acode-probe', 0o755] },
      writing('/sys/fs/cgroup/release_agent'),
    ],
    twin: { call: 'mkdirat', args: [HERE, 'directory', 0o755] },
    twinText: 'mkdir in the workspace works',
  },
  {
    id: 'A3',
    title: 'uevent_helper',
    ...OWN_FILE,
    steps: [writing('/sys/kernel/uevent_helper'), writing('/sys/kernel/mm/ksm/run')],
  },
  {
    id: 'A4',
    title: 'new user namespace',
    ...ASKED,
    steps: [
      { call: 'unshare', args: [NEW_USER_NAMESPACE | 1], unfiltered: ['EINVAL'] },
      { call: 'clone', args: [NEW_USER_NAMESPACE | 0x200, 0, 0, 0, 0], unfiltered: ['EINVAL'] },
      { call: 'clone3', args: [0, 0], unfiltered: ['EINVAL'] },
      { call: 'unshare', args: [NEW_USER_NAMESPACE] },
    ],
  },
  {
    id: 'A5',
    title: 'keyctl, add_key, request_key',
    ...ASKED,
    steps: [
      { call: 'keyctl', args: [9999, 0, 0, 0, 0], unfiltered: ['EOPNOTSUPP'] },
      { call: 'add_key', args: [1, 1, 0, 0, 0], unfiltered: ['EFAULT', 'EINVAL'] },
      { call: 'request_key', args: [1, 1, 0, 0], unfiltered: ['EFAULT'] },
    ],
  },
  {
    id: 'A6',
    title: 'userfaultfd',
    ...ASKED,
    steps: [
      { call: 'userfaultfd', args: [1 | 4], unfiltered: ['EINVAL'] },
      { call: 'userfaultfd', args: [1] },
    ],
  },
  {
    id: 'A7',
    title: 'io_uring',
    ...ASKED,
    steps: [
      { call: 'io_uring_setup', args: [1, 0], unfiltered: ['EFAULT', 'EINVAL'] },
      { call: 'io_uring_enter', args: [-1, 0, 0, 0, 0, 0], unfiltered: ['EBADF'] },
    ],
  },
  {
    id: 'A8',
    title: 'vsock, which ignores network none',
    ...ASKED,
    steps: [family(40), { call: 'socket', args: [40, 1, 0] }],
  },
  { id: 'A10', title: 'AF_ALG and other rare families', ...ASKED, steps: Object.values(FAMILIES).map(family) },
  {
    id: 'A11',
    title: 'bpf, perf_event_open',
    ...ASKED,
    steps: [
      { call: 'perf_event_open', args: [0, 0, -1, -1, 0xffff], unfiltered: ['EINVAL', 'EFAULT'] },
      { call: 'bpf', args: [9999, 0, 0] },
      { call: 'bpf', args: [0, new Uint8Array(64), 64] },
    ],
  },
  {
    id: 'A12',
    title: 'mount, open_tree, setns, chroot, fsopen',
    ...ASKED,
    steps: [
      { call: 'mount', args: [1, 1, 1, 0, 1], unfiltered: ['EFAULT'] },
      { call: 'umount2', args: [1, 0xffff], unfiltered: ['EINVAL'] },
      { call: 'open_tree', args: [-1, 1, 0x4000_0000], unfiltered: ['EINVAL'] },
      { call: 'mount_setattr', args: [-1, 1, 0x4000_0000, 0, 0], unfiltered: ['EINVAL'] },
      { call: 'setns', args: [-1, 0], unfiltered: ['EBADF'] },
      { call: 'chroot', args: [1], unfiltered: ['EFAULT'] },
      { call: 'pivot_root', args: [1, 1] },
      { call: 'fsopen', args: ['tmpfs', 0] },
    ],
  },
  {
    id: 'A13',
    title: 'block device in the workspace',
    steps: [{ call: 'mknodat', args: [HERE, 'block', BLOCK_DEVICE, 0x0801] }],
    twin: { call: 'mknodat', args: [HERE, 'pipe', PIPE, 0] },
    twinText: 'a pipe can be made there',
  },
  {
    id: 'A14',
    title: 'open_by_handle_at',
    ...ASKED,
    steps: [
      { call: 'open_by_handle_at', args: [HERE, new Uint8Array([8, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]), 0] },
    ],
  },
  {
    id: 'A15',
    title: 'modules, kexec, reboot, swap',
    ...ASKED,
    steps: [
      { call: 'init_module', args: [0, 0, 0] },
      { call: 'finit_module', args: [-1, 0, 0] },
      { call: 'delete_module', args: ['none', 0] },
      { call: 'kexec_load', args: [0, 0, 0, 0] },
      // Without the numbers that make it count.
      { call: 'reboot', args: [0, 0, 0, 0] },
      { call: 'swapon', args: ['/nonexistent', 0] },
    ],
  },
  {
    id: 'A17',
    title: 'setuid(0)',
    steps: [
      { call: 'setuid', args: [0] },
      { call: 'setresuid', args: [-1, 0, -1] },
    ],
    twin: { call: 'setresuid', args: [-1, -1, -1] },
    twinText: 'setresuid to what it is works',
  },
  {
    id: 'A19',
    title: 'runtime overwritten (CVE-2019-5736)',
    steps: [writing('/proc/1/exe'), writing('/proc/self/exe'), writing('/sbin/docker-init')],
    twin: { call: 'openat', args: [HERE, 'file', NEW_FILE, 0o600] },
    twinText: 'a file in the workspace opens for writing',
  },
  {
    id: 'A21',
    title: 'kernel log',
    ...ASKED,
    steps: [{ call: 'syslog', args: [3, new Uint8Array(64), 64] }, writing('/dev/kmsg')],
  },
  {
    id: 'A23',
    title: 'TIOCSTI',
    steps: [
      { call: 'openat', args: [HERE, '/dev/tty', 2, 0] },
      { call: 'ioctl', args: [0, 0x5412, 'x'] },
    ],
    // FIONREAD
    twin: { call: 'ioctl', args: [0, 0x541b, new Uint8Array(8)] },
    twinText: 'another ioctl on the same descriptor works',
  },
];
