// The compiled filter answers as its source says, for every call there is and whatever the arguments.

import { describe, expect, it } from 'vitest';
import fc from 'fast-check';
import { seccompProgram } from './bpf.ts';
import { CONDITIONALS, ARCHITECTURES, type Architecture } from './profile.ts';
import { GROUPS, UNIMPLEMENTED } from './groups.ts';
import { SYSTEM_CALLS } from './numbers.ts';

const AUDIT = { x86_64: 0xc000_003e, aarch64: 0xc000_00b7, i386: 0x4000_0003, arm: 0x4000_0028 } as const;
const ANSWERS: Readonly<Record<number, string>> = {
  0x8000_0000: 'killed',
  0x7fff_0000: 'allow',
  0x0005_0001: 'EPERM',
  0x0005_0026: 'ENOSYS',
  0x0005_005f: 'EOPNOTSUPP',
};

interface Call {
  readonly architecture: number;
  readonly number: number;
  readonly args: readonly bigint[];
}

/** Runs a program as the kernel does. */
function interpret(program: Buffer, { architecture, number, args }: Call): string {
  const data = Buffer.alloc(64);
  data.writeUInt32LE(number >>> 0, 0);
  data.writeUInt32LE(architecture, 4);
  args.forEach((value, index) => data.writeBigUInt64LE(value, 16 + 8 * index));
  let accumulator = 0;
  for (let at = 0; at < program.length; at += 8) {
    const [code, yes, no, k] = [
      program.readUInt16LE(at),
      program.readUInt8(at + 2),
      program.readUInt8(at + 3),
      program.readUInt32LE(at + 4),
    ];
    if (code === 0x20) accumulator = data.readUInt32LE(k);
    else if (code === 0x54) accumulator = (accumulator & k) >>> 0;
    else if (code === 0x05) at += 8 * k;
    else if (code === 0x15) at += 8 * (accumulator === k ? yes : no);
    else if (code === 0x35) at += 8 * (accumulator >= k ? yes : no);
    else if (code === 0x06) return ANSWERS[k] ?? `answer ${k}`;
    else throw new Error(`instruction ${code}`);
  }
  throw new Error('ran off the end');
}

/** What the source says of a call. */
function wanted(architecture: Architecture, name: string, args: readonly bigint[]): string {
  const old = architecture === 'x86_64';
  if (GROUPS.some(({ calls, x86_64 = [] }) => calls.includes(name) || (old && x86_64.includes(name)))) return 'allow';
  const condition = CONDITIONALS.find(({ calls, x86_64 }) => calls.includes(name) && (old || !x86_64));
  if (condition)
    return condition.alternatives.some(tests =>
      tests.every(({ argument, mask, value }) => ((args[argument] ?? 0n) & BigInt(mask)) === BigInt(value)),
    )
      ? 'allow'
      : 'EPERM';
  return UNIMPLEMENTED.includes(name) ? 'ENOSYS' : 'EPERM';
}

// Values near those that the tests compare with are the ones that can go wrong.
const interesting = CONDITIONALS.flatMap(({ alternatives }) => alternatives.flat()).flatMap(({ mask, value }) => [
  BigInt(value),
  BigInt(mask),
  BigInt(value) | (1n << 32n),
  BigInt(value) | (0xffff_ffffn << 32n),
]);
const argument = fc.oneof(
  fc.constantFrom(...interesting, 0x5412n, 0x541cn, 40n, 38n),
  fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }),
);
const six = fc.tuple(argument, argument, argument, argument, argument, argument);

describe.each(ARCHITECTURES)('the compiled filter for %s', architecture => {
  const program = seccompProgram(architecture);
  const numbers = SYSTEM_CALLS[architecture];
  const ask = (number: number, args: readonly bigint[] = [], as: number = AUDIT[architecture]): string =>
    interpret(program, { architecture: as, number, args });

  it('is short enough for the kernel, and whole instructions', () => {
    expect(program.length % 8).toBe(0);
    expect(program.length / 8).toBeLessThan(4096);
  });

  it('answers every call there is as the source says, for any arguments', () => {
    fc.assert(
      fc.property(six, args => {
        for (const [name, number] of numbers)
          expect([name, ask(number, args)]).toEqual([name, wanted(architecture, name, args)]);
      }),
      { numRuns: 60 },
    );
  });

  it('answers calls with conditions as the source says', () => {
    const conditional = CONDITIONALS.flatMap(({ calls }) => calls).filter(name => numbers.has(name));
    fc.assert(
      fc.property(fc.constantFrom(...conditional), six, (name, args) => {
        expect(ask(numbers.get(name) ?? -1, args)).toBe(wanted(architecture, name, args));
      }),
      { numRuns: 3000 },
    );
  });

  it('answers “not supported” to what a disk limit rules out, and the same as ever to everything else', () => {
    const limited = seccompProgram(architecture, { diskLimited: true });
    const args = [0n, 0n, 0n, 0n, 0n, 0n];
    for (const [name, number] of numbers)
      expect([name, interpret(limited, { architecture: AUDIT[architecture], number, args })]).toEqual([
        name,
        name === 'fallocate' ? 'EOPNOTSUPP' : ask(number, args),
      ]);
    expect(ask(numbers.get('fallocate') ?? -1)).toBe('allow');
  });

  it('denies numbers that belong to no call', () => {
    const known = new Set(numbers.values());
    for (let number = 0; number < 2000; number++) if (!known.has(number)) expect(ask(number)).toBe('EPERM');
    expect(ask(0x3fff_ffff)).toBe('EPERM');
  });

  it('ends a program that calls by another architecture’s numbers', () => {
    for (const other of Object.values(AUDIT).filter(name => name !== AUDIT[architecture]))
      for (const number of [0, 1, 102, 359]) expect(ask(number, [], other)).toBe('killed');
  });

  it('knows the number of every call that the source names', () => {
    const old = architecture === 'x86_64';
    const names = [
      ...GROUPS.flatMap(({ calls, x86_64 = [] }) => (old ? [...calls, ...x86_64] : calls)),
      ...CONDITIONALS.filter(({ x86_64 }) => old || !x86_64).flatMap(({ calls }) => calls),
      ...UNIMPLEMENTED,
    ];
    expect(names.filter(name => !numbers.has(name))).toEqual([]);
  });

  it('has one number for each call', () => {
    expect(new Set(numbers.values()).size).toBe(numbers.size);
  });
});

describe('the compiled filter for x86_64', () => {
  const program = seccompProgram('x86_64');

  it('ends a program that makes a call of x32, and only denies one that a tracer left out', () => {
    const ask = (number: number): string => interpret(program, { architecture: AUDIT.x86_64, number, args: [] });
    for (const number of [0, 1, 41, 59, 512, 520]) expect(ask(0x4000_0000 + number)).toBe('killed');
    expect(ask(0x7fff_ffff)).toBe('killed');
    expect(ask(0xffff_fffe)).toBe('killed');
    expect(ask(0xffff_ffff)).toBe('EPERM');
  });
});
