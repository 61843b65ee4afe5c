// The limits of level ulimit, and the shell text that sets them: numbers as words, never a line made of input. Pure.

import type { SandboxSpec } from '../../contract/spec.ts';
import { WAITING_COMMAND } from '../handover/script.ts';

/** Limits of each process; null where one is not set. */
export interface UlimitLimits {
  readonly cpuSeconds: number;
  readonly fileBytes: number;
  readonly openFiles: number;
  readonly virtualMemoryBytes: number | null;
}

/** What the user’s configuration says of them. */
export interface UlimitSettings {
  readonly cpuSeconds?: number;
  readonly fileBytes?: number;
  /** The address space; null for no limit, absent for the memory limit. Runtimes that reserve much of it need null. */
  readonly virtualMemoryBytes?: number | null;
}

const CPU_SECONDS = 300;
const FILE_BYTES = 100 * 1024 ** 2;
// What -f counts in, in every POSIX shell.
const BLOCK_BYTES = 512;
const UNSET = '-';

/** The limits of a sandbox. The limit on processes is not among them: it would count all those of the user. */
export function ulimitLimits(spec: SandboxSpec, settings: UlimitSettings, platform: NodeJS.Platform): UlimitLimits {
  const { cpuSeconds = CPU_SECONDS, fileBytes = FILE_BYTES, virtualMemoryBytes = spec.limits.memoryBytes } = settings;
  return {
    cpuSeconds,
    fileBytes,
    openFiles: spec.limits.openFiles,
    // macOS takes the number and does not hold anybody to it.
    virtualMemoryBytes: platform === 'darwin' ? null : virtualMemoryBytes,
  };
}

const SET_LIMITS = `ulimit -c 0 && ulimit -t "$1" && ulimit -f "$2" && ulimit -n "$3" || exit 125
if [ "$4" != ${UNSET} ]; then ulimit -v "$4" || exit 125; fi
shift 4
exec "$@"`;

/** The program that sets the limits and becomes the shell that waits. */
export function ulimitCommand(limits: UlimitLimits): readonly [program: string, ...words: string[]] {
  const memory = limits.virtualMemoryBytes;
  const numbers = [
    String(limits.cpuSeconds),
    String(Math.floor(limits.fileBytes / BLOCK_BYTES)),
    String(limits.openFiles),
    memory === null ? UNSET : String(Math.ceil(memory / 1024)),
  ];
  return ['/bin/sh', '-c', SET_LIMITS, 'sh', ...numbers, ...WAITING_COMMAND];
}
