// The schema of the configuration file: every key, strict, in the words of the file.

import { z } from 'zod';
import { parseBytes } from './units.ts';

const seconds = z.number().positive().max(86_400);
const megabytes = z.number().positive();

/** A number of megabytes, or text with a unit such as `512m` or `1.5g`. */
const memory = z.union([megabytes, z.string()]).transform((value, context) => {
  const bytes = typeof value === 'number' ? Math.round(value * 1024 ** 2) : parseBytes(value);
  if (bytes !== null) return bytes;
  context.addIssue({ code: 'custom', message: 'expected a size such as 512 (MB), 512m or 1.5g' });
  return z.NEVER;
});

const defaults = z.strictObject({
  cpu_limit: z.number().min(0.01).optional(),
  memory_mb: memory.optional(),
  memory_swap_mb: z.int().nonnegative().optional(),
  pids_limit: z.int().min(8).optional(),
  open_files: z.int().positive().optional(),
  timeout_seconds: seconds.optional(),
  user: z.union([z.literal('host'), z.string().regex(/^\d+:\d+$/, 'expected uid:gid or host')]).optional(),
});

const sandbox = z.strictObject({
  docker: z.strictObject({ host: z.string().optional() }).optional(),
  defaults: defaults.optional(),
  images: z.strictObject({ default: z.string().min(1).optional() }).optional(),
  mounts: z
    .strictObject({
      workspace_mode: z.enum(['rw', 'ro']).optional(),
      tmpfs_size: memory.refine(bytes => bytes >= 65_536, 'expected at least 64k').optional(),
    })
    .optional(),
  containers: z
    .strictObject({
      name_prefix: z
        .string()
        .regex(
          /^[a-z0-9](?:[a-z0-9-]{0,18}[a-z0-9])?$/,
          'expected up to 20 lower-case letters, digits and inner hyphens',
        )
        .optional(),
      labels: z.record(z.string(), z.string()).optional(),
      create_timeout_seconds: seconds.optional(),
      stop_timeout_seconds: z.number().nonnegative().max(10).optional(),
      max_concurrent: z.int().min(1).max(16).optional(),
      on_limit: z.enum(['queue', 'reject']).optional(),
      queue_timeout_seconds: seconds.optional(),
    })
    .optional(),
  cleanup: z.strictObject({ timeout_seconds: seconds.optional() }).optional(),
  retry: z
    .strictObject({
      attempts: z.int().min(0).max(10).optional(),
      base_ms: z.int().positive().max(10_000).optional(),
      factor: z.number().min(1).max(10).optional(),
    })
    .optional(),
  output: z
    .strictObject({
      max_bytes: z.int().nonnegative().optional(),
      save: z.boolean().optional(),
      retention_days: z.int().positive().max(365).optional(),
    })
    .optional(),
});

/** The whole file. */
export const configSchema = z.strictObject({
  allow_root: z.boolean().optional(),
  sandbox: sandbox.optional(),
});

/**
 * Configuration as it is written, in a file or as `AcodeOptions.config`.
 *
 * @example
 * await Acode.open({ config: { sandbox: { defaults: { memory_mb: 1024 } } } });
 */
export type ConfigInput = z.input<typeof configSchema>;

/** Configuration after parsing: sizes in bytes. */
export type Config = z.output<typeof configSchema>;

// Keys of the planned configuration that nothing honours yet. A file that sets one is refused with a reason of its own:
// silence would let a user believe in a protection that is not there.
const PLANNED = new Set([
  'mode',
  'swarm',
  'sandbox.enabled',
  'sandbox.level',
  'sandbox.require_for',
  'sandbox.fallback',
  'sandbox.docker.api_version',
  'sandbox.docker.allow_remote',
  'sandbox.defaults.network',
  'sandbox.defaults.nproc_ulimit',
  'sandbox.defaults.blkio',
  'sandbox.defaults.bandwidth',
  'sandbox.network',
  'sandbox.images.dotnet',
  'sandbox.images.node',
  'sandbox.images.python',
  'sandbox.images.combined',
  'sandbox.images.pull_policy',
  'sandbox.images.offline',
  'sandbox.mounts.workspace_path',
  'sandbox.mounts.additional',
  'sandbox.mounts.allowed_host_roots',
  'sandbox.mounts.tmpfs',
  'sandbox.cache_volumes',
  'sandbox.containers.cleanup_orphans',
  'sandbox.containers.pull_timeout_seconds',
  'sandbox.cleanup.on_task_complete',
  'sandbox.cleanup.on_agent_exit',
  'sandbox.cleanup.match_names',
  'sandbox.cleanup.background_interval_seconds',
  'sandbox.security',
]);

/** Whether a key is known but has no effect in this version. */
export function isPlanned(key: string): boolean {
  return PLANNED.has(key);
}
