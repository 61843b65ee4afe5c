// The engine that a worker’s file names.

import type { FleetEngine } from '../engine/engine.ts';
import { NatsEngine } from '../engine/nats/engine.ts';
import { PostgresEngine } from '../engine/postgres/engine.ts';
import type { WorkerFile } from './file.ts';

/** Opens the engine of a worker’s file. */
export async function openEngine(
  { engine, fleet }: Pick<WorkerFile, 'engine' | 'fleet'>,
  signal?: AbortSignal,
): Promise<FleetEngine> {
  if ('postgres' in engine) {
    const { url, ca_file } = engine.postgres;
    return PostgresEngine.open({ url, fleet, ...(ca_file === undefined ? {} : { caFile: ca_file }) }, signal);
  }
  const { servers, monitors, unsynced, credentials, ca_file, replicas } = engine.nats;
  const options = {
    servers,
    fleet,
    ...(monitors === undefined ? {} : { monitors }),
    ...(unsynced === undefined ? {} : { unsynced }),
    ...(credentials === undefined ? {} : { credentials }),
    ...(ca_file === undefined ? {} : { caFile: ca_file }),
    ...(replicas === undefined ? {} : { replicas }),
  };
  return NatsEngine.open(options, signal);
}
