// Gate on NATS: requests on a subject of the tenant, which only the tenant’s account may send to.

import { createInbox, errors } from '@nats-io/transport-node';
import type { Msg, NatsConnection } from '@nats-io/transport-node';
import { FLEET_ERRORS } from '../../errors.ts';
import type { GateHandler, GateLink } from '../link.ts';
import { checkedName } from '../names.ts';
import { reasonOf } from '../retry.ts';
import { connected } from './connection.ts';
import type { NatsAccess } from './connection.ts';
import { askSandbox } from './exec.ts';
import { namesOf } from './streams.ts';
import type { FleetNames } from './streams.ts';

const ANSWER_MS = 15_000;
const FIND_MS = 3000;
/** The last part of the subject that any gate answers. */
const ANY = 'any';

/** Who connects, and to which fleet. */
export interface NatsLinkOptions extends NatsAccess {
  /** The fleet’s name. */
  readonly fleet: string;
  /** The tenant. */
  readonly tenant: string;
}

/** The way of a tenant to the gates of its fleet. It stays with one gate for as long as that answers. */
export class NatsGateLink implements GateLink {
  readonly #connection: NatsConnection;
  readonly #names: FleetNames;
  readonly #tenant: string;
  #gate: string | null = null;

  private constructor(connection: NatsConnection, names: FleetNames, tenant: string) {
    this.#connection = connection;
    this.#names = names;
    this.#tenant = tenant;
  }

  /** Connects. */
  static async open(options: NatsLinkOptions): Promise<NatsGateLink> {
    const tenant = checkedName('tenant', options.tenant);
    const names = namesOf(checkedName('fleet', options.fleet));
    const connection = await connected({ ...options, inboxPrefix: inboxPrefixOf(tenant) });
    return new NatsGateLink(connection, names, tenant);
  }

  async call(message: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    signal.throwIfAborted();
    try {
      this.#gate ??= new TextDecoder().decode(await this.#ask(ANY, new Uint8Array(), FIND_MS, signal));
      return await this.#ask(checkedName('worker', this.#gate), message, ANSWER_MS, signal);
    } catch (error) {
      signal.throwIfAborted();
      // Another one may answer.
      this.#gate = null;
      const isAway = error instanceof errors.RequestError && error.isNoResponders();
      const reason = isAway ? 'no gate answers' : reasonOf(error);
      throw FLEET_ERRORS.create('ACODE-FLT-030', { reason }, { cause: error });
    }
  }

  // Past the gates: the tenant’s account may send to its own sandboxes.
  ask(id: string, message: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    return askSandbox(this.#connection, this.#names, { sandbox: { tenant: this.#tenant, id }, message }, signal);
  }

  async close(): Promise<void> {
    await this.#connection.close();
  }

  async #ask(to: string, message: Uint8Array, timeout: number, signal: AbortSignal): Promise<Uint8Array> {
    const cancelled = new Promise<never>((_, reject) =>
      signal.addEventListener('abort', () => reject(new Error('cancelled')), { once: true }),
    );
    cancelled.catch(() => undefined);
    const subject = `${this.#names.subject.gate}.${this.#tenant}.${to}`;
    const answer = this.#connection.request(subject, message, { timeout });
    answer.catch(() => undefined);
    return (await Promise.race([answer, cancelled])).data;
  }
}

/** The prefix of the inboxes of one tenant: its user may subscribe to nothing else. */
export function inboxPrefixOf(tenant: string): string {
  return `_INBOX_${tenant}`;
}

/** A gate’s own connection: a flood of requests holds up nothing else of the gate. */
export class NatsGateServer implements AsyncDisposable {
  readonly #connection: NatsConnection;

  private constructor(connection: NatsConnection) {
    this.#connection = connection;
  }

  /** Answers the requests of all tenants until it is disposed. */
  static async open(
    options: NatsAccess & { readonly fleet: string },
    gate: string,
    handler: GateHandler,
  ): Promise<NatsGateServer> {
    const connection = await connected({ ...options, inboxPrefix: createInbox() });
    const prefix = namesOf(checkedName('fleet', options.fleet)).subject.gate;
    const tenantOf = ({ subject }: Msg): string => subject.slice(prefix.length + 1).split('.')[0] ?? '';
    const answered = async (message: Msg): Promise<void> => {
      const answer = await handler(tenantOf(message), message.data).catch(() => null);
      if (answer) message.respond(answer);
    };
    connection.subscribe(`${prefix}.*.${ANY}`, {
      queue: 'gates',
      callback: (error, message) => {
        if (!error) message.respond(gate);
      },
    });
    connection.subscribe(`${prefix}.*.${checkedName('worker', gate)}`, {
      callback: (error, message) => {
        if (!error) void answered(message);
      },
    });
    await connection.flush();
    return new NatsGateServer(connection);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#connection.close();
  }
}
