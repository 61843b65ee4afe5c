// The system call filter as the engine wants it: JSON text, made from groups.ts and from the system calls that are allowed with some
// arguments only, each with the reason.

import { GROUPS, UNIMPLEMENTED, UNSUPPORTED_WITH_LIMIT } from './groups.ts';

/** The architectures there is a filter for. */
export const ARCHITECTURES = ['x86_64', 'aarch64'] as const;

/** One of {@link ARCHITECTURES}, as the kernel names it. */
export type Architecture = (typeof ARCHITECTURES)[number];

const ENOSYS = 38;
const EOPNOTSUPP = 95;

// Exactly one: a call by another architecture’s numbers (int 0x80, x32) would pass by the rules of these, and ends the
// thread that makes it instead.
const ENGINE_NAMES: Readonly<Record<Architecture, string>> = {
  x86_64: 'SCMP_ARCH_X86_64',
  aarch64: 'SCMP_ARCH_AARCH64',
};

interface Rule {
  readonly names: readonly string[];
  readonly action: 'SCMP_ACT_ALLOW' | 'SCMP_ACT_ERRNO';
  readonly errnoRet?: number;
  readonly args?: readonly Record<string, unknown>[];
}

// The same for every sandbox of an architecture, and long.
const texts = new Map<string, string>();

/** What a filter depends on besides the architecture. */
export interface FilterOptions {
  /** Whether the sandbox writes a fork with a disk limit: nothing may then take blocks in one call that writes no data. */
  readonly diskLimited?: boolean;
}

/**
 * The filter for an architecture. Everything that is not allowed gets EPERM, the errno of the engine’s own default: it is
 * not spelt out, since Docker 20.10 does not know the key.
 */
export function seccompProfile(architecture: Architecture, { diskLimited = false }: FilterOptions = {}): string {
  const key = `${architecture} ${diskLimited}`;
  const known = texts.get(key);
  if (known !== undefined) return known;
  const text = JSON.stringify({
    defaultAction: 'SCMP_ACT_ERRNO',
    architectures: [ENGINE_NAMES[architecture]],
    syscalls: rules(architecture, diskLimited ? UNSUPPORTED_WITH_LIMIT : []),
  });
  texts.set(key, text);
  return text;
}

// Docker has the kernel’s names, Podman those of Go.
const OTHER_NAMES: Readonly<Record<Architecture, string>> = { x86_64: 'amd64', aarch64: 'arm64' };

/** The architecture by an engine’s name for it; null where there is no filter for it. */
export function architectureOf(name: string): Architecture | null {
  return ARCHITECTURES.find(known => known === name || OTHER_NAMES[known] === name) ?? null;
}

function rules(architecture: Architecture, unsupported: readonly string[]): Rule[] {
  const old = architecture === 'x86_64';
  const names = GROUPS.flatMap(({ calls, x86_64 = [] }) => (old ? [...calls, ...x86_64] : calls)).filter(
    name => !unsupported.includes(name),
  );
  const conditional = CONDITIONALS.filter(({ x86_64 }) => old || !x86_64);
  return [
    { names, action: 'SCMP_ACT_ALLOW' },
    // One rule for each alternative: engines differ in how they read several tests of one argument in one rule.
    ...conditional.flatMap(({ calls, alternatives }) =>
      alternatives.map((tests): Rule => ({ names: calls, action: 'SCMP_ACT_ALLOW', args: tests.map(argumentTest) })),
    ),
    { names: UNIMPLEMENTED, action: 'SCMP_ACT_ERRNO', errnoRet: ENOSYS },
    ...(unsupported.length === 0
      ? []
      : [{ names: unsupported, action: 'SCMP_ACT_ERRNO' as const, errnoRet: EOPNOTSUPP }]),
  ];
}

function argumentTest({ argument, mask, value }: Test): Record<string, unknown> {
  return { index: argument, op: 'SCMP_CMP_MASKED_EQ', value: mask, valueTwo: value };
}

/** One test of one argument: the bits under the mask must be the value. */
export interface Test {
  /** Which argument, from 0. */
  readonly argument: number;
  readonly mask: number;
  readonly value: number;
}

/** Calls that are allowed where every test of at least one alternative holds. */
export interface Conditional {
  readonly reason: string;
  readonly calls: readonly string[];
  /** Whether only x86_64 has these calls. */
  readonly x86_64?: true;
  readonly alternatives: readonly (readonly Test[])[];
}

const ALL_BITS = 0xffff_ffff;

// linux/sched.h: the flags for new mount, cgroup, UTS, IPC, user, pid and network namespaces. The flag for time
// namespaces cannot be given to clone: its place is taken by the signal at exit.
const NAMESPACES = 0x7e02_0000;

const SETUID = 0o4000;
const FILE_TYPE = 0o170_000;
const REGULAR = 0o100_000;
const FIFO = 0o010_000;
const SOCKET = 0o140_000;

