// Pull of tasks: one request to a consumer, and its answers. The client’s own iterators wait up to 45 s for a lost answer.

import { createInbox } from '@nats-io/transport-node';
import type { Msg, NatsConnection } from '@nats-io/transport-node';

const NANOSECONDS = 1_000_000;
// Beyond the time that the server itself waits.
const GRACE_MS = 500;
// A message that comes later than that is given back. Without an answer it would stay hidden from every worker.
const LATE_MS = 10_000;
const HEARTBEAT = 100;
const NOT_FOUND = 404;
const EXPIRED = 408;

/** What one pull asks for. */
export interface PullRequest {
  readonly stream: string;
  readonly consumer: string;
  readonly batch: number;
  /** How long the server waits for a message; 0 for not at all. */
  readonly expiresMs: number;
}

/** The consumer cannot be used: it is gone, or its server is. */
export class ConsumerAway extends Error {
  constructor(status: number, description: string) {
    super(`the consumer answers ${status} ${description}`);
    this.name = 'ConsumerAway';
  }
}

/**
 * Calls `onMessage` for each message until the batch is full or the server has no more. Rejects with {@link ConsumerAway} where
 * the consumer is not there. It never waits longer than `expiresMs` and a little; what comes after that is given back.
 */
export function pull(
  connection: NatsConnection,
  request: PullRequest,
  onMessage: (message: Msg) => void,
): Promise<void> {
  const { stream, consumer, batch, expiresMs } = request;
  return new Promise((resolve, reject) => {
    let left = batch;
    let isOver = false;
    const inbox = createInbox();
    const timer = setTimeout(() => end(undefined, LATE_MS), expiresMs + GRACE_MS);
    const subscription = connection.subscribe(inbox, {
      callback: (error, message) => {
        if (error) return end(error);
        if (isStatus(message)) return ended(message, end);
        if (isOver) return void message.respond('-NAK');
        onMessage(message);
        left -= 1;
        return left === 0 ? end() : undefined;
      },
    });
    const end = (error?: Error, lateMs = 0): void => {
      clearTimeout(timer);
      isOver = true;
      if (lateMs > 0) setTimeout(() => subscription.unsubscribe(), lateMs).unref();
      else subscription.unsubscribe();
      if (error) reject(error);
      else resolve();
    };
    const body = expiresMs > 0 ? { batch, expires: expiresMs * NANOSECONDS } : { batch, no_wait: true };
    connection.publish(`$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`, JSON.stringify(body), { reply: inbox });
  });
}

function isStatus({ headers }: Msg): boolean {
  return (headers?.code ?? 0) !== 0;
}

function ended({ headers }: Msg, end: (error?: Error) => void): void {
  const { code = 0, description = '' } = headers ?? {};
  if (code === NOT_FOUND || code === EXPIRED) end();
  else if (code !== HEARTBEAT) end(new ConsumerAway(code, description));
}

/** Which message of its stream it is, and how often it was delivered: the server writes both into the subject for the answer. */
export function deliveryOf({ reply = '' }: Pick<Msg, 'reply'>): {
  readonly sequence: number;
  readonly deliveries: number;
} {
  const tokens = reply.split('.');
  // `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.…`, or with a domain and an account before the stream.
  const at = tokens.length > 9 ? 6 : 4;
  return { deliveries: Number(tokens[at]), sequence: Number(tokens[at + 1]) };
}
