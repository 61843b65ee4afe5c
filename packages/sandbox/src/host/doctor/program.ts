// Writes the probing program: a static ELF file that makes the system calls of a table and prints what each one answered.

import { instructionsFor } from './machine-code.ts';
import type { Processor } from './machine-code.ts';
import { numberOf } from './system-calls.ts';
import type { CallName } from './system-calls.ts';

/** An argument: a number, bytes or text to point at, or what an earlier call of the table answered. */
export type Argument = number | bigint | string | Uint8Array | { readonly resultOf: number };

/** One system call of a table. */
export interface SystemCall {
  readonly call: CallName;
  readonly args: readonly Argument[];
  /** By the gate of 32-bit programs, with its numbers. Only on x86_64. */
  readonly as32Bit?: true;
}

const CODE_AT = 0x40_0000;
const DATA_AT = 0x60_0000;
// The largest page any kernel for these processors uses: segments begin on a page of their own.
const PAGE = 0x1_0000;
const HEADERS = 64 + 2 * 56;
// count, results, six arguments, the line that is printed; the table comes at 0x80.
const LINE = 0x50;
const TABLE = 0x80;
const ENTRY = 64;
const BY_32_BIT_GATE = 0x100;
const MACHINES: Readonly<Record<Processor, number>> = { x86_64: 62, aarch64: 183 };

/** Shell text that puts a program from the workspace where it can be started. */
export function placed(name: string, directory: string): string {
  return `cat ${name} > ${directory}/${name} && chmod 755 ${directory}/${name}`;
}

/** The bytes of a program that makes these calls, in this order. */
export function probingProgram(processor: Processor, calls: readonly SystemCall[]): Buffer {
  const code = instructionsFor(processor);
  const data = dataOf(processor, calls);
  const file = Buffer.alloc(PAGE + data.length);
  elfHeader(processor).copy(file, 0);
  segment({ flags: 5, offset: 0, address: CODE_AT, size: HEADERS + code.length }).copy(file, 64);
  segment({ flags: 6, offset: PAGE, address: DATA_AT, size: data.length }).copy(file, 64 + 56);
  code.copy(file, HEADERS);
  data.copy(file, PAGE);
  return file;
}

/** What the calls answered, in order; a program that was killed leaves the rest out. */
export function answersIn(output: string): bigint[] {
  return [...output.matchAll(/^=([0-9a-f]{16})$/gm)].map(([, digits]) => BigInt.asIntN(64, BigInt(`0x${digits}`)));
}

function dataOf(processor: Processor, calls: readonly SystemCall[]): Buffer {
  const results = DATA_AT + TABLE + calls.length * ENTRY;
  const blobs = new Blobs(results + calls.length * 8);
  const table = Buffer.alloc(TABLE + calls.length * (ENTRY + 8));
  table.writeBigUInt64LE(BigInt(calls.length), 0);
  table.writeBigUInt64LE(BigInt(results), 8);
  table[LINE] = '='.charCodeAt(0);
  table[LINE + 17] = '\n'.charCodeAt(0);
  for (const [index, { call, args, as32Bit }] of calls.entries()) {
    const at = TABLE + index * ENTRY;
    table.writeBigUInt64LE(BigInt(numberOf(call, as32Bit ? 'i386' : processor)), at);
    let indirect = as32Bit ? BY_32_BIT_GATE : 0;
    for (const [position, argument] of args.entries()) {
      const isResult = typeof argument === 'object' && 'resultOf' in argument;
      if (isResult) indirect |= 1 << position;
      const value = isResult ? BigInt(results + argument.resultOf * 8) : valueOf(argument, blobs);
      table.writeBigUInt64LE(BigInt.asUintN(64, value), at + 16 + position * 8);
    }
    table.writeBigUInt64LE(BigInt(indirect), at + 8);
  }
  return Buffer.concat([table, blobs.bytes()]);
}

function valueOf(argument: number | bigint | string | Uint8Array, blobs: Blobs): bigint {
  if (typeof argument === 'number' || typeof argument === 'bigint') return BigInt(argument);
  return BigInt(blobs.add(typeof argument === 'string' ? Buffer.from(`${argument}\0`) : Buffer.from(argument)));
}

/** Bytes that arguments point at. */
class Blobs {
  readonly #parts: Buffer[] = [];
  #next: number;

  constructor(at: number) {
    this.#next = at;
  }

  add(bytes: Buffer): number {
    const padded = Buffer.concat([bytes, Buffer.alloc(8 + ((8 - (bytes.length % 8)) % 8))]);
    const at = this.#next;
    this.#parts.push(padded);
    this.#next += padded.length;
    return at;
  }

  bytes(): Buffer {
    return Buffer.concat(this.#parts);
  }
}

function elfHeader(processor: Processor): Buffer {
  const header = Buffer.alloc(64);
  Buffer.from('7f454c46020101', 'hex').copy(header);
  header.writeUInt16LE(2, 16);
  header.writeUInt16LE(MACHINES[processor], 18);
  header.writeUInt32LE(1, 20);
  header.writeBigUInt64LE(BigInt(CODE_AT + HEADERS), 24);
  header.writeBigUInt64LE(64n, 32);
  header.writeUInt16LE(64, 52);
  header.writeUInt16LE(56, 54);
  header.writeUInt16LE(2, 56);
  return header;
}

interface Segment {
  readonly flags: number;
  readonly offset: number;
  readonly address: number;
  readonly size: number;
}

function segment({ flags, offset, address, size }: Segment): Buffer {
  const header = Buffer.alloc(56);
  header.writeUInt32LE(1, 0);
  header.writeUInt32LE(flags, 4);
  header.writeBigUInt64LE(BigInt(offset), 8);
  header.writeBigUInt64LE(BigInt(address), 16);
  header.writeBigUInt64LE(BigInt(address), 24);
  header.writeBigUInt64LE(BigInt(size), 32);
  header.writeBigUInt64LE(BigInt(size), 40);
  header.writeBigUInt64LE(BigInt(PAGE), 48);
  return header;
}