// O_CREAT and O_TMPFILE’s own bit, the same on both architectures: only with one of them is there a mode.
const CREATES = 0o100 | 0o20_000_000;

const UNIX = 1;
const INET = 2;
const INET6 = 10;
const NETLINK = 16;
const ICMP = 1;
const TCP = 6;
const UDP = 17;
const ICMP6 = 58;
// Addresses and routes, which resolvers and `getifaddrs` ask for; the other protocols are for administrators.
const ROUTE = 0;

// Both put characters into a terminal’s input, as if they had been typed.
const TIOCSTI = 0x5412;
const TIOCLINUX = 0x541c;

const NO_RANDOMIZE = 0x0004_0000;
const ASK = 0xffff_ffff;

/** Everything that is allowed under a condition. */
export const CONDITIONALS: readonly Conditional[] = [
  {
    reason: 'Processes and threads, but no new namespace: inside one a sandbox would have capabilities again.',
    calls: ['clone'],
    alternatives: [[clear(0, NAMESPACES)]],
  },
  {
    reason:
      'Local sockets and the ordinary internet protocols. Rare families (vsock, which ignores a network namespace; ' +
      'alg; packet) and rare protocols (SCTP, DCCP) are where kernels were broken.',
    calls: ['socket'],
    alternatives: [
      [equal(0, UNIX)],
      ...[0, ICMP, TCP, UDP].map(protocol => [equal(0, INET), equal(2, protocol)]),
      ...[0, ICMP6, TCP, UDP].map(protocol => [equal(0, INET6), equal(2, protocol)]),
      [equal(0, NETLINK), equal(2, ROUTE)],
    ],
  },
  {
    reason: 'Pairs of local sockets; no other family has a use for them.',
    calls: ['socketpair'],
    alternatives: [[equal(0, UNIX)]],
  },
  {
    reason: 'Opening files, as long as it makes none with the setuid bit: it would lie in the workspace, on the host.',
    calls: ['openat'],
    alternatives: [[clear(2, CREATES)], [clear(3, SETUID)]],
  },
  {
    reason: 'As openat.',
    calls: ['open'],
    x86_64: true,
    alternatives: [[clear(1, CREATES)], [clear(2, SETUID)]],
  },
  {
    reason: 'New modes, but not the setuid bit.',
    calls: ['fchmod'],
    alternatives: [[clear(1, SETUID)]],
  },
  {
    reason: 'New modes, but not the setuid bit.',
    calls: ['chmod', 'creat'],
    x86_64: true,
    alternatives: [[clear(1, SETUID)]],
  },
  {
    reason: 'New modes, but not the setuid bit.',
    calls: ['fchmodat', 'fchmodat2'],
    alternatives: [[clear(2, SETUID)]],
  },
  {
    reason: 'Files, pipes and sockets with a name; no devices, and not the setuid bit.',
    calls: ['mknodat'],
    alternatives: nodes(2),
  },
  {
    reason: 'As mknodat.',
    calls: ['mknod'],
    x86_64: true,
    alternatives: nodes(1),
  },
  {
    reason: 'Every ioctl but those that type into a terminal. Devices a sandbox could ask for more are not there.',
    calls: ['ioctl'],
    alternatives: anyBut(1, [TIOCSTI, TIOCLINUX]),
  },
  {
    reason:
      'Asking for the execution domain, setting the ordinary one, and addresses that are not random, which debuggers ' +
      'and sanitizers set for what they start. Others weaken the memory protection of programs or call up old code.',
    calls: ['personality'],
    alternatives: [[equal(0, 0)], [equal(0, NO_RANDOMIZE)], [equal(0, ASK)]],
  },
];

/** The test that an argument is a value. */
function equal(argument: number, value: number): Test {
  return { argument, mask: ALL_BITS, value };
}

/** The test that none of some bits is set. */
function clear(argument: number, bits: number): Test {
  return { argument, mask: bits, value: 0 };
}

function nodes(argument: number): Test[][] {
  return [0, REGULAR, FIFO, SOCKET].map(type => [{ argument, mask: FILE_TYPE | SETUID, value: type }]);
}

/**
 * Alternatives that together hold for every 32-bit value but the given ones.
 *
 * A filter knows “these bits are that” and no “these bits are not that” which would ignore the bits above, so the values
 * are taken apart bit by bit: each branch that leads to none of them is one alternative.
 */
export function anyBut(argument: number, values: readonly number[]): Test[][] {
  const alternatives: Test[][] = [];
  const descend = (mask: number, value: number, below: readonly number[], bit: number): void => {
    if (below.length === 0) {
      alternatives.push([{ argument, mask, value }]);
      return;
    }
    if (bit < 0) return;
    const one = 2 ** bit;
    const has = (candidate: number): boolean => Math.floor(candidate / one) % 2 === 1;
    descend(mask + one, value + one, below.filter(has), bit - 1);
    descend(
      mask + one,
      value,
      below.filter(candidate => !has(candidate)),
      bit - 1,
    );
  };
  descend(0, 0, values, 31);
  return alternatives;
}
