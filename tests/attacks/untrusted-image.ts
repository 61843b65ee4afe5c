// An image that came from a registry nobody trusts, under whatever name somebody gave it on the engine.

import { path } from '../../packages/sandbox/src/isolation/docker/engine/connection.ts';
import { Bench } from '../engine-client/engines.ts';
import { startRegistry } from '../engine-client/registry.ts';
import { withEngine } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

const DEADLINE_MS = 60_000;

/** The image; it and its names are taken away at the end. */
export class UntrustedImage implements AsyncDisposable {
  /** Where it came from, without the tag: a registry on the engine’s own loopback. */
  readonly repository: string;
  readonly #engine: TestEngine;
  readonly #names: string[];

  private constructor(engine: TestEngine, repository: string) {
    this.#engine = engine;
    this.repository = repository;
    this.#names = [`${repository}:1`];
  }

  /** Has an engine pull it from a registry of the test’s own. */
  static async on(engine: TestEngine): Promise<UntrustedImage> {
    await using bench = await Bench.at(engine);
    const repository = `${await startRegistry(bench)}/whole`;
    await bench.engine.images.pull(`${repository}:1`, { signal: bench.signal });
    return new UntrustedImage(engine, repository);
  }

  /** Its own name. */
  get reference(): string {
    return `${this.repository}:1`;
  }

  /** Gives it one more name. */
  async alsoNamed(name: string): Promise<string> {
    const [repo, tag] = name.split(':');
    await withEngine(this.#engine, direct =>
      direct.connection.empty({
        method: 'POST',
        path: path`/images/${this.reference}/tag`,
        query: { repo, tag },
        expect: [201],
        signal: AbortSignal.timeout(DEADLINE_MS),
        deadlineMs: DEADLINE_MS,
      }),
    );
    this.#names.push(name);
    return name;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await withEngine(this.#engine, async direct => {
      for (const name of this.#names.reverse())
        await direct.images.remove(name, { force: true, signal: AbortSignal.timeout(DEADLINE_MS) });
    });
  }
}
