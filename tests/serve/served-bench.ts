// A bench with a server on it: the same calls can be made through the server and without it.

import type { ChildProcess } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { Bench } from '../cli/bench.ts';
import type { Ended, Given } from '../cli/bench.ts';
import { mainEngine, withoutEngines } from '../support/engines.ts';

/** Where commands are served: by processes of this host, and on an engine. */
export const places: readonly { readonly name: string; readonly socket: string; readonly config: Sections }[] = [
  {
    name: 'bubblewrap',
    socket: '/nonexistent/engine.sock',
    config: { level: 'bubblewrap', bubblewrap: { accept_process_limits: true } },
  },
  ...(withoutEngines ? [] : [{ name: mainEngine.name, socket: mainEngine.socket, config: {} }]),
];

/** Sections of the user’s configuration. */
export type Sections = Readonly<Record<string, unknown>>;

// A variable of acode’s own that nothing reads: a server that does not have it is another one’s.
const ALONE = { ACODE_TEST_ALONE: '1' };
const READY_MS = 60_000;
const warmSchema = z.looseObject({ warm: z.boolean() });

/** A bench, and a server for its workspace. */
export class ServedBench implements AsyncDisposable {
  readonly bench: Bench;
  readonly #servers: ChildProcess[] = [];

  private constructor(bench: Bench) {
    this.bench = bench;
  }

  /** A bench with a server whose first sandbox waits. */
  static async at({ socket, config }: (typeof places)[number]): Promise<ServedBench> {
    const bench = await Bench.at({ socket });
    await bench.configure(config);
    const served = new ServedBench(bench);
    await served.serve();
    await served.untilWarm();
    return served;
  }

  /** Starts a server and waits until it says that it is ready. */
  async serve(): Promise<{ readonly child: ChildProcess; readonly ended: Promise<Ended> }> {
    const started = this.bench.start(['serve', '--min', '2', '--max', '4']);
    this.#servers.push(started.child);
    await new Promise<void>((resolve, reject) => {
      started.child.stderr?.once('data', () => resolve());
      started.child.once('exit', () => reject(new Error('the server ended')));
    });
    return started;
  }

  /** The server that was started last. */
  get server(): ChildProcess {
    const last = this.#servers.at(-1);
    if (!last) throw new Error('there is no server');
    return last;
  }

  /** The call through the server. */
  call(argv: readonly string[], given?: Given): Promise<Ended> {
    return this.bench.call(argv, given);
  }

  /** The same call without it. */
  alone(argv: readonly string[], given: Given = {}): Promise<Ended> {
    return this.bench.call(argv, { ...given, env: { ...given.env, ...ALONE } });
  }

  /** Whether a command of now has a pre-started sandbox, which only a server can give it. */
  async isWarm(): Promise<boolean> {
    const { stdout } = await this.call(['run', '--json', '--', 'true']);
    return warmSchema.parse(JSON.parse(stdout.toString())).warm;
  }

  /** Waits until a command has. */
  async untilWarm(): Promise<void> {
    const end = performance.now() + READY_MS;
    while (!(await this.isWarm())) if (performance.now() > end) throw new Error('nothing is ever warm here');
  }

  /** The directory of the sockets. */
  get directory(): string {
    return join(this.bench.env['XDG_RUNTIME_DIR'] ?? '', 'acode');
  }

  /** The paths of the serving sockets that there are. */
  get sockets(): string[] {
    return readdirSync(this.directory)
      .filter(name => name.startsWith('serve-'))
      .map(name => join(this.directory, name));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#servers) await ended(child);
    await this.bench[Symbol.asyncDispose]();
  }
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise(resolve => child.once('exit', resolve));
  child.kill('SIGCONT');
  child.kill('SIGTERM');
  await exit;
}
