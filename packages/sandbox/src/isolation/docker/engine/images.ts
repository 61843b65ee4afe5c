// The image endpoints of the Engine API.
import * as z from 'zod';
import { type CallOptions, type EngineConnection, termsOf } from './connection.ts';
import { EngineError, isNotFound } from './error.ts';
import { jsonLines } from './json-lines.ts';
import { path } from './path.ts';
import { authHeaders } from './registry-auth.ts';
import type { RegistryAuth } from './registry-auth.ts';
import { splitReference } from './reference.ts';

const defaultDeadlineMs = 30_000;
// A registry may be slow to answer; a pull that says nothing for this long has stopped.
const pullSilenceMs = 120_000;

// Schemas are built at their first use: built at import, they would cost every start of the command 10 ms.
const strings = () => z.array(z.string()).nullish();
const record = () => z.record(z.string(), z.unknown());

const imageConfig = z.lazy(() =>
  z.looseObject({
    Env: strings(),
    Entrypoint: strings(),
    Cmd: strings(),
    Volumes: record().nullish(),
    User: z.string().nullish(),
    WorkingDir: z.string().nullish(),
    Healthcheck: record().nullish(),
    Labels: z.record(z.string(), z.string()).nullish(),
  }),
);

/** What an image brings into a container, under the engine's own names. */
export type ImageConfig = z.infer<typeof imageConfig>;

const inspectReply = z.lazy(() =>
  z.looseObject({
    Id: z.string().min(1),
    RepoTags: strings(),
    RepoDigests: strings(),
    Config: imageConfig.nullish(),
    Size: z.number(),
    Architecture: z.string(),
    Os: z.string(),
  }),
);

/** An image the engine has. */
export interface ImageDetails {
  readonly id: string;
  readonly repoTags: readonly string[];
  readonly repoDigests: readonly string[];
  readonly config: ImageConfig;
  /** Bytes. */
  readonly size: number;
  readonly architecture: string;
  readonly os: string;
}

const summaryReply = z.lazy(() =>
  z.looseObject({
    Id: z.string(),
    RepoTags: strings(),
    RepoDigests: strings(),
    Size: z.number(),
    Created: z.number(),
    Labels: z.record(z.string(), z.string()).nullish(),
  }),
);

/** An image as `list` shows it. */
export interface ImageSummary {
  readonly id: string;
  readonly repoTags: readonly string[];
  readonly repoDigests: readonly string[];
  /** Bytes. */
  readonly size: number;
  /** Seconds since 1970. */
  readonly created: number;
  readonly labels: Readonly<Record<string, string>>;
}

const diskReply = z.lazy(() => z.looseObject({ LayersSize: z.number().nullish() }));

const progressLine = z.lazy(() =>
  z.looseObject({
    status: z.string().optional(),
    id: z.string().optional(),
    progressDetail: z.looseObject({ current: z.number().optional(), total: z.number().optional() }).nullish(),
    error: z.string().optional(),
    errorDetail: z.looseObject({ message: z.string().optional() }).nullish(),
  }),
);

/** How far a pull is. */
export interface PullProgress {
  readonly status: string;
  /** The layer, where the status is about one. */
  readonly id: string | undefined;
  readonly current: number | undefined;
  readonly total: number | undefined;
}

/** How to pull. */
export interface PullOptions extends CallOptions {
  readonly onProgress?: (progress: PullProgress) => void;
  readonly auth?: RegistryAuth;
  /** The longest silence before and between the engine's reports; 120 s without it. */
  readonly silenceMs?: number;
}

/** Images. */
export class Images {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /** The image that a reference or an id names here; rejects with status 404 when the engine has none. */
  async inspect(reference: string, options: CallOptions): Promise<ImageDetails> {
    const reply = await this.#connection.json(
      { method: 'GET', path: path`/images/${reference}/json`, ...termsOf(options, defaultDeadlineMs) },
      inspectReply,
    );
    return {
      id: reply.Id,
      repoTags: reply.RepoTags ?? [],
      repoDigests: reply.RepoDigests ?? [],
      config: reply.Config ?? {},
      size: reply.Size,
      architecture: reply.Architecture,
      os: reply.Os,
    };
  }

  /** The images the engine has. */
  async list(options: CallOptions): Promise<ImageSummary[]> {
    const replies = await this.#connection.json(
      { method: 'GET', path: path`/images/json`, ...termsOf(options, defaultDeadlineMs) },
      z.array(summaryReply),
    );
    return replies.map(reply => ({
      id: reply.Id,
      repoTags: reply.RepoTags ?? [],
      repoDigests: reply.RepoDigests ?? [],
      size: reply.Size,
      created: reply.Created,
      labels: reply.Labels ?? {},
    }));
  }

  /**
   * Pulls one image; without a tag or a digest, `latest`. A failure that the engine reports after it has
   * answered 200 is a rejection too. `deadlineMs` is the time until the registry is heard of; after that
   * only silence ends it.
   */
  async pull(
    reference: string,
    { onProgress, auth, silenceMs = pullSilenceMs, ...options }: PullOptions,
  ): Promise<void> {
    const operation = 'POST /images/create';
    const { name, version } = splitReference(reference);
    const { body } = await this.#connection.stream({
      method: 'POST',
      path: path`/images/create`,
      query: { fromImage: name, tag: version },
      headers: authHeaders(auth),
      idleMs: silenceMs,
      ...termsOf(options, silenceMs),
    });
    for await (const { value } of jsonLines(body, progressLine, operation)) {
      const engineMessage = value.error ?? value.errorDetail?.message;
      if (engineMessage !== undefined) {
        throw new EngineError({
          kind: 'status',
          operation,
          detail: `the pull failed: ${engineMessage}`,
          engineMessage,
        });
      }
      onProgress?.(progressOf(value));
    }
  }

  /** What the layers of all images take on the engine's disk, shared ones once. */
  async diskUse(options: CallOptions): Promise<number | undefined> {
    // Older engines measure everything they have, and take long over it.
    const query = this.#connection.supports('1.42') ? { type: 'image' } : {};
    const reply = await this.#connection.json(
      { method: 'GET', path: path`/system/df`, query, ...termsOf(options, defaultDeadlineMs) },
      diskReply,
    );
    return reply.LayersSize ?? undefined;
  }

  /** Removes it; one that is gone is a success, one in use rejects with status 409. */
  async remove(reference: string, { force, ...options }: CallOptions & { readonly force?: boolean }): Promise<void> {
    try {
      await this.#connection.empty({
        method: 'DELETE',
        path: path`/images/${reference}`,
        query: { force },
        ...termsOf(options, defaultDeadlineMs),
      });
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }
}

function progressOf({ status, id, progressDetail }: z.infer<typeof progressLine>): PullProgress {
  return { status: status ?? '', id, current: progressDetail?.current, total: progressDetail?.total };
}
