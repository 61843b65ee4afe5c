// Puts classic BPF programs together from their end to their beginning, so that every jump knows where it leads.

/** A place in a program: how many instructions stand from there to the end. */
export type Label = number;

/** How the accumulator is compared with a constant. */
export type Comparison = 'equal' | 'atLeast';

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
export class Assembler {
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
export function assemble({ instructions }: Assembler): Buffer {
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
