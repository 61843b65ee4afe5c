// NATS server check: its version, and whether it writes to disk before it answers. A server that fails is refused.

import * as z from 'zod';
import { FLEET_ERRORS } from '../../errors.ts';
import { reasonOf } from '../retry.ts';

// Fixes of lost and split streams after the removal of a peer; and what is older lacks per-key times to live.
const MIN_VERSION = [2, 12, 3] as const;
const MONITOR_MS = 5000;

/** Whether a version is new enough. `2.12.3-RC.1` counts as 2.12.3. */
export function isRecent(version: string): boolean {
  const found = /^v?(\d+)\.(\d+)\.(\d+)/.exec(version)?.slice(1).map(Number);
  if (!found) return false;
  for (const [at, least] of MIN_VERSION.entries()) {
    const part = found[at] ?? 0;
    if (part !== least) return part > least;
  }
  return true;
}

/** Refuses a server that is too old. */
export function assertVersion(engine: string, version: string): void {
  if (isRecent(version)) return;
  const needed = `${MIN_VERSION.join('.')} or newer`;
  throw FLEET_ERRORS.create('ACODE-FLT-002', { engine, setting: 'the version', found: version, needed });
}

const monitorSchema = z.looseObject({
  server_name: z.string().optional(),
  version: z.string(),
  jetstream: z.looseObject({ config: z.looseObject({ sync_always: z.boolean().optional() }).optional() }).optional(),
});

/**
 * Asks the monitoring port of each server how it is set up. A client cannot see the setting that matters most: without
 * `sync_interval: always`, what was acknowledged can be lost with the power.
 */
export async function checkServers(monitors: readonly string[], signal?: AbortSignal): Promise<void> {
  await Promise.all(monitors.map(monitor => checkServer(monitor, signal)));
}

async function checkServer(monitor: string, signal?: AbortSignal): Promise<void> {
  const report = await reportOf(monitor, signal);
  assertVersion(monitor, report.version);
  if (report.jetstream?.config?.sync_always === true) return;
  const found = report.jetstream?.config === undefined ? 'absent, because JetStream is off' : 'an interval';
  throw FLEET_ERRORS.create('ACODE-FLT-002', { engine: monitor, setting: 'sync_interval', found, needed: '`always`' });
}

async function reportOf(monitor: string, signal?: AbortSignal): Promise<z.infer<typeof monitorSchema>> {
  const deadline = AbortSignal.timeout(MONITOR_MS);
  try {
    const response = await fetch(new URL('/varz', monitor), {
      signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
      redirect: 'error',
    });
    if (!response.ok) throw new Error(`its monitoring port answers with status ${response.status}`);
    return monitorSchema.parse(await response.json());
  } catch (cause) {
    signal?.throwIfAborted();
    const reason = cause instanceof Error && cause.cause instanceof Error ? reasonOf(cause.cause) : reasonOf(cause);
    throw FLEET_ERRORS.create('ACODE-FLT-001', { engine: monitor, reason }, { cause });
  }
}
