// Hosts of the fleet's benches: worker processes, each behind proxies that cut it off, and the sandboxes that they leave.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, openSync, readFileSync, readdirSync } from 'node:fs';
import { request } from 'node:http';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { join } from 'node:path';

const PROGRAM = join(process.cwd(), 'bench', 'fleet', 'worker.mjs');
const START_MS = 60_000;
const END_MS = 30_000;

/** Waits. */
export const pause = (ms: number): Promise<void> => new Promise(resolve => void setTimeout(resolve, ms));

/** Passes connections on to one port, until it is cut: then no byte passes, and nobody is told. */
export class Proxy implements Disposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #isCut = false;

  private constructor(port: number) {
    this.#server = createServer(near => {
      const far = connect(port, '127.0.0.1');
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(from);
        from.setNoDelay(true);
        from.on('error', () => to.destroy());
        from.on('close', () => {
          this.#sockets.delete(from);
          if (!this.#isCut) to.destroy();
        });
        from.on('data', bytes => {
          if (!this.#isCut) to.write(bytes);
        });
      }
    });
  }

  static async to(port: number): Promise<{ proxy: Proxy; port: number }> {
    const proxy = new Proxy(port);
    await new Promise<void>(resolve => void proxy.#server.listen(0, '127.0.0.1', resolve));
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    return { proxy, port: (proxy.#server.address() as AddressInfo).port };
  }

  /** Cuts every connection, and those that come. */
  cut(): void {
    this.#isCut = true;
  }

  /** Lets new connections through. Those from before are gone: their bytes are lost. */
  heal(): void {
    this.#isCut = false;
    for (const socket of this.#sockets) socket.destroy();
  }

  [Symbol.dispose](): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

/** What a host's journal says. */
export interface JournalLine {
  readonly at: string;
  readonly event: string;
  readonly worker: string;
  readonly id?: string;
  readonly attempt?: number;
}

/** One worker of a host, as its program is told of it. */
export interface HostedWorker {
  readonly file: object;
  readonly root: string;
  readonly runtime: string;
  readonly isFake: boolean;
}

/** A host: a process with workers, which can be killed and started again. */
export class Host implements AsyncDisposable {
  readonly name: string;
  readonly proxies: Proxy[] = [];
  readonly #directory: string;
  readonly #address: (proxied: readonly number[]) => object;
  readonly #pools: (at: string) => readonly HostedWorker[];
  #ports: number[] = [];
  #child: ChildProcess | null = null;
  #starts = 0;

  constructor(
    name: string,
    directory: string,
    address: (proxied: readonly number[]) => object,
    pools: (at: string) => readonly HostedWorker[],
  ) {
    this.name = name;
    this.#directory = join(directory, name);
    this.#address = address;
    this.#pools = pools;
  }

  async start(ports: readonly number[], canCut: boolean): Promise<void> {
    if (!canCut) this.#ports = [...ports];
    else if (this.proxies.length === 0)
      for (const port of ports) {
        const made = await Proxy.to(port);
        this.proxies.push(made.proxy);
        this.#ports.push(made.port);
      }
    await this.restart();
  }

  /** Starts the process, with a directory of its own each time: a host that died keeps nothing. */
  async restart(): Promise<void> {
    this.#starts += 1;
    const at = join(this.#directory, String(this.#starts));
    mkdirSync(at, { recursive: true });
    const settings = { name: this.name, address: this.#address(this.#ports), workers: this.#pools(at) };
    const log = openSync(join(at, 'worker.log'), 'a');
    const child = spawn(process.execPath, [PROGRAM, JSON.stringify(settings)], { stdio: ['ignore', 'pipe', log] });
    this.#child = child;
    const late = new Promise<never>((_, reject) =>
      setTimeout(() => reject(new Error(`${this.name} does not start: see ${at}/worker.log`)), START_MS).unref(),
    );
    const ended = new Promise<never>((_, reject) =>
      child.once('exit', () =>
        reject(new Error(`${this.name} ended: ${readFileSync(join(at, 'worker.log'), 'utf8')}`)),
      ),
    );
    ended.catch(() => undefined);
    await Promise.race([new Promise(resolve => child.stdout?.once('data', resolve)), ended, late]);
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  cut(): void {
    for (const proxy of this.proxies) proxy.cut();
  }

  heal(): void {
    for (const proxy of this.proxies) proxy.heal();
  }

  /** What all its processes wrote into their journals. */
  journal(): JournalLine[] {
    if (!existsSync(this.#directory)) return [];
    return readdirSync(this.#directory, { recursive: true, encoding: 'utf8' })
      .filter(name => /journal\.jsonl(?:\.1)?$/.test(name))
      .flatMap(name => readFileSync(join(this.#directory, name), 'utf8').split('\n'))
      .filter(line => line !== '')
      .map(line => JSON.parse(line));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const child = this.#child;
    if (child && child.exitCode === null && child.signalCode === null) {
      const ended = new Promise(resolve => void child.once('exit', resolve));
      child.kill('SIGCONT');
      child.kill('SIGTERM');
      await Promise.race([ended, pause(END_MS)]);
      child.kill('SIGKILL');
    }
    for (const proxy of this.proxies) proxy[Symbol.dispose]();
  }
}

/** Containers of an engine that have this label. */
export function containersWith(socketPath: string, label: string): Promise<number> {
  const filters = encodeURIComponent(JSON.stringify({ label: [label] }));
  return new Promise((resolve, reject) => {
    const asked = request(
      { socketPath, path: `/containers/json?all=1&filters=${filters}`, timeout: END_MS },
      answer => {
        let text = '';
        answer.setEncoding('utf8');
        answer.on('data', chunk => (text += String(chunk)));
        answer.on('end', () => {
          const found: unknown = JSON.parse(text);
          resolve(Array.isArray(found) ? found.length : Infinity);
        });
      },
    );
    asked.on('timeout', () => asked.destroy(new Error('the engine does not answer')));
    asked.on('error', reject);
    asked.end();
  });
}
