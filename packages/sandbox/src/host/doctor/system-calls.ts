// The numbers of the system calls that probes make, and the names of what the kernel answers.

import type { Processor } from './machine-code.ts';

// [x86_64, aarch64]
const NUMBERS = {
  read: [0, 63],
  write: [1, 64],
  openat: [257, 56],
  close: [3, 57],
  mmap: [9, 222],
  ioctl: [16, 29],
  dup3: [292, 24],
  getpid: [39, 172],
  socket: [41, 198],
  connect: [42, 203],
  accept: [43, 202],
  bind: [49, 200],
  listen: [50, 201],
  clone: [56, 220],
  mkdirat: [258, 34],
  mknodat: [259, 33],
  ptrace: [101, 117],
  syslog: [103, 116],
  setresuid: [117, 147],
  setuid: [105, 146],
  pivot_root: [155, 41],
  chroot: [161, 51],
  mount: [165, 40],
  umount2: [166, 39],
  swapon: [167, 224],
  reboot: [169, 142],
  init_module: [175, 105],
  delete_module: [176, 106],
  kexec_load: [246, 104],
  add_key: [248, 217],
  request_key: [249, 218],
  keyctl: [250, 219],
  unshare: [272, 97],
  perf_event_open: [298, 241],
  open_by_handle_at: [304, 265],
  setns: [308, 268],
  finit_module: [313, 273],
  bpf: [321, 280],
  userfaultfd: [323, 282],
  io_uring_setup: [425, 425],
  io_uring_enter: [426, 426],
  open_tree: [428, 428],
  fsopen: [430, 430],
  clone3: [435, 435],
  mount_setattr: [442, 442],
} as const satisfies Record<string, readonly [number, number]>;

// Of 32-bit programs on x86.
const SOCKETCALL_I386 = 102;

/** A system call that probes make. */
export type CallName = keyof typeof NUMBERS | 'socketcall';

/** Its number; `socketcall` exists for 32-bit programs only. */
export function numberOf(call: CallName, processor: Processor | 'i386'): number {
  if (call === 'socketcall' || processor === 'i386') return SOCKETCALL_I386;
  return NUMBERS[call][processor === 'x86_64' ? 0 : 1];
}

const ERRORS: Readonly<Record<number, string>> = {
  1: 'EPERM',
  2: 'ENOENT',
  3: 'ESRCH',
  6: 'ENXIO',
  7: 'E2BIG',
  9: 'EBADF',
  11: 'EAGAIN',
  12: 'ENOMEM',
  13: 'EACCES',
  14: 'EFAULT',
  16: 'EBUSY',
  17: 'EEXIST',
  19: 'ENODEV',
  20: 'ENOTDIR',
  22: 'EINVAL',
  24: 'EMFILE',
  25: 'ENOTTY',
  26: 'ETXTBSY',
  28: 'ENOSPC',
  30: 'EROFS',
  38: 'ENOSYS',
  40: 'ELOOP',
  90: 'EMSGSIZE',
  92: 'ENOPROTOOPT',
  93: 'EPROTONOSUPPORT',
  94: 'ESOCKTNOSUPPORT',
  95: 'EOPNOTSUPP',
  97: 'EAFNOSUPPORT',
  99: 'EADDRNOTAVAIL',
  101: 'ENETUNREACH',
  110: 'ETIMEDOUT',
  111: 'ECONNREFUSED',
  113: 'EHOSTUNREACH',
};

/** What the kernel answered, in its own words: `EPERM`, or `ok` where it did what it was asked. */
export function answerName(answer: bigint | undefined): string {
  if (answer === undefined) return 'no answer';
  if (answer >= 0n) return 'ok';
  const code = Number(-answer);
  return ERRORS[code] ?? `errno ${code}`;
}
