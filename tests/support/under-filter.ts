// A program under the filter that sandboxes get, which forbids it user namespaces as the settings of many systems do.

import { writeFileSync } from 'node:fs';
import { seccompProgram } from '../../packages/sandbox/src/isolation/seccomp/bpf.ts';

const PROGRAM = `
import ctypes, os, sys
code = open(sys.argv[1], 'rb').read()
text = ctypes.create_string_buffer(code, len(code))
class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
whole = Program(len(code) // 8, ctypes.cast(text, ctypes.c_void_p))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(whole), 0, 0) == 0
os.execv(sys.argv[2], sys.argv[2:])`;

/** The words that start `argv` under the filter, which is written to `file`. */
export function underFilter(file: string, argv: readonly string[]): [program: string, ...words: string[]] {
  writeFileSync(file, seccompProgram(process.arch === 'arm64' ? 'aarch64' : 'x86_64'));
  return ['/usr/bin/python3', '-I', '-c', PROGRAM, file, ...argv];
}
