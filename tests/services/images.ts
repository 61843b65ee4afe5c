// Images of services: the test image, with what a Dockerfile would say about how its program is started.

import { createReadStream } from 'node:fs';
import * as z from 'zod';
import { path } from '../../packages/sandbox/src/isolation/docker/engine/connection.ts';
import { images, withEngine } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

const DEADLINE_MS = 60_000;

/** Images of one engine; disposing removes them. */
export class ServiceImages implements AsyncDisposable {
  readonly #engine: TestEngine;
  readonly #made: string[] = [];

  constructor(engine: TestEngine) {
    this.#engine = engine;
  }

  /** An image of these instructions over a test image, with the files of an archive, and its name. */
  async make(
    name: string,
    instructions: readonly string[],
    { base = images.busybox, files }: { readonly base?: string; readonly files?: string } = {},
  ): Promise<string> {
    const repo = `acode-test-service-${process.pid}`;
    const terms = { signal: AbortSignal.timeout(DEADLINE_MS), deadlineMs: DEADLINE_MS };
    await withEngine(this.#engine, async ({ containers, connection }) => {
      const { id } = await containers.create({ Image: base, Cmd: ['true'] }, terms);
      try {
        if (files !== undefined) {
          const body = createReadStream(files);
          const put = { method: 'PUT', path: path`/containers/${id}/archive`, query: { path: '/' }, body } as const;
          for await (const _ of (await connection.stream({ ...put, ...terms })).body);
        }
        const query = { container: id, repo, tag: name, changes: instructions.join('\n') };
        await connection.json(
          { method: 'POST', path: path`/commit`, query, body: {}, expect: [201], ...terms },
          z.looseObject({ Id: z.string() }),
        );
      } finally {
        await containers.remove(id, { force: true, volumes: true, ...terms });
      }
    });
    this.#made.push(`${repo}:${name}`);
    return `${repo}:${name}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await withEngine(this.#engine, async ({ images: store }) => {
      for (const name of this.#made)
        await store.remove(name, { force: true, signal: AbortSignal.timeout(DEADLINE_MS) });
    });
  }
}
