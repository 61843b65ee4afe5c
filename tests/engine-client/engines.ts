// The real engines of this machine, containers that never outlive their test, and nothing else.
import { existsSync, readFileSync } from 'node:fs';
import * as z from 'zod';
import { Engine } from '../../packages/sandbox/src/isolation/docker/engine/index.ts';

const listFile = '/run/acode-engines/engines.json';

const listed = z.looseObject({
  engines: z.array(z.looseObject({ name: z.string(), socket: z.string(), api: z.string() })),
  images: z.looseObject({ busybox: z.string(), debian: z.string() }),
});

const list = existsSync(listFile) ? listed.parse(JSON.parse(readFileSync(listFile, 'utf8'))) : undefined;

/** An engine that is up. */
export interface TestEngine {
  readonly name: string;
  readonly socket: string;
  readonly api: string;
}

/** The engines that are up; with none there is one placeholder, so that skipped tests are seen and not missing. */
export const engines: readonly TestEngine[] = list?.engines ?? [{ name: 'no engine', socket: '/nonexistent', api: '' }];

/** Whether real engines are missing on this machine. */
export const withoutEngines = list === undefined;

/** Images that every engine has. */
export const images = list?.images ?? { busybox: '', debian: '' };

/** What every container of these tests carries. */
export const testLabel = 'acode.test=engine-client';

/** One engine, and what was made on it in one test. */
export class Bench implements AsyncDisposable {
  readonly engine: Engine;
  readonly signal: AbortSignal;
  readonly #made: string[] = [];

  private constructor(engine: Engine, signal: AbortSignal) {
    this.engine = engine;
    this.signal = signal;
  }

  static async at(socketPath: string, withinMs = 30_000): Promise<Bench> {
    const signal = AbortSignal.timeout(withinMs);
    return new Bench(await Engine.open({ socketPath, signal }), signal);
  }

  /** Creates a container of the test image that runs a shell script, and gives its id. */
  async container(
    script: string,
    { HostConfig, ...body }: { HostConfig?: object; [key: string]: unknown } = {},
  ): Promise<string> {
    const { id } = await this.engine.containers.create(
      {
        Image: images.busybox,
        Cmd: ['sh', '-c', script],
        ...body,
        Labels: { 'acode.test': 'engine-client' },
        HostConfig: { NetworkMode: 'none', LogConfig: { Type: 'none' }, ...HostConfig },
      },
      { signal: this.signal },
    );
    this.#made.push(id);
    return id;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const signal = AbortSignal.timeout(20_000);
    await Promise.all(this.#made.map(id => this.engine.containers.remove(id, { force: true, volumes: true, signal })));
    this.engine.close();
  }
}
