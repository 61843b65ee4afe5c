// The limits a sandbox’s processes carry themselves, and the shell text that sets them inside. Pure.
//
// Set inside, after the user namespace is made: there the kernel counts only the sandbox’s own processes, and not all those
// of the same user on the host.

import type { Limits } from '../../contract/policy.ts';
import { WAITING_COMMAND } from '../handover/script.ts';
import { parseLimits } from '../process/read-limits.ts';

/** Limits of each process; null where a control group holds all of them together instead. */
export interface ResourceLimits {
  readonly openFiles: number;
  readonly fileBytes: number;
  readonly coreBytes: 0;
  readonly processes: number | null;
  readonly dataBytes: number | null;
}

// A file with holes costs nothing to make and everything to whoever copies or backs up the workspace.
const FILE_BYTES = 64 * 1024 ** 3;
const BLOCK_BYTES = 512;

// The descriptor on which the inside says that its limits are set. One digit: shells know no others.
const READY = 9;

/** The limits of a sandbox’s processes; `perProcess` where no control group limits memory and processes. */
export function resourceLimits({ openFiles, pids, memoryBytes }: Limits, perProcess: boolean): ResourceLimits {
  return {
    openFiles,
    fileBytes: FILE_BYTES,
    coreBytes: 0,
    processes: perProcess ? pids : null,
    // Not the address space: runtimes reserve far more of it than they ever use, and would not start.
    dataBytes: perProcess ? memoryBytes : null,
  };
}

/** The limits as variables for {@link WAITING_INSIDE}; they are gone before anything else runs. */
export function limitVariables(limits: ResourceLimits): Readonly<Record<string, string>> {
  const kibibytes = limits.dataBytes === null ? '' : String(Math.ceil(limits.dataBytes / 1024));
  return {
    _acode_n: String(limits.openFiles),
    _acode_f: String(Math.floor(limits.fileBytes / BLOCK_BYTES)),
    _acode_u: limits.processes === null ? '' : String(limits.processes),
    _acode_d: kibibytes,
  };
}

// Shells name the limit on processes -u or -p. What became of each limit is read from the kernel afterwards.
const SET_LIMITS = `ulimit -c 0 && ulimit -f "$_acode_f" && ulimit -n "$_acode_n" || exit 125
if [ -n "$_acode_d" ]; then ulimit -d "$_acode_d" || exit 125; fi
if [ -n "$_acode_u" ]; then ulimit -u "$_acode_u" 2>/dev/null || ulimit -p "$_acode_u" || exit 125; fi
unset _acode_n _acode_f _acode_u _acode_d
echo ready >&${READY} && exec ${READY}>&- && exec "$@"`;

/** The first program of a sandbox: sets the limits, says so, and becomes the shell that waits. */
export const WAITING_INSIDE: readonly string[] = ['/bin/sh', '-c', SET_LIMITS, 'sh', ...WAITING_COMMAND];

/** Every limit that is not as planned, in words. */
export function limitDifferences(planned: ResourceLimits, content: string): string[] {
  const found = parseLimits(content);
  const wanted: [name: string, value: number | null][] = [
    ['Max open files', planned.openFiles],
    ['Max file size', planned.fileBytes],
    ['Max core file size', planned.coreBytes],
    ['Max processes', planned.processes],
    ['Max data size', planned.dataBytes === null ? null : Math.ceil(planned.dataBytes / 1024) * 1024],
  ];
  return wanted.flatMap(([name, value]) => {
    const limit = found.get(name);
    if (value === null || (limit?.soft === value && limit.hard === value)) return [];
    return [`${name}: planned ${value}, found ${limit?.soft ?? 'none'}`];
  });
}
