// The settings of a host: configuration with every default filled in, in the units the code uses.

import type { Config } from './schema.ts';

/** What level ulimit holds each process to. */
interface UlimitSettings {
  readonly fileBytes: number;
  readonly cpuSeconds: number;
  /** Null where the address space is not limited; absent where it is to be as large as the memory. */
  readonly virtualMemoryBytes?: number | null;
}

/** How a host behaves, apart from the policy of its sandboxes. */
export interface Settings {
  readonly engineSocket: string | undefined;
  readonly namePrefix: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly createTimeoutMs: number;
  /** How long a pull may take, with every try. */
  readonly pullTimeoutMs: number;
  /** Between being asked to end and being killed. */
  readonly graceMs: number;
  readonly maxConcurrent: number;
  /** How long a run waits for a place; 0 where the user wants no queue. */
  readonly queueMs: number;
  readonly cleanupMs: number;
  /** Whether what dead sessions left behind is removed when a session begins. */
  readonly sweepsOrphans: boolean;
  readonly retry: { readonly attempts: number; readonly baseMs: number; readonly factor: number };
  /** Whether bubblewrap may run where memory is limited for each process only. */
  readonly acceptsProcessLimits: boolean;
  /** What level ulimit holds each process to. */
  readonly ulimit: UlimitSettings;
  /** How many days output is kept; null where it is not. */
  readonly keepOutputDays: number | null;
}

type Section<Name extends keyof NonNullable<Config['sandbox']>> = NonNullable<NonNullable<Config['sandbox']>[Name]>;

/** Fills in the defaults. */
export function settingsOf({ sandbox = {} }: Config): Settings {
  const { containers = {}, output = {} } = sandbox;
  return {
    engineSocket: sandbox.docker?.host,
    ...containerSettings(containers),
    cleanupMs: (sandbox.cleanup?.timeout_seconds ?? 30) * 1000,
    retry: retrySettings(sandbox.retry ?? {}),
    ...levelSettings(sandbox),
    keepOutputDays: output.save === false ? null : (output.retention_days ?? 7),
  };
}

function levelSettings(sandbox: NonNullable<Config['sandbox']>): Pick<Settings, 'acceptsProcessLimits' | 'ulimit'> {
  const acceptsProcessLimits = sandbox.bubblewrap?.accept_process_limits ?? false;
  return { acceptsProcessLimits, ulimit: ulimitSettings(sandbox) };
}

function ulimitSettings(sandbox: NonNullable<Config['sandbox']>): UlimitSettings {
  const virtual = sandbox.max_virtual_memory;
  return {
    fileBytes: (sandbox.max_file_size_mb ?? 100) * 1024 ** 2,
    cpuSeconds: sandbox.max_cpu_seconds ?? 300,
    ...(virtual === undefined ? {} : { virtualMemoryBytes: virtual === 'unlimited' ? null : virtual }),
  };
}

function retrySettings({ attempts = 3, base_ms = 100, factor = 2 }: Section<'retry'>): Settings['retry'] {
  return { attempts, baseMs: base_ms, factor };
}

function containerSettings(
  containers: Section<'containers'>,
): Pick<
  Settings,
  | 'namePrefix'
  | 'labels'
  | 'createTimeoutMs'
  | 'pullTimeoutMs'
  | 'graceMs'
  | 'maxConcurrent'
  | 'queueMs'
  | 'sweepsOrphans'
> {
  return {
    namePrefix: containers.name_prefix ?? 'acode',
    labels: containers.labels ?? {},
    createTimeoutMs: (containers.create_timeout_seconds ?? 30) * 1000,
    pullTimeoutMs: (containers.pull_timeout_seconds ?? 300) * 1000,
    graceMs: (containers.stop_timeout_seconds ?? 2) * 1000,
    maxConcurrent: containers.max_concurrent ?? 4,
    sweepsOrphans: containers.cleanup_orphans ?? true,
    queueMs: containers.on_limit === 'reject' ? 0 : (containers.queue_timeout_seconds ?? 60) * 1000,
  };
}
