// Streams of a fleet: created where they are missing, and compared setting by setting where they are there.

import { DiscardPolicy, JetStreamApiError, RetentionPolicy, StorageType } from '@nats-io/jetstream';
import type { JetStreamManager, StreamConfig } from '@nats-io/jetstream';
import { FLEET_ERRORS } from '../../errors.ts';
import { BLOB_KEEP_MS, LOG_KEEP_MS, MAX_QUEUED } from '../engine.ts';

const NANOSECONDS = 1_000_000;
const GIB = 1024 ** 3;
/** The server’s code for a stream that is not there. */
export const STREAM_NOT_FOUND = 10_059;

/** The names that the streams and subjects of one fleet have. Fleets with different names share a server. */
export interface FleetNames {
  readonly tasks: string;
  readonly states: string;
  readonly leases: string;
  readonly logs: string;
  readonly blobs: string;
  readonly subject: Readonly<
    Record<'task' | 'state' | 'lease' | 'log' | 'blob' | 'notice' | 'control' | 'gate' | 'exec', string>
  >;
}

/** The names of a fleet. States and leases are buckets, so that `nats kv` shows them. */
export function namesOf(fleet: string): FleetNames {
  const upper = fleet.toUpperCase().replaceAll('-', '_');
  const lower = fleet.replaceAll('-', '_');
  return {
    tasks: `${upper}_TASKS`,
    states: `KV_${lower}_task`,
    leases: `KV_${lower}_lease`,
    logs: `${upper}_LOGS`,
    blobs: `${upper}_BLOBS`,
    subject: {
      task: `${fleet}.task`,
      state: `$KV.${lower}_task`,
      lease: `$KV.${lower}_lease`,
      log: `${fleet}.log`,
      blob: `${fleet}.blob`,
      notice: `${fleet}.notice`,
      // What only the operator may send: no worker and no tenant.
      control: `${fleet}.ctl`,
      gate: `${fleet}.gate`,
      exec: `${fleet}.exec`,
    },
  };
}

/** The sizes that streams may reach, in bytes. */
export interface StreamSizes {
  /** All logs of the last hour; 1 GiB by default. The oldest go first. */
  readonly logBytes?: number;
  /** All workspaces of the last day; 4 GiB by default. The oldest go first. */
  readonly blobBytes?: number;
  /** The most tasks in the queue; a million by default. */
  readonly maxQueued?: number;
}

/** A stream as the fleet needs it. */
export type WantedStream = Pick<StreamConfig, 'name' | 'subjects'> & Partial<StreamConfig>;

/**
 * The streams. One message a subject makes a task’s id unique while it is in the queue, without a window of time; and what is in
 * the stream is the unfinished work. Logs have one replica: the result of a task has its output too.
 */
export function streamsOf(names: FleetNames, replicas: number, sizes: StreamSizes): WantedStream[] {
  const common = {
    retention: RetentionPolicy.Limits,
    storage: StorageType.File,
    num_replicas: replicas,
    allow_direct: true,
  };
  const unique = { max_msgs_per_subject: 1 };
  return [
    {
      ...common,
      ...unique,
      name: names.tasks,
      subjects: [`${names.subject.task}.>`],
      discard: DiscardPolicy.New,
      discard_new_per_subject: true,
      max_msgs: sizes.maxQueued ?? MAX_QUEUED,
    },
    { ...common, ...unique, name: names.states, subjects: [`${names.subject.state}.>`], allow_msg_ttl: true },
    { ...common, ...unique, name: names.leases, subjects: [`${names.subject.lease}.>`], allow_msg_ttl: true },
    {
      ...common,
      name: names.logs,
      subjects: [`${names.subject.log}.>`],
      num_replicas: 1,
      discard: DiscardPolicy.Old,
      max_age: LOG_KEEP_MS * NANOSECONDS,
      max_bytes: sizes.logBytes ?? GIB,
    },
    {
      ...common,
      ...unique,
      name: names.blobs,
      subjects: [`${names.subject.blob}.>`],
      discard: DiscardPolicy.Old,
      max_age: BLOB_KEEP_MS * NANOSECONDS,
      max_bytes: sizes.blobBytes ?? 4 * GIB,
    },
  ];
}

/** Creates the stream if it is missing. One that is there has to have the settings that its safety rests on. */
export async function ensureStream(manager: JetStreamManager, wanted: WantedStream): Promise<void> {
  const found = await manager.streams.info(wanted.name).catch((error: unknown) => {
    if (error instanceof JetStreamApiError && error.code === STREAM_NOT_FOUND) return null;
    throw error;
  });
  // A server that does not know a setting creates the stream without it, so that a new one is compared too.
  compare(wanted, (found ?? (await manager.streams.add(wanted))).config);
}

// What an operator may choose for a fleet that exists: how many replicas, how much, how long.
const FREE: ReadonlySet<string> = new Set(['name', 'num_replicas', 'max_msgs', 'max_bytes', 'max_age', 'discard']);

function compare(wanted: WantedStream, found: StreamConfig): void {
  const values = new Map<string, unknown>(Object.entries(found));
  for (const [setting, value] of Object.entries(wanted)) {
    const mayDiffer = FREE.has(setting) && !(setting === 'discard' && wanted.discard_new_per_subject);
    if (mayDiffer || JSON.stringify(values.get(setting)) === JSON.stringify(value)) continue;
    throw FLEET_ERRORS.create('ACODE-FLT-003', {
      name: `The stream ${wanted.name}`,
      setting,
      found: JSON.stringify(values.get(setting)) ?? 'absent',
      needed: JSON.stringify(value),
    });
  }
}
