// The system call filter as the kernel wants it: a classic BPF program, made from groups.ts and conditions.ts.
//
// For levels that hand the filter to the kernel themselves. The engine’s JSON and this come from one source, and say the same.

import { CONDITIONALS, type Test } from './profile.ts';
import { GROUPS, UNIMPLEMENTED, UNSUPPORTED_WITH_LIMIT } from './groups.ts';
import { SYSTEM_CALLS } from './numbers.ts';
import type { Architecture, FilterOptions } from './profile.ts';

// linux/audit.h: the machine, 64 bits, little endian.
const AUDIT_NAMES: Readonly<Record<Architecture, number>> = { x86_64: 0xc000_003e, aarch64: 0xc000_00b7 };

// linux/seccomp.h.
const KILL_PROCESS = 0x8000_0000;
const ALLOW = 0x7fff_0000;
const ERRNO = 0x0005_0000;
const EPERM = 1;
const ENOSYS = 38;
const EOPNOTSUPP = 95;

// struct seccomp_data: the number, the architecture, the instruction’s address, and six arguments of 64 bits each.
const NUMBER_OFFSET = 0;
const ARCHITECTURE_OFFSET = 4;
const ARGUMENTS_OFFSET = 16;

// The calls of x32 come under the name of x86_64, with this bit in their number.
const X32_BIT = 0x4000_0000;
// What a tracer sets to have a call left out; not a call of x32.
const LEFT_OUT = 0xffff_ffff;

const ALL_BITS = 0xffff_ffff;

/** The filter for an architecture, as the bytes of an array of `struct sock_filter`. */
export function seccompProgram(architecture: Architecture, { diskLimited = false }: FilterOptions = {}): Buffer {
  const code = new Assembler();
  // Written from the end: every jump of a filter goes forward, so what it leads to is known by then.
  const kill = code.answer(KILL_PROCESS);
  const allow = code.answer(ALLOW);
  const missing = code.answer(ERRNO | ENOSYS);
  const deny = code.answer(ERRNO | EPERM);
  const unsupported = diskLimited ? code.answer(ERRNO | EOPNOTSUPP) : allow;
  const conditional = (tests: readonly (readonly Test[])[]): Label => anyOf(code, tests, allow, deny);
  const verdicts = verdictsOf(architecture, { allow, missing, unsupported, conditional });
  search(code, rangesOf(verdicts, deny));
  if (architecture === 'x86_64') refuseX32(code, { kill, deny });
  code.load(NUMBER_OFFSET);
  code.branch('equal', AUDIT_NAMES[architecture], code.here, kill);
  code.load(ARCHITECTURE_OFFSET);
  return assemble(code);
}

/** A filter that lets everything through, for controls of the doctor’s that lack this protection and no other. */
export function openProgram(): Buffer {
  const code = new Assembler();
  code.answer(ALLOW);
  return assemble(code);
}

function refuseX32(code: Assembler, { kill, deny }: { kill: Label; deny: Label }): void {
  const ordinary = code.here;
  const leftOut = code.branch('equal', LEFT_OUT, deny, kill);
  code.branch('atLeast', X32_BIT, leftOut, ordinary);
}

interface Answers {
  readonly allow: Label;
  readonly missing: Label;
  /** For what a disk limit rules out; the same as `allow` where there is none. */
  readonly unsupported: Label;
  readonly conditional: (alternatives: readonly (readonly Test[])[]) => Label;
}

// What becomes of each number. A name without a number is one that this architecture never had.
function verdictsOf(
  architecture: Architecture,
  { allow, missing, unsupported, conditional }: Answers,
): Map<number, Label> {
  const old = architecture === 'x86_64';
  const verdicts = new Map<number, Label>();
  const set = (names: readonly string[], label: Label): void => {
    for (const name of names) {
      const number = SYSTEM_CALLS[architecture].get(name);
      if (number !== undefined) verdicts.set(number, label);
    }
  };
  set(UNIMPLEMENTED, missing);
  for (const { calls, alternatives, x86_64 } of CONDITIONALS) if (old || !x86_64) set(calls, conditional(alternatives));
  for (const { calls, x86_64 = [] } of GROUPS) set(old ? [...calls, ...x86_64] : calls, allow);
  set(UNSUPPORTED_WITH_LIMIT, unsupported);
  return verdicts;
}

// Allows where every test of at least one alternative holds. Only the lower half of an argument is looked at, as in
// conditions.ts, and that is all the kernel looks at too.
function anyOf(code: Assembler, alternatives: readonly (readonly Test[])[], allow: Label, deny: Label): Label {
  let otherwise = deny;
  for (const tests of [...alternatives].reverse()) {
    let next = allow;
    for (const { argument, mask, value } of [...tests].reverse()) {
      next = code.branch('equal', value, next, otherwise);
      if (mask !== ALL_BITS) next = code.mask(mask);
      next = code.load(ARGUMENTS_OFFSET + 8 * argument);
    }
    otherwise = next;
  }
  return otherwise;
}

