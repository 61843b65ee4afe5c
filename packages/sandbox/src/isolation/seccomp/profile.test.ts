import { describe, expect, it } from 'vitest';
import fc from 'fast-check';
import * as z from 'zod';
import {
  anyBut,
  type Test,
  ARCHITECTURES,
  architectureOf,
  seccompProfile,
  type Architecture,
  type FilterOptions,
} from './profile.ts';
import { GROUPS, UNIMPLEMENTED } from './groups.ts';

const profileSchema = z.strictObject({
  defaultAction: z.literal('SCMP_ACT_ERRNO'),
  architectures: z.array(z.string()).length(1),
  syscalls: z.array(
    z.strictObject({
      names: z.array(z.string().regex(/^[a-z0-9_]+$/)).nonempty(),
      action: z.enum(['SCMP_ACT_ALLOW', 'SCMP_ACT_ERRNO']),
      errnoRet: z.literal([38, 95]).optional(),
      args: z
        .array(
          z.strictObject({
            index: z.int().min(0).max(5),
            op: z.literal('SCMP_CMP_MASKED_EQ'),
            value: z.int().min(0).max(0xffff_ffff),
            valueTwo: z.int().min(0).max(0xffff_ffff),
          }),
        )
        .nonempty()
        .optional(),
    }),
  ),
});

function profile(architecture: Architecture, options?: FilterOptions) {
  return profileSchema.parse(JSON.parse(seccompProfile(architecture, options)));
}

/** What the filter answers to a call, by the engine’s reading of its text: any rule that fits allows. */
function answer(architecture: Architecture, call: string, ...args: bigint[]): 'allow' | 'EPERM' | 'ENOSYS' {
  for (const { names, action, args: tests = [] } of profile(architecture).syscalls) {
    const holds = tests.every(
      ({ index, value, valueTwo }) => ((args[index] ?? 0n) & BigInt(value)) === BigInt(valueTwo),
    );
    if (names.includes(call) && holds) return action === 'SCMP_ACT_ALLOW' ? 'allow' : 'ENOSYS';
  }
  return 'EPERM';
}

