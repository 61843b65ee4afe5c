// The image endpoints of the Engine API.

import type { Readable } from 'node:stream';
import * as z from 'zod';
import { type CallOptions, type EngineConnection, path, termsOf } from './connection.ts';
import { EngineError, isNotFound, jsonLines } from './protocol.ts';

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
    ExposedPorts: record().nullish(),
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
    GraphDriver: z.looseObject({ Name: z.string(), Data: record().nullish() }).nullish(),
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
  /** The directory of its top layer on the engine’s host; null where the engine’s storage has no such directory. */
  readonly topLayer: string | null;
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

// `overlay2` has each layer in a directory of its own. Other stores have layers in forms that only they can mount.
function topLayer(
  driver: { readonly Name: string; readonly Data?: Record<string, unknown> | null | undefined } | null | undefined,
): string | null {
  const directory = driver?.Name === 'overlay2' ? driver.Data?.['UpperDir'] : null;
  return typeof directory === 'string' ? directory : null;
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
      topLayer: topLayer(reply.GraphDriver),
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

// Splits an image reference the way the pull endpoint wants it.

/** The two parts a pull is asked for. */
interface SplitReference {
  readonly name: string;
  /** A tag or a digest. */
  readonly version: string;
}

/**
 * `name[:tag][@digest]` as name and version; a digest wins over a tag. Never without a version: the engine
 * takes that for "all tags of the repository".
 */
export function splitReference(reference: string): SplitReference {
  const at = reference.indexOf('@');
  const tagged = at === -1 ? reference : reference.slice(0, at);
  const colon = tagged.lastIndexOf(':');
  // A colon before the last slash belongs to the port of the registry.
  const hasTag = colon > tagged.lastIndexOf('/');
  const name = hasTag ? tagged.slice(0, colon) : tagged;
  if (at !== -1) return { name, version: reference.slice(at + 1) };
  return { name, version: hasTag ? tagged.slice(colon + 1) : 'latest' };
}

// Credentials as the engine takes them.

/** Credentials for one registry; sent to the engine and kept nowhere. */
interface RegistryAuth {
  readonly username?: string;
  readonly password?: string;
  readonly identitytoken?: string;
  readonly serveraddress?: string;
}

/** The header that carries them. Filled up to whole groups of four: the engine reads nothing else, and then pulls without. */
export function authHeaders(auth: RegistryAuth | undefined): Record<string, string> {
  if (!auth) return {};
  const words = Buffer.from(JSON.stringify(auth)).toString('base64url');
  return { 'X-Registry-Auth': words.padEnd(Math.ceil(words.length / 4) * 4, '=') };
}

// The build endpoint of the Engine API, and what it has made.

const inspectDeadlineMs = 10_000;
// The engine reads the whole context before it says a word.
const uploadDeadlineMs = 600_000;
const silenceMs = 120_000;

const outputLine = z.lazy(() =>
  z.looseObject({
    stream: z.string().optional(),
    error: z.string().optional(),
    errorDetail: z.looseObject({ message: z.string().optional() }).nullish(),
    aux: z.looseObject({ ID: z.string().optional() }).nullish(),
  }),
);

const imageReply = z.lazy(() =>
  z.looseObject({
    Id: z.string().min(1),
    Config: z
      .looseObject({
        Labels: z.record(z.string(), z.string()).nullish(),
        OnBuild: z.array(z.string()).nullish(),
        User: z.string().nullish(),
      })
      .nullish(),
    RootFS: z.looseObject({ Layers: z.array(z.string()).nullish() }).nullish(),
  }),
);

/** What a build is made from, and what is made. */
interface BuildRequest {
  /** The name it gets. */
  readonly reference: string;
  /** The Dockerfile’s name in the context. */
  readonly dockerfile: string;
  readonly labels: Readonly<Record<string, string>>;
  /** A tar. It is always used up or destroyed. */
  readonly context: Readable;
}

/** How to build. */
interface BuildOptions extends CallOptions {
  readonly onOutput?: (text: string) => void;
}

/** An image as whoever builds on it has to know it. */
interface ImageParts {
  readonly id: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Its layers by their content, lowest first. */
  readonly layers: readonly string[];
  /** What it has executed in the build of whatever is built on it. */
  readonly triggers: readonly string[];
  readonly user: string;
}

/** Builds. */
export class Builds {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /** The image a reference or an id names here; rejects with status 404 when the engine has none. */
  async inspect(reference: string, options: CallOptions): Promise<ImageParts> {
    const { Id, Config, RootFS } = await this.#connection.json(
      { method: 'GET', path: path`/images/${reference}/json`, ...termsOf(options, inspectDeadlineMs) },
      imageReply,
    );
    return {
      id: Id,
      labels: Config?.Labels ?? {},
      layers: RootFS?.Layers ?? [],
      triggers: Config?.OnBuild ?? [],
      user: Config?.User ?? '',
    };
  }

  /**
   * Builds an image without a network, without anything that was built before, and without pulling. A failure that the
   * engine reports after it has answered 200 is a rejection too. Resolves with the id where the engine says it.
   */
  async build(request: BuildRequest, { onOutput, ...options }: BuildOptions): Promise<string | null> {
    const { reference, dockerfile, labels, context } = request;
    const operation = 'POST /build';
    const { body } = await this.#connection.stream({
      method: 'POST',
      path: path`/build`,
      query: {
        t: reference,
        dockerfile,
        labels: JSON.stringify(labels),
        networkmode: 'none',
        nocache: true,
        pull: false,
        rm: true,
        forcerm: true,
      },
      body: context,
      idleMs: silenceMs,
      ...termsOf(options, uploadDeadlineMs),
    });
    let id: string | null = null;
    for await (const { value } of jsonLines(body, outputLine, operation)) {
      const engineMessage = value.error ?? value.errorDetail?.message;
      if (engineMessage !== undefined) {
        throw new EngineError({
          kind: 'status',
          operation,
          detail: `the build failed: ${engineMessage}`,
          engineMessage,
        });
      }
      id = value.aux?.ID ?? id;
      if (value.stream !== undefined) onOutput?.(value.stream);
    }
    return id;
  }

  /** Removes an image that nothing uses; one in use, or of more names, rejects with status 409. */
  async remove(id: string, options: CallOptions): Promise<void> {
    await this.#connection.empty({
      method: 'DELETE',
      path: path`/images/${id}`,
      expect: [200, 404],
      ...termsOf(options, inspectDeadlineMs),
    });
  }
}
