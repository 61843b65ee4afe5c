// The network endpoints of the Engine API.
import * as z from 'zod';
import { type CallOptions, type EngineConnection, termsOf } from './connection.ts';
import { EngineError, isNotFound } from './error.ts';
import { path } from './path.ts';

const defaultDeadlineMs = 30_000;

const createdReply = z.lazy(() => z.looseObject({ Id: z.string().min(1) }));

const texts = () => z.record(z.string(), z.string()).nullish();

const networkReply = z.lazy(() =>
  z.looseObject({
    Id: z.string().min(1),
    Name: z.string(),
    Driver: z.string(),
    Scope: z.string(),
    Internal: z.boolean(),
    Attachable: z.boolean(),
    Ingress: z.boolean().optional(),
    ConfigOnly: z.boolean().optional(),
    EnableIPv6: z.boolean(),
    Options: texts(),
    Labels: texts(),
    Containers: z.record(z.string(), z.unknown()).nullish(),
  }),
);

/** A network, under the engine's own names. A list leaves `Containers` empty; only `inspect` fills it. */
export type NetworkDetails = z.infer<typeof networkReply>;

/** Networks. Every method takes the signal that ends it, and has a deadline. */
export class Networks {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /** Creates a network from a body that was built field by field, and gives its id. Names are not unique. */
  async create(body: object, options: CallOptions): Promise<string> {
    const reply = await this.#connection.json(
      {
        method: 'POST',
        path: path`/networks/create`,
        body,
        expect: [201],
        ...termsOf(options, defaultDeadlineMs),
      },
      createdReply,
    );
    return reply.Id;
  }

  /** Everything the engine says about a network. Give a whole id: the engine also takes names and the beginnings of ids. */
  async inspect(id: string, options: CallOptions): Promise<NetworkDetails> {
    return this.#connection.json(
      { method: 'GET', path: path`/networks/${id}`, ...termsOf(options, defaultDeadlineMs) },
      networkReply,
    );
  }

  /** The networks that carry all of `labels`, or whose name contains `name`: the engine compares parts of names. */
  async list({
    labels,
    name,
    ...options
  }: CallOptions & { readonly labels?: readonly string[]; readonly name?: string }): Promise<NetworkDetails[]> {
    const filters = JSON.stringify({ ...(labels ? { label: labels } : {}), ...(name ? { name: [name] } : {}) });
    return this.#connection.json(
      { method: 'GET', path: path`/networks`, query: { filters }, ...termsOf(options, defaultDeadlineMs) },
      z.array(networkReply),
    );
  }

  /** Removes it. One that is gone is a success; one that a container is connected to is refused with status 403. */
  async remove(id: string, options: CallOptions): Promise<void> {
    try {
      await this.#connection.empty({
        method: 'DELETE',
        path: path`/networks/${id}`,
        ...termsOf(options, defaultDeadlineMs),
      });
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }

  /** Takes a container off it, also while it runs. One that is not connected, or gone, is a success. */
  async disconnect(id: string, containerId: string, options: CallOptions): Promise<void> {
    try {
      await this.#connection.empty({
        method: 'POST',
        path: path`/networks/${id}/disconnect`,
        body: { Container: containerId, Force: true },
        ...termsOf(options, defaultDeadlineMs),
      });
    } catch (error) {
      if (!isNotFound(error) && !isNotConnected(error)) throw error;
    }
  }
}

// Engines say this with status 500.
function isNotConnected(error: unknown): boolean {
  return error instanceof EngineError && /is not connected to (?:the )?network/i.test(error.engineMessage ?? '');
}
