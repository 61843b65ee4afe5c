// Level ulimit: the command on this host, each of its processes with limits of its own. No security boundary.

import { readFile } from 'node:fs/promises';
import { AcodeError } from '../../contract/errors.ts';
import type { Level } from '../../contract/levels.ts';
import type { Clock } from '../../contract/ports.ts';
import type { ImageFacts, SandboxSpec } from '../../contract/spec.ts';
import type { Capability, WaitingSandbox, WeakenedBackend, Weakening } from '../backend.ts';
import { WAITING_COMMAND } from '../handover/script.ts';
import { type Child, HOST_IMAGE, LEAKED_VARIABLES, parseLimits } from '../process/child.ts';
import { assertWeakenable, capabilityOnHost, NO_BOUNDARY, prepareOnHost, refuseOnHost } from '../process/on-host.ts';

/** How a backend should behave. */
export interface UlimitBackendOptions extends UlimitSettings {
  readonly clock: Clock;
  /** Fires when the session ends. */
  readonly closing: AbortSignal;
  /** Keeps work that outlives its caller, so that closing waits for it. */
  readonly keep: (work: Promise<unknown>) => void;
  /** What its sandboxes lack, where they are controls of the doctor’s. */
  readonly weakness?: { readonly weakenings: readonly Weakening[]; readonly beforeCreate: () => Promise<void> };
}

const WEAKENABLE: readonly Weakening[] = ['environment', 'memory', 'open-files'];
const NONE = { weakenings: [], beforeCreate: async () => {} };
const LOOSE = { memoryBytes: 512 * 1024 ** 2, openFiles: 1024 } as const;
const MAX_LOOKS = 200;
const LOOK_MS = 2;

/** The backend of level ulimit. */
export class UlimitBackend implements WeakenedBackend {
  readonly level: Level = 'ulimit';
  /** What everybody who uses the level should know. */
  readonly notes: readonly string[] = [
    ...NO_BOUNDARY,
    'Its limits hold for each process alone, and none for how many there are.',
    ...(process.platform === 'darwin'
      ? ['macOS does not limit the memory of a process, so that limit is not set.']
      : []),
  ];
  readonly #options: UlimitBackendOptions;

  constructor(options: UlimitBackendOptions) {
    this.#options = options;
  }

  async probe(): Promise<Capability> {
    return capabilityOnHost(this.level);
  }

  async resolveImage(): Promise<ImageFacts> {
    return HOST_IMAGE;
  }

  describe(spec: SandboxSpec): unknown {
    const limits = ulimitLimits(spec, this.#options, process.platform);
    return { program: '/bin/sh', arguments: ulimitCommand(limits).slice(1), limits, notes: this.notes };
  }

  async prepare(spec: SandboxSpec, signal: AbortSignal): Promise<WaitingSandbox> {
    refuseOnHost(spec, this.level);
    const { weakenings, beforeCreate } = this.#options.weakness ?? NONE;
    const limits = ulimitLimits(weakenedSpec(spec, weakenings), this.#options, process.platform);
    const planned = ulimitLimits(spec, this.#options, process.platform);
    const verified = !weakenings.includes('verification');
    const start = {
      spec,
      argv: ulimitCommand(limits),
      variables: weakenings.includes('environment') ? LEAKED_VARIABLES : {},
      verify: (child: Child) => (verified ? assertLimits(child, planned) : Promise.resolve()),
      beforeCreate,
    };
    return prepareOnHost(start, signal);
  }

  weakened(weakenings: readonly Weakening[], beforeCreate = NONE.beforeCreate): WeakenedBackend {
    assertWeakenable(weakenings, WEAKENABLE, this.level);
    return new UlimitBackend({ ...this.#options, weakness: { weakenings, beforeCreate } });
  }

  // Sandboxes share nothing here.
  async release(): Promise<readonly never[]> {
    return [];
  }

  close(): void {}

  async [Symbol.asyncDispose](): Promise<void> {}
}

function weakenedSpec(spec: SandboxSpec, weakenings: readonly Weakening[]): SandboxSpec {
  const { limits } = spec;
  return {
    ...spec,
    limits: {
      ...limits,
      memoryBytes: weakenings.includes('memory') ? LOOSE.memoryBytes : limits.memoryBytes,
      openFiles: weakenings.includes('open-files') ? LOOSE.openFiles : limits.openFiles,
    },
  };
}

// The kernel’s word, where there is one to be had: the shell sets its limits in the first moments, so one look may be too early.
async function assertLimits(child: Child, planned: UlimitLimits): Promise<void> {
  if (process.platform !== 'linux') return;
  let wrong: string[] = [];
  for (let look = 0; look < MAX_LOOKS && !child.ended; look++) {
    wrong = differences(planned, await readFile(`/proc/${child.pid}/limits`, 'utf8').catch(() => ''));
    if (wrong.length === 0) return;
    await new Promise(resolve => void setTimeout(resolve, LOOK_MS));
  }
  if (!child.ended) throw new AcodeError('ACODE-SBX-010', { violation: 'SpecMismatch', detail: wrong.join('; ') });
}

function differences(planned: UlimitLimits, content: string): string[] {
  const found = parseLimits(content);
  const wanted: [name: string, value: number | null][] = [
    ['Max cpu time', planned.cpuSeconds],
    ['Max file size', planned.fileBytes],
    ['Max open files', planned.openFiles],
    ['Max core file size', 0],
    ['Max address space', planned.virtualMemoryBytes],
  ];
  return wanted.flatMap(([name, value]) => {
    const limit = found.get(name);
    return value === null || limit?.hard === value ? [] : [`${name}: planned ${value}, found ${limit?.hard ?? 'none'}`];
  });
}

// The limits of level ulimit, and the shell text that sets them: numbers as words, never a line made of input. Pure.

/** Limits of each process; null where one is not set. */
interface UlimitLimits {
  readonly cpuSeconds: number;
  readonly fileBytes: number;
  readonly openFiles: number;
  readonly virtualMemoryBytes: number | null;
}

/** What the user’s configuration says of them. */
interface UlimitSettings {
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