interface Range {
  readonly from: number;
  readonly answer: Label;
}

// Neighbours with the same answer are one range; what is between and behind them is denied.
function rangesOf(verdicts: ReadonlyMap<number, Label>, deny: Label): Range[] {
  const ranges: Range[] = [{ from: 0, answer: deny }];
  const highest = Math.max(...verdicts.keys());
  for (let number = 0; number <= highest + 1; number++) {
    const answer = verdicts.get(number) ?? deny;
    if (ranges.at(-1)?.answer !== answer) ranges.push({ from: number, answer });
  }
  return ranges[1]?.from === 0 ? ranges.slice(1) : ranges;
}

// A tree over the ranges: about eight comparisons for any call.
function search(code: Assembler, ranges: readonly Range[]): Label {
  const [first] = ranges;
  if (!first || ranges.length === 1) return first ? first.answer : code.here;
  const middle = Math.ceil(ranges.length / 2);
  const above = search(code, ranges.slice(middle));
  const below = search(code, ranges.slice(0, middle));
  return code.branch('atLeast', ranges[middle]?.from ?? 0, above, below);
}

// Puts classic BPF programs together from their end to their beginning, so that every jump knows where it leads.

/** A place in a program: how many instructions stand from there to the end. */
type Label = number;

/** How the accumulator is compared with a constant. */
type Comparison = 'equal' | 'atLeast';

interface Instruction {
  readonly code: number;
  readonly jumpTrue: number;
  readonly jumpFalse: number;
  readonly operand: number;
}

// linux/bpf_common.h: class, size or operation, and where the operand comes from, in one byte.
const LOAD_WORD = 0x20;
const AND = 0x54;
const JUMP = 0x05;
const RETURN = 0x06;
const COMPARISONS: Readonly<Record<Comparison, number>> = { equal: 0x15, atLeast: 0x35 };

// A comparison leads at most this far; a plain jump leads anywhere.
const FARTHEST = 255;
const INSTRUCTION_BYTES = 8;

/** A program under construction. What is added stands before everything that was added earlier. */
class Assembler {
  readonly #reversed: Instruction[] = [];

  /** The instruction that was added last. */
  get here(): Label {
    return this.#reversed.length;
  }

  /** The program from its beginning. */
  get instructions(): readonly Instruction[] {
    return this.#reversed.toReversed();
  }

  /** Ends the program with an answer. */
  answer(value: number): Label {
    return this.#add({ code: RETURN, jumpTrue: 0, jumpFalse: 0, operand: value });
  }

  /** Loads the word at an offset of what is judged, and goes on. */
  load(offset: number): Label {
    return this.#add({ code: LOAD_WORD, jumpTrue: 0, jumpFalse: 0, operand: offset });
  }

  /** Keeps only some bits of what was loaded, and goes on. */
  mask(bits: number): Label {
    return this.#add({ code: AND, jumpTrue: 0, jumpFalse: 0, operand: bits });
  }

  /** Compares what was loaded with a constant, and goes on at one of two places. */
  branch(comparison: Comparison, operand: number, ifTrue: Label, ifFalse: Label): Label {
    const near = this.#near(ifTrue);
    const other = this.#near(ifFalse);
    return this.#add({
      code: COMPARISONS[comparison],
      jumpTrue: this.#distance(near),
      jumpFalse: this.#distance(other),
      operand,
    });
  }

  // A place within reach that leads to a place. One more instruction may come between it and the comparison.
  #near(target: Label): Label {
    if (this.#distance(target) + 1 <= FARTHEST) return target;
    return this.#add({ code: JUMP, jumpTrue: 0, jumpFalse: 0, operand: this.#distance(target) });
  }

  // How many instructions the next one would have to leave out.
  #distance(target: Label): number {
    return this.#reversed.length - target;
  }

  #add(instruction: Instruction): Label {
    this.#reversed.push(instruction);
    return this.here;
  }
}

/** The bytes of a program, in the order of the bytes of both architectures. */
function assemble({ instructions }: Assembler): Buffer {
  const bytes = Buffer.alloc(instructions.length * INSTRUCTION_BYTES);
  instructions.forEach(({ code, jumpTrue, jumpFalse, operand }, index) => {
    const at = index * INSTRUCTION_BYTES;
    bytes.writeUInt16LE(code, at);
    bytes.writeUInt8(jumpTrue, at + 2);
    bytes.writeUInt8(jumpFalse, at + 3);
    bytes.writeUInt32LE(operand >>> 0, at + 4);
  });
  return bytes;
}