describe.each(ARCHITECTURES)('the filter for %s', architecture => {
  it('names one architecture and allows by name only', () => {
    expect(profile(architecture).architectures).toEqual([
      architecture === 'x86_64' ? 'SCMP_ARCH_X86_64' : 'SCMP_ARCH_AARCH64',
    ]);
  });

  it('has each call in one place, and tests no call that another rule lets through untested', () => {
    const { syscalls } = profile(architecture);
    const plain = syscalls.filter(({ args }) => !args).flatMap(({ names }) => names);
    expect(new Set(plain).size).toBe(plain.length);
    const tested = syscalls.filter(({ args }) => args).flatMap(({ names }) => names);
    expect(tested.filter(name => plain.includes(name))).toEqual([]);
  });

  it('stays small enough for every engine', () => {
    expect(seccompProfile(architecture).length).toBeLessThan(16_384);
  });

  it.each([
    ...'unshare setns mount umount2 pivot_root chroot fsopen move_mount open_tree'.split(' '),
    ...'bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register'.split(' '),
    ...'keyctl add_key request_key open_by_handle_at kexec_load kexec_file_load'.split(' '),
    ...'init_module finit_module delete_module reboot swapon swapoff syslog'.split(' '),
    ...'modify_ldt iopl ioperm pidfd_getfd settimeofday clock_settime vmsplice'.split(' '),
  ])('refuses %s', call => {
    expect(answer(architecture, call)).toBe('EPERM');
  });

  it.each(UNIMPLEMENTED)('says that there is no %s', call => {
    expect(answer(architecture, call)).toBe('ENOSYS');
  });

  it('lets through local and internet sockets, and no other family or protocol, whatever stands above 32 bits', () => {
    const socket = (family: bigint, protocol = 0n) => answer(architecture, 'socket', family, 1n, protocol);
    for (const family of [1n, 2n, 10n, 16n]) expect(socket(family)).toBe('allow');
    for (let family = 0n; family < 64n; family += 1n) {
      const wanted = [1n, 2n, 10n, 16n].includes(family) ? 'allow' : 'EPERM';
      expect([socket(family), socket(family | (1n << 40n))]).toEqual([wanted, wanted]);
    }
    expect([socket(2n, 132n), socket(2n, 33n), socket(10n, 132n), socket(16n, 12n)]).toEqual(Array(4).fill('EPERM'));
    expect([socket(2n, 6n), socket(2n, 17n), socket(10n, 58n)]).toEqual(Array(3).fill('allow'));
  });

  it('lets through no clone with a namespace', () => {
    for (const bit of [17n, 25n, 26n, 27n, 28n, 29n, 30n]) {
      expect(answer(architecture, 'clone', 1n << bit)).toBe('EPERM');
    }
    // What the C library gives for a thread and for fork.
    expect(answer(architecture, 'clone', 0x3d_0f00n)).toBe('allow');
    expect(answer(architecture, 'clone', 0x120_0011n)).toBe('allow');
  });

  it('lets through no setuid bit by any call that takes a mode', () => {
    const setuid = 0o4755n;
    expect(answer(architecture, 'fchmod', 3n, setuid)).toBe('EPERM');
    expect(answer(architecture, 'fchmodat', 0n, 0n, setuid)).toBe('EPERM');
    expect(answer(architecture, 'fchmodat2', 0n, 0n, setuid)).toBe('EPERM');
    expect(answer(architecture, 'openat', 0n, 0n, 0o101n, setuid)).toBe('EPERM');
    expect(answer(architecture, 'openat', 0n, 0n, 0o20_200_002n, setuid)).toBe('EPERM');
    expect(answer(architecture, 'mknodat', 0n, 0n, 0o100_000n | setuid)).toBe('EPERM');
    expect(answer(architecture, 'openat', 0n, 0n, 0o101n, 0o755n)).toBe('allow');
    // Without O_CREAT there is no mode, and what stands in its place means nothing.
    expect(answer(architecture, 'openat', 0n, 0n, 0n, setuid)).toBe('allow');
    expect(answer(architecture, 'fchmod', 3n, 0o2755n)).toBe('allow');
  });

  it('answers “not supported” to fallocate where a disk limit is watched, and else differs in nothing', () => {
    const { syscalls: usual } = profile(architecture);
    const { syscalls: limited } = profile(architecture, { diskLimited: true });
    expect(limited.at(-1)).toEqual({ names: ['fallocate'], action: 'SCMP_ACT_ERRNO', errnoRet: 95 });
    const [first, ...rest] = usual;
    const names = first?.names.filter(name => name !== 'fallocate');
    expect(limited.slice(0, -1)).toEqual([{ ...first, names }, ...rest]);
    expect(first?.names).toContain('fallocate');
  });

  it('lets through no device', () => {
    expect(answer(architecture, 'mknodat', 0n, 0n, 0o060_600n)).toBe('EPERM');
    expect(answer(architecture, 'mknodat', 0n, 0n, 0o020_600n)).toBe('EPERM');
    expect(answer(architecture, 'mknodat', 0n, 0n, 0o010_600n)).toBe('allow');
  });

  it('lets through every ioctl but those that type into a terminal, whatever stands above 32 bits', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }), request => {
        const low = request & 0xffff_ffffn;
        const wanted = low === 0x5412n || low === 0x541cn ? 'EPERM' : 'allow';
        expect(answer(architecture, 'ioctl', 0n, request)).toBe(wanted);
      }),
      { numRuns: 300, examples: [[0x5412n], [0x541cn], [(1n << 32n) | 0x5412n], [0x5401n], [0x5413n], [0n]] },
    );
  });
});

describe('the groups', () => {
  it('each have a reason', () => {
    for (const { name, reason, calls } of GROUPS) {
      expect(name).not.toBe('');
      expect(reason.length).toBeGreaterThan(20);
      expect(calls.length).toBeGreaterThan(0);
    }
  });

  it('give aarch64 none of the calls that only x86_64 has', () => {
    const names = profile('aarch64').syscalls.flatMap(rule => rule.names);
    expect(
      names.filter(name => ['open', 'stat', 'fork', 'arch_prctl', 'chmod', 'creat', 'mknod'].includes(name)),
    ).toEqual([]);
  });
});

describe('anyBut', () => {
  it('fits every value but the given ones, each exactly once', () => {
    const fits = (tests: readonly Test[], value: number): boolean =>
      tests.every(test => (BigInt(value) & BigInt(test.mask)) === BigInt(test.value));
    const word = fc.integer({ min: 0, max: 0xffff_ffff });
    fc.assert(
      fc.property(fc.uniqueArray(word, { maxLength: 4 }), word, (values, other) => {
        const alternatives = anyBut(0, values);
        for (const value of [...values, other]) {
          const count = alternatives.filter(tests => fits(tests, value)).length;
          expect(count).toBe(values.includes(value) ? 0 : 1);
        }
      }),
      { numRuns: 300 },
    );
  });
});

describe('architectureOf', () => {
  it('knows what there is a filter for', () => {
    expect(['x86_64', 'aarch64', 'riscv64', ''].map(architectureOf)).toEqual(['x86_64', 'aarch64', null, null]);
    expect(['amd64', 'arm64', 'constructor'].map(architectureOf)).toEqual(['x86_64', 'aarch64', null]);
  });
});
