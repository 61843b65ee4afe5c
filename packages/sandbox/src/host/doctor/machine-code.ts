// The instructions of the probing program, by hand for each processor: images rarely have a compiler, and a probe must not need one.
//
// The program walks a table of system calls, makes each one, keeps what came back and prints it as `=` and 16 hexadecimal
// digits. Its data begins at 0x600000 (see program.ts for the layout).

/** A processor the program was written for. */
export type Processor = 'x86_64' | 'aarch64';

const X86_64 = [
  'bb00006000', //         mov  ebx, 0x600000       the data
  '4c8da380000000', //     lea  r12, [rbx+0x80]     the table
  '4c8b2b', //             mov  r13, [rbx]          calls to make
  '488b6b08', //           mov  rbp, [rbx+8]        where results go
  '4d85ed', //       next: test r13, r13
  '0f84a3000000', //       je   done
  '4d8b742408', //         mov  r14, [r12+8]        which arguments are addresses of earlier results
  '31c9', //               xor  ecx, ecx
  '498b44cc10', //    arg: mov  rax, [r12+rcx*8+16]
  '490fa3ce', //           bt   r14, rcx
  '7303', //               jnc  plain
  '488b00', //             mov  rax, [rax]
  '488944cb10', //  plain: mov  [rbx+rcx*8+16], rax
  'ffc1', //               inc  ecx
  '83f906', //             cmp  ecx, 6
  '72e6', //               jb   arg
  '488b7b10', //           mov  rdi, [rbx+0x10]
  '488b7318', //           mov  rsi, [rbx+0x18]
  '488b5320', //           mov  rdx, [rbx+0x20]
  '4c8b5328', //           mov  r10, [rbx+0x28]
  '4c8b4330', //           mov  r8, [rbx+0x30]
  '4c8b4b38', //           mov  r9, [rbx+0x38]
  '498b0424', //           mov  rax, [r12]
  '41f7c600010000', //     test r14d, 0x100         the gate of 32-bit programs?
  '740c', //               jz   native
  '53', //                 push rbx
  '89f1', //               mov  ecx, esi
  '89fb', //               mov  ebx, edi
  'cd80', //               int  0x80
  '5b', //                 pop  rbx
  '4898', //               cdqe
  'eb02', //               jmp  store
  '0f05', //       native: syscall
  '48894500', //    store: mov  [rbp], rax
  '4883c508', //           add  rbp, 8
  '488d7b51', //           lea  rdi, [rbx+0x51]     after the `=`
  'b910000000', //         mov  ecx, 16
  '48c1c004', //    digit: rol  rax, 4
  '89c2', //               mov  edx, eax
  '83e20f', //             and  edx, 15
  '83c230', //             add  edx, '0'
  '83fa39', //             cmp  edx, '9'
  '7603', //               jbe  ok
  '83c227', //             add  edx, 'a'-'9'-1
  '8817', //           ok: mov  [rdi], dl
  '48ffc7', //             inc  rdi
  'ffc9', //               dec  ecx
  '75e3', //               jnz  digit
  'b801000000', //         mov  eax, 1              write
  'bf01000000', //         mov  edi, 1
  '488d7350', //           lea  rsi, [rbx+0x50]
  'ba12000000', //         mov  edx, 18
  '0f05', //               syscall
  '4983c440', //           add  r12, 64
  '49ffcd', //             dec  r13
  'e954ffffff', //         jmp  next
  'b83c000000', //   done: mov  eax, 60             exit
  '31ff', //               xor  edi, edi
  '0f05', //               syscall
].join('');

const AARCH64 = [
  0xd2a0_0c13, //        mov  x19, #0x600000
  0x9102_0274, //        add  x20, x19, #0x80
  0xf940_0275, //        ldr  x21, [x19]
  0xf940_0676, //        ldr  x22, [x19, #8]
  0xb400_04d5, //  next: cbz  x21, done
  0xf940_0697, //        ldr  x23, [x20, #8]
  0xd280_0009, //        mov  x9, #0
  0x9100_428a, //        add  x10, x20, #16
  0x9100_426b, //        add  x11, x19, #0x10
  0xf869_794c, //   arg: ldr  x12, [x10, x9, lsl #3]
  0x9ac9_26ed, //        lsr  x13, x23, x9
  0x3600_004d, //        tbz  w13, #0, plain
  0xf940_018c, //        ldr  x12, [x12]
  0xf829_796c, // plain: str  x12, [x11, x9, lsl #3]
  0x9100_0529, //        add  x9, x9, #1
  0xf100_193f, //        cmp  x9, #6
  0x54ff_ff23, //        b.lo arg
  0xa941_0660, //        ldp  x0, x1, [x19, #0x10]
  0xa942_0e62, //        ldp  x2, x3, [x19, #0x20]
  0xa943_1664, //        ldp  x4, x5, [x19, #0x30]
  0xf940_0288, //        ldr  x8, [x20]
  0xd400_0001, //        svc  #0
  0xf800_86c0, //        str  x0, [x22], #8
  0x9101_466a, //        add  x10, x19, #0x51
  0xd280_0209, //        mov  x9, #16
  0x93c0_f000, // digit: ror  x0, x0, #60
  0x9240_0c0b, //        and  x11, x0, #15
  0x9100_c16b, //        add  x11, x11, #'0'
  0xf100_e57f, //        cmp  x11, #'9'
  0x5400_0049, //        b.ls ok
  0x9100_9d6b, //        add  x11, x11, #39
  0x3800_154b, //    ok: strb w11, [x10], #1
  0xf100_0529, //        subs x9, x9, #1
  0x54ff_ff01, //        b.ne digit
  0xd280_0808, //        mov  x8, #64             write
  0xd280_0020, //        mov  x0, #1
  0x9101_4261, //        add  x1, x19, #0x50
  0xd280_0242, //        mov  x2, #18
  0xd400_0001, //        svc  #0
  0x9101_0294, //        add  x20, x20, #64
  0xd100_06b5, //        sub  x21, x21, #1
  0x17ff_ffdb, //        b    next
  0xd280_0ba8, //  done: mov  x8, #93             exit
  0xd280_0000, //        mov  x0, #0
  0xd400_0001, //        svc  #0
];

/** The instructions for a processor. */
export function instructionsFor(processor: Processor): Buffer {
  if (processor === 'x86_64') return Buffer.from(X86_64, 'hex');
  const code = Buffer.alloc(AARCH64.length * 4);
  AARCH64.forEach((word, index) => code.writeUInt32LE(word, index * 4));
  return code;
}
