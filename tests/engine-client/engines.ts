// The real engines of this machine, and containers on them that never outlive their test.
import { randomUUID } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import * as z from 'zod';
import { demultiplex } from '../../packages/sandbox/src/isolation/docker/engine/streams.ts';
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

/** The engines that are up; with none there is a placeholder, so that skipped tests are seen and not missing. */
export const engines: readonly TestEngine[] = list?.engines ?? [{ name: 'no engine', socket: '/nonexistent', api: '' }];

/** Whether this machine has no engines. */
export const withoutEngines = list === undefined;

/** Images that every engine has. */
export const images = list?.images ?? { busybox: '', debian: '' };

/** What a test wants of a container beside its script. */
export interface ContainerExtras {
  readonly HostConfig?: object;
  readonly [key: string]: unknown;
}

/** What a container printed, and how it ended. */
export interface Outcome {
  readonly stdout: string;
  readonly stderr: string;
  readonly statusCode: number;
}

/** One engine, and what one test made on it. Disposing removes all of it and fails if anything is left. */
export class Bench implements AsyncDisposable {
  readonly engine: Engine;
  readonly signal: AbortSignal;
  /** Carried by everything made on this bench and by nothing else. */
  readonly label: string;
  readonly #real: Engine;

  private constructor(engine: Engine, real: Engine, signal: AbortSignal) {
    this.engine = engine;
    this.signal = signal;
    this.#real = real;
    this.label = `acode.test.bench=${randomUUID()}`;
  }

  /** A bench on an engine; with `through`, what is tested goes by that socket and cleaning does not. */
  static async at({ socket }: TestEngine, through = socket): Promise<Bench> {
    const signal = AbortSignal.timeout(60_000);
    const real = await Engine.open({ socketPath: socket, signal });
    return new Bench(await Engine.open({ socketPath: through, signal }), real, signal);
  }

  /** Creates a container that will run a shell script, and gives its id. */
  async container(script: string, { HostConfig, ...extras }: ContainerExtras = {}): Promise<string> {
    const [key = '', value] = this.label.split('=');
    const { id } = await this.#real.containers.create(
      {
        Image: images.busybox,
        Cmd: ['sh', '-c', script],
        ...extras,
        Labels: { 'acode.test': 'engine-client', [key]: value },
        HostConfig: { NetworkMode: 'none', LogConfig: { Type: 'none' }, ...HostConfig },
      },
      { signal: this.signal },
    );
    return id;
  }

  /** Starts a container and reads it to its end. */
  async run(id: string): Promise<Outcome> {
    const { containers } = this.engine;
    const { signal } = this;
    const stream = await containers.attach(id, { stdout: true, stderr: true, signal });
    const { exit } = await containers.expectExit(id, 'next-exit', { signal, deadlineMs: 60_000 });
    await containers.start(id, { signal });
    const output = await collect(stream);
    return { ...output, statusCode: (await exit).statusCode };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const signal = AbortSignal.timeout(60_000);
    const mine = { labels: [this.label], all: true, signal };
    this.engine.close();
    const left = await this.#real.containers.list(mine);
    await Promise.all(left.map(({ id }) => this.#real.containers.remove(id, { force: true, volumes: true, signal })));
    const stubborn = await this.#real.containers.list(mine);
    this.#real.close();
    if (stubborn.length > 0) throw new Error(`left behind: ${stubborn.map(({ id }) => id).join(', ')}`);
  }
}

/** Both streams to their end, as text. */
export async function collect(source: AsyncIterable<Buffer>): Promise<{ stdout: string; stderr: string }> {
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  await demultiplex(source, {
    stdout: data => void stdout.push(data),
    stderr: data => void stderr.push(data),
  });
  return { stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString() };
}
