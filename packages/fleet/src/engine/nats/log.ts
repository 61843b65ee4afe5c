// Reading of a stream on NATS: an ordered consumer that the client library makes anew whenever it is lost.

import { DeliverPolicy } from '@nats-io/jetstream';
import type { ConsumerMessages, JetStreamClient, JsMsg } from '@nats-io/jetstream';
import { setTimeout as pause } from 'node:timers/promises';
import type { LogBatch } from '../engine.ts';

// The library’s own values can stall an attach for 45 s.
const EXPIRES_MS = 3000;
const HEARTBEAT_MS = 1000;
const AGAIN_MS = 500;

/** What is read of a stream. */
interface Followed {
  readonly stream: string;
  readonly subject: string;
  /** Whether the bodies are left out. */
  readonly headersOnly?: boolean;
}

/** Which log, and after which number. */
export interface FollowedLog extends Followed {
  readonly after: number;
}

/** The pieces of a log: those that are there, then each as it comes. */
export async function* followLog(
  client: JetStreamClient,
  { after, ...followed }: FollowedLog,
  signal: AbortSignal,
): AsyncGenerator<LogBatch, void, undefined> {
  let last = after;
  for await (const message of follow(client, followed, signal)) {
    const sequence = Number(message.headers?.get('Acode-Sequence'));
    // Read from the first one again after a failure.
    if (!(sequence > last)) continue;
    last = sequence;
    yield { sequence, bytes: message.data };
  }
}

/** The messages of a subject, from the first one on, and again from there after every failure, until it is cancelled. */
export async function* follow(
  client: JetStreamClient,
  followed: Followed,
  signal: AbortSignal,
): AsyncGenerator<JsMsg, void, undefined> {
  while (!signal.aborted) {
    const messages = await attached(client, followed).catch(() => null);
    if (messages === null) {
      await pause(AGAIN_MS, undefined, { signal }).catch(() => undefined);
      continue;
    }
    const stop = (): void => messages.stop();
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
    try {
      for await (const message of messages) {
        yield message;
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

async function attached(
  client: JetStreamClient,
  { stream, subject, headersOnly = false }: Followed,
): Promise<ConsumerMessages> {
  const consumer = await client.consumers.get(stream, {
    filter_subjects: subject,
    deliver_policy: DeliverPolicy.All,
    inactive_threshold: 10_000,
    ...(headersOnly ? { headers_only: true } : {}),
  });
  return consumer.consume({ expires: EXPIRES_MS, idle_heartbeat: HEARTBEAT_MS });
}
