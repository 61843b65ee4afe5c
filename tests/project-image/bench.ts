// A project of a test’s own, a host on it behind a proxy that sees every request, and the images that come of it.

import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { AcodeOptions, BuildProjectOptions, ProjectImage, RunResult } from '@acode/sandbox';
import { TestHost, images, withEngine } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';

/** A project, its host, and what it asked of the engine. */
export class ProjectBench implements AsyncDisposable {
  readonly host: TestHost;
  readonly proxy: EngineProxy;
  readonly engine: TestEngine;
  readonly #images = new Set<string>();

  private constructor(engine: TestEngine, host: TestHost, proxy: EngineProxy) {
    this.engine = engine;
    this.host = host;
    this.proxy = proxy;
  }

  static async at(engine: TestEngine, options: AcodeOptions = {}): Promise<ProjectBench> {
    const proxy = await EngineProxy.start(engine.socket);
    const host = await TestHost.open(engine, { ...options, engine: { socket: proxy.socket } });
    return new ProjectBench(engine, host, proxy);
  }

  /** Writes a file of the project. */
  put(path: string, content = path, mode = 0o644): void {
    const file = this.host.file(path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
    chmodSync(file, mode);
  }

  /** Builds, on the small test image unless told otherwise; what is built is removed at the end. */
  async build(options: BuildProjectOptions = {}): Promise<ProjectImage> {
    const image = await this.host.acode.images.buildProject({ base: images.busybox, ...options });
    this.#images.add(image.reference);
    return image;
  }

  /** Runs a line in a sandbox of an image. */
  async run(image: string, line: string): Promise<RunResult> {
    return this.host.acode.run(line, { policy: { image } });
  }

  /** How often the engine was asked to build. */
  get builds(): number {
    return this.proxy.requests.filter(({ method, path }) => method === 'POST' && /^\/v[\d.]+\/build\?/.test(path))
      .length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.host[Symbol.asyncDispose]();
    await this.proxy.close();
    await withEngine(this.engine, async engine => {
      for (const reference of this.#images)
        await engine.images.remove(reference, { force: true, signal: AbortSignal.timeout(60_000) });
    });
  }
}
