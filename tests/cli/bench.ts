// The built command as a child process, in surroundings of its own: what it makes on an engine can be told from everything else.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { hostIdentity } from '../../packages/sandbox/src/lifecycle/ownership.ts';
import { images } from '../support/engines.ts';

/** The built command. */
export const BIN = fileURLToPath(new URL('../../packages/cli/bin/acode.js', import.meta.url));

/** How one call ended. */
export interface Ended {
  readonly status: number | null;
  readonly stdout: Buffer;
  readonly stderr: string;
  readonly ms: number;
}

/** What a call is given besides its words. */
export interface Given {
  /** What it reads; `open` is a pipe that never ends. Without it, nothing. */
  readonly stdin?: Buffer | 'open';
  /** Variables besides those of the bench; undefined takes one away. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly cwd?: string;
  /** Takes over the reading of standard output. */
  readonly read?: (child: ChildProcess) => Promise<Buffer>;
  /** Called when the first byte was printed. */
  readonly onOutput?: (child: ChildProcess) => void;
}

/** Directories, configuration and engine for calls of the command. */
export class Bench implements AsyncDisposable {
  readonly workspace: string;
  readonly socket: string;
  readonly #top: string;
  #host: string | null = null;

  private constructor(top: string, socket: string) {
    this.#top = top;
    this.socket = socket;
    this.workspace = join(top, 'workspace');
  }

  /** A bench on an engine’s socket. */
  static async at({ socket }: { readonly socket: string }): Promise<Bench> {
    if (!existsSync(BIN)) throw new Error('packages/cli/bin/acode.js is missing: run `npm run build` first');
    const bench = new Bench(await mkdtemp('/var/tmp/acode-cli-'), socket);
    await mkdir(join(bench.#top, 'config', 'acode'), { recursive: true });
    await mkdir(join(bench.workspace, 'sub'), { recursive: true });
    await mkdir(join(bench.workspace, '.git'));
    await bench.configure({});
    return bench;
  }

  /** The user’s configuration from now on: these sections of `sandbox`, and the image of the tests. */
  async configure(sandbox: Readonly<Record<string, unknown>>, mode?: 'burst'): Promise<void> {
    const sections = { images: { default: images.busybox }, ...sandbox };
    const lines = Object.entries(sections).map(([name, section]) => `  ${name}: ${JSON.stringify(section)}`);
    await writeFile(
      join(this.#top, 'config', 'acode', 'config.yml'),
      `${mode === undefined ? '' : `mode: ${mode}\n`}sandbox:\n${lines.join('\n')}\n`,
    );
  }

  /** The configuration that comes with the code in the workspace. */
  async repositoryFile(text: string): Promise<void> {
    await mkdir(join(this.workspace, '.agent'), { recursive: true });
    await writeFile(join(this.workspace, '.agent', 'config.yml'), text);
  }

  /** The environment of a call: nothing of the machine’s own configuration is seen. */
  get env(): Record<string, string> {
    return {
      // No background process: a test that wants one takes this away.
      CI: 'true',
      PATH: process.env['PATH'] ?? '',
      HOME: join(this.#top, 'home'),
      XDG_CONFIG_HOME: join(this.#top, 'config'),
      XDG_STATE_HOME: join(this.#top, 'state'),
      XDG_RUNTIME_DIR: join(this.#top, 'runtime'),
      DOCKER_HOST: `unix://${this.socket}`,
    };
  }

  /** Starts the command. */
  start(argv: readonly string[], given: Given = {}): { readonly child: ChildProcess; readonly ended: Promise<Ended> } {
    const began = performance.now();
    const child = spawn(process.execPath, [BIN, ...argv], {
      cwd: given.cwd ?? this.workspace,
      env: { ...this.env, ...given.env },
      stdio: [given.stdin === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    });
    return { child, ended: finish(child, given, began) };
  }

  /** Calls the command and waits for its end. */
  call(argv: readonly string[], given?: Given): Promise<Ended> {
    return this.start(argv, given).ended;
  }

  /** `acode sandbox exec` with these words. */
  exec(argv: readonly string[], given?: Given): Promise<Ended> {
    return this.call(['sandbox', 'exec', ...argv], given);
  }

  /** The containers that calls on this bench have left on the engine, asked past the product. */
  async left(): Promise<string[]> {
    // The host label is a hash of a token in the runtime directory, and that directory is this bench’s own.
    const runtime = join(this.#top, 'runtime', 'acode');
    await mkdir(runtime, { recursive: true, mode: 0o700 });
    this.#host ??= await hostIdentity(runtime);
    const filters = encodeURIComponent(JSON.stringify({ label: [`acode.host=${this.#host}`] }));
    const reply = await this.asked(`/containers/json?all=1&filters=${filters}`);
    return z
      .array(z.looseObject({ Id: z.string() }))
      .parse(reply)
      .map(({ Id }) => Id);
  }

  /** What the engine answers, past the product: to a question, to an order with a body, or to one to remove something. */
  asked(path: string, order?: object | 'remove'): Promise<unknown> {
    return ask(this.socket, `/v1.41${path}`, order);
  }

  /** Waits until no scan goes on after its command; what was found and not told stays. */
  async scanned(): Promise<void> {
    const scans = join(this.#top, 'state', 'acode', 'scans');
    for (const until = Date.now() + 60_000; Date.now() < until; await new Promise(resolve => setTimeout(resolve, 50))) {
      const files = await readdir(scans, { recursive: true }).catch(() => []);
      if (!files.some(file => /(?:^|\/)(?:job-|scanner$)/.test(file))) return;
    }
    throw new Error('a scan still goes on');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // A scanner that goes on would make again what is removed here.
    await this.scanned();
    // A reaper may be about to write down what it removed.
    await rm(this.#top, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}

async function finish(child: ChildProcess, given: Given, began: number): Promise<Ended> {
  const { stdin, read, onOutput } = given;
  if (Buffer.isBuffer(stdin)) child.stdin?.end(stdin);
  child.stdin?.on('error', () => undefined);
  if (onOutput) child.stdout?.once('data', () => onOutput(child));
  const [stdout, stderr, status] = await Promise.all([
    read ? read(child) : collect(child.stdout),
    collect(child.stderr),
    new Promise<number | null>(resolve => child.once('exit', resolve)),
  ]);
  return { status, stdout, stderr: stderr.toString(), ms: performance.now() - began };
}

async function collect(stream: AsyncIterable<unknown> | null): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream ?? []) if (Buffer.isBuffer(chunk)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function ask(socketPath: string, path: string, order?: object | 'remove'): Promise<unknown> {
  const method = order === undefined ? 'GET' : order === 'remove' ? 'DELETE' : 'POST';
  const asked = request({ socketPath, path, method, headers: { 'Content-Type': 'application/json' } });
  const replied = once(asked, 'response');
  asked.end(typeof order === 'object' ? JSON.stringify(order) : undefined);
  const [reply] = (await replied) as [IncomingMessage];
  const text = (await collect(reply)).toString();
  if ((reply.statusCode ?? 500) >= 400) throw new Error(`${method} ${path}: ${reply.statusCode} ${text}`);
  return text === '' ? null : JSON.parse(text);
}
