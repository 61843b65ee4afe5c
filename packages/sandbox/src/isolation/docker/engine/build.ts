// The build endpoint of the Engine API, and what it has made.
import type { Readable } from 'node:stream';
import * as z from 'zod';
import { type CallOptions, type EngineConnection, termsOf } from './connection.ts';
import { EngineError } from './error.ts';
import { jsonLines } from './json-lines.ts';
import { path } from './path.ts';

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
export interface BuildRequest {
  /** The name it gets. */
  readonly reference: string;
  /** The Dockerfile’s name in the context. */
  readonly dockerfile: string;
  readonly labels: Readonly<Record<string, string>>;
  /** A tar. It is always used up or destroyed. */
  readonly context: Readable;
}

/** How to build. */
export interface BuildOptions extends CallOptions {
  readonly onOutput?: (text: string) => void;
}

/** An image as whoever builds on it has to know it. */
export interface ImageParts {
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
