// Reading of a log on NATS: an ordered consumer that the client library makes anew whenever it is lost.

import { DeliverPolicy } from '@nats-io/jetstream';
import type { ConsumerMessages, JetStreamClient } from '@nats-io/jetstream';
import { setTimeout as pause } from 'node:timers/promises';
import type { LogBatch } from '../engine.ts';

// The library’s own values can stall an attach for 45 s.
const EXPIRES_MS = 3000;
const HEARTBEAT_MS = 1000;
const AGAIN_MS = 500;

/** Which log, and after which number. */
export interface FollowedLog {
  readonly stream: string;
  readonly subject: string;
  readonly after: number;
}

/** The pieces of a log: those that are there, then each as it comes. Attaches again after every failure, until it is cancelled. */
export async function* followLog(
  client: JetStreamClient,
  { stream, subject, after }: FollowedLog,
  signal: AbortSignal,
): AsyncGenerator<LogBatch, void, undefined> {
  let last = after;
  while (!signal.aborted) {
    const messages = await attached(client, stream, subject).catch(() => null);
    if (messages === null) {
      await pause(AGAIN_MS, undefined, { signal }).catch(() => undefined);
      continue;
    }
    const stop = (): void => messages.stop();
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
    try {
      for await (const message of messages) {
        const sequence = Number(message.headers?.get('Acode-Sequence'));
        // Read from the first one again after a failure.
        if (!(sequence > last)) continue;
        last = sequence;
        yield { sequence, bytes: message.data };
        if (signal.aborted) return;
      }
    } catch {
      // Attached again.
    } finally {
      signal.removeEventListener('abort', stop);
      await messages.close().catch(() => undefined);
    }
  }
}

async function attached(client: JetStreamClient, stream: string, subject: string): Promise<ConsumerMessages> {
  const consumer = await client.consumers.get(stream, {
    filter_subjects: subject,
    deliver_policy: DeliverPolicy.All,
    inactive_threshold: 10_000,
  });
  return consumer.consume({ expires: EXPIRES_MS, idle_heartbeat: HEARTBEAT_MS });
}
