// Containers without the protections, made past the library: the positive controls. They run what the attacks run, on
// directories and services of the tests’ own, and nothing in them changes the machine.

import { demultiplex } from '../../packages/sandbox/src/isolation/docker/engine/streams.ts';
import { Engine } from '../../packages/sandbox/src/isolation/docker/engine/index.ts';
import { images } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

/** A container to be made; every field but the command is the engine’s own. */
export interface Weakened {
  readonly command: readonly string[];
  readonly image?: string;
  readonly host?: Readonly<Record<string, unknown>>;
  readonly config?: Readonly<Record<string, unknown>>;
}

/** How it ended. */
export interface WeakenedResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
}

const DEADLINE_MS = 45_000;
// Without them, Podman asks for more than its service may give here.
const LIMITS = ['nproc', 'nofile'].map(Name => ({ Name, Soft: 4096, Hard: 4096 }));

/** A container that was started, with what it prints. */
export class WeakenedContainer implements AsyncDisposable {
  readonly id: string;
  readonly #engine: Engine;
  readonly #ended: Promise<WeakenedResult>;
  #stdout = '';
  #stderr = '';
  #printed: (() => void)[] = [];

  private constructor(engine: Engine, id: string, run: (self: WeakenedContainer) => Promise<WeakenedResult>) {
    this.#engine = engine;
    this.id = id;
    this.#ended = run(this);
    this.#ended.catch(() => undefined);
  }

  /** Makes and starts one. */
  static async start({ socket }: Pick<TestEngine, 'socket'>, weakened: Weakened): Promise<WeakenedContainer> {
    const signal = AbortSignal.timeout(DEADLINE_MS);
    const engine = await Engine.open({ socketPath: socket, signal });
    try {
      const { id } = await engine.containers.create(bodyOf(weakened), { signal });
      return new WeakenedContainer(engine, id, self => self.#run(weakened.config?.['Tty'] === true, signal));
    } catch (error) {
      engine.close();
      throw error;
    }
  }

  /** Resolves when it has printed this. */
  async printed(text: string): Promise<void> {
    let ended = false;
    const end = this.#ended.then(() => (ended = true));
    while (!this.#stdout.includes(text)) {
      if (ended) throw new Error(`ended without printing ${text}: ${this.#stdout}${this.#stderr}`);
      await Promise.race([end, new Promise<void>(resolve => this.#printed.push(resolve))]);
    }
  }

  /** Its address on the network it is connected to. */
  async address(): Promise<string> {
    const details = await this.#engine.containers.inspect(this.id, { signal: AbortSignal.timeout(DEADLINE_MS) });
    const address = /"IPAddress":"(\d+\.\d+\.\d+\.\d+)"/.exec(JSON.stringify(details))?.[1];
    if (address === undefined) throw new Error('it has no address');
    return address;
  }

  /** Resolves with what it printed when it has ended. */
  ended(): Promise<WeakenedResult> {
    return this.#ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const signal = AbortSignal.timeout(DEADLINE_MS);
    await this.#engine.containers.remove(this.id, { force: true, volumes: true, signal });
    this.#engine.close();
  }

  async #run(terminal: boolean, signal: AbortSignal): Promise<WeakenedResult> {
    const { containers } = this.#engine;
    const stream = await containers.attach(this.id, { stdout: true, stderr: true, signal });
    const { exit } = await containers.expectExit(this.id, 'next-exit', { signal, deadlineMs: DEADLINE_MS });
    await containers.start(this.id, { signal });
    const sink = {
      stdout: (data: Buffer) => this.#take(data.toString()),
      stderr: (data: Buffer) => void (this.#stderr += data.toString()),
    };
    if (terminal) for await (const chunk of stream) sink.stdout(chunk);
    else await demultiplex(stream, sink);
    const { statusCode: exitCode } = await exit;
    return { stdout: this.#stdout, stderr: this.#stderr, exitCode };
  }

  #take(text: string): void {
    this.#stdout += text;
    for (const resolve of this.#printed.splice(0)) resolve();
  }
}

/** Runs one to its end. */
export async function runWeakened(engine: Pick<TestEngine, 'socket'>, weakened: Weakened): Promise<WeakenedResult> {
  await using container = await WeakenedContainer.start(engine, weakened);
  return await container.ended();
}

/** A directory of the host in a container, as an engine’s own mount. */
export function bind(source: string, target: string, options: Readonly<Record<string, unknown>> = {}): object {
  return { Type: 'bind', Source: source, Target: target, ...options };
}

function bodyOf({ command, image = images.busybox, host, config }: Weakened): object {
  return {
    Image: image,
    Entrypoint: [...command],
    Cmd: [],
    Labels: { 'acode.test': 'attack-control' },
    AttachStdout: true,
    AttachStderr: true,
    ...config,
    HostConfig: {
      NetworkMode: 'none',
      LogConfig: { Type: 'none' },
      Init: host?.['PidMode'] !== 'host',
      Ulimits: LIMITS,
      ...host,
    },
  };
}
