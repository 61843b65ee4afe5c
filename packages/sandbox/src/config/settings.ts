// The settings of a host: configuration with every default filled in, in the units the code uses.

import type { Config } from './schema.ts';

/** How a host behaves, apart from the policy of its sandboxes. */
export interface Settings {
  readonly engineSocket: string | undefined;
  readonly namePrefix: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly createTimeoutMs: number;
  /** Between being asked to end and being killed. */
  readonly graceMs: number;
  readonly maxConcurrent: number;
  /** How long a run waits for a place; 0 where the user wants no queue. */
  readonly queueMs: number;
  readonly cleanupMs: number;
  /** Whether what dead sessions left behind is removed when a session begins. */
  readonly sweepsOrphans: boolean;
  readonly retry: { readonly attempts: number; readonly baseMs: number; readonly factor: number };
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
    keepOutputDays: output.save === false ? null : (output.retention_days ?? 7),
  };
}

function retrySettings({ attempts = 3, base_ms = 100, factor = 2 }: Section<'retry'>): Settings['retry'] {
  return { attempts, baseMs: base_ms, factor };
}

function containerSettings(
  containers: Section<'containers'>,
): Pick<
  Settings,
  'namePrefix' | 'labels' | 'createTimeoutMs' | 'graceMs' | 'maxConcurrent' | 'queueMs' | 'sweepsOrphans'
> {
  return {
    namePrefix: containers.name_prefix ?? 'acode',
    labels: containers.labels ?? {},
    createTimeoutMs: (containers.create_timeout_seconds ?? 30) * 1000,
    graceMs: (containers.stop_timeout_seconds ?? 2) * 1000,
    maxConcurrent: containers.max_concurrent ?? 4,
    sweepsOrphans: containers.cleanup_orphans ?? true,
    queueMs: containers.on_limit === 'reject' ? 0 : (containers.queue_timeout_seconds ?? 60) * 1000,
  };
}
