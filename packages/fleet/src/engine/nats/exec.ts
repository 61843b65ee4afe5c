// Messages to a sandbox on NATS: a request on the subject of the sandbox, straight to the worker that has it.

import { createInbox, errors } from '@nats-io/transport-node';
import type { Msg, NatsConnection } from '@nats-io/transport-node';
import { FLEET_ERRORS } from '../../errors.ts';
import { ANSWER_MS } from '../engine.ts';
import type { MessageHandler } from '../engine.ts';
import { assertSize } from '../limits.ts';
import { checkedKey } from '../names.ts';
import type { TaskKey } from '../names.ts';
import { reasonOf } from '../retry.ts';
import { connected } from './connection.ts';
import type { NatsAccess } from './connection.ts';
import type { FleetNames } from './streams.ts';

/** The subject of a sandbox. It has the tenant, whose account may send to no other’s. */
export function execSubject(names: FleetNames, sandbox: TaskKey): string {
  const { tenant, id } = checkedKey(sandbox);
  return `${names.subject.exec}.${tenant}.${id}`;
}

/** Answers what is sent to a subject, over a connection of its own, until it is disposed. */
export async function serveSandbox(
  access: NatsAccess,
  subject: string,
  handler: MessageHandler,
): Promise<AsyncDisposable> {
  const connection = await connected({ ...access, inboxPrefix: createInbox() });
  const answered = async (message: Msg): Promise<void> => {
    const answer = await handler(message.data).catch(() => null);
    if (answer) message.respond(answer);
  };
  connection.subscribe(subject, {
    callback: (error, message) => {
      if (!error) void answered(message);
    },
  });
  // The server has it when it answers; before that, a message could be missed.
  await connection.flush();
  return { [Symbol.asyncDispose]: () => connection.close() };
}

/** Sends a message to a sandbox, and returns the answer. */
export async function askSandbox(
  connection: NatsConnection,
  names: FleetNames,
  { sandbox, message }: { readonly sandbox: TaskKey; readonly message: Uint8Array },
  signal?: AbortSignal,
): Promise<Uint8Array> {
  signal?.throwIfAborted();
  assertSize('The message', message);
  let cancel: () => void = () => undefined;
  const cancelled = new Promise<never>((_, reject) => {
    cancel = () => reject(new Error('cancelled'));
  });
  cancelled.catch(() => undefined);
  signal?.addEventListener('abort', cancel, { once: true });
  const answer = connection.request(execSubject(names, sandbox), message, { timeout: ANSWER_MS });
  answer.catch(() => undefined);
  try {
    return (await Promise.race([answer, cancelled])).data;
  } catch (error) {
    signal?.throwIfAborted();
    const isAway = error instanceof errors.RequestError && error.isNoResponders();
    const reason = isAway ? 'nobody serves it' : reasonOf(error);
    throw FLEET_ERRORS.create('ACODE-FLT-050', { sandbox: sandbox.id, reason }, { cause: error });
  } finally {
    signal?.removeEventListener('abort', cancel);
  }
}
