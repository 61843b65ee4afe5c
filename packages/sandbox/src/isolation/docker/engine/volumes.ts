// The volume endpoints of the Engine API. A volume has no id: its name is unique on an engine.
import * as z from 'zod';
import { type CallOptions, type EngineConnection, termsOf } from './connection.ts';
import { isNotFound } from './error.ts';
import { path } from './path.ts';

const defaultDeadlineMs = 30_000;

const volumeReply = z.lazy(() =>
  z.looseObject({
    Name: z.string().min(1),
    Driver: z.string(),
    Labels: z.record(z.string(), z.string()).nullish(),
    /** Where the engine’s host has it. */
    Mountpoint: z.string().optional(),
    Options: z.record(z.string(), z.string()).nullish(),
  }),
);

const listReply = z.lazy(() => z.looseObject({ Volumes: z.array(volumeReply).nullish() }));

/** A volume, under the engine's own names. */
export type VolumeDetails = z.infer<typeof volumeReply>;

/** Volumes. Every method takes the signal that ends it, and has a deadline. */
export class Volumes {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /** Creates a volume from a body that was built field by field. One of the same name is the same volume. */
  async create(body: object, options: CallOptions): Promise<VolumeDetails> {
    return this.#connection.json(
      {
        method: 'POST',
        path: path`/volumes/create`,
        body,
        expect: [201],
        ...termsOf(options, defaultDeadlineMs),
      },
      volumeReply,
    );
  }

  /** Everything the engine says about a volume. */
  async inspect(name: string, options: CallOptions): Promise<VolumeDetails> {
    return this.#connection.json(
      { method: 'GET', path: path`/volumes/${name}`, ...termsOf(options, defaultDeadlineMs) },
      volumeReply,
    );
  }

  /** The volumes that carry all of `labels`. */
  async list({ labels, ...options }: CallOptions & { readonly labels: readonly string[] }): Promise<VolumeDetails[]> {
    const reply = await this.#connection.json(
      {
        method: 'GET',
        path: path`/volumes`,
        query: { filters: JSON.stringify({ label: labels }) },
        ...termsOf(options, defaultDeadlineMs),
      },
      listReply,
    );
    return reply.Volumes ?? [];
  }

  /** Removes it. One that is gone is a success; one that a container uses is refused with status 409. */
  async remove(name: string, options: CallOptions): Promise<void> {
    try {
      await this.#connection.empty({
        method: 'DELETE',
        path: path`/volumes/${name}`,
        ...termsOf(options, defaultDeadlineMs),
      });
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }
}
