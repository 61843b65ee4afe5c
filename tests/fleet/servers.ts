// Real servers for tests of the fleet: NATS, alone or three of them, and PostgreSQL, each in a directory of its own on the loopback.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { until } from '../support/waiting.ts';

/** The server of NATS. */
export const NATS = '/var/lib/acode-engines/nats/root/usr/sbin/nats-server';
const POSTGRES = '/usr/lib/postgresql';

/** Whether this machine has no such servers: `.ci/engines/up` fetches them. */
export const withoutServers = !existsSync(NATS) || !existsSync(POSTGRES);

/** A free port of the loopback. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise(resolve => void server.close(resolve));
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}

/** One program that can be killed and started again with the same files and ports. */
class ServerProcess {
  readonly log: string;
  readonly #start: () => ChildProcess;
  readonly #isReady: () => Promise<boolean>;
  #child: ChildProcess | null = null;

  constructor(log: string, start: (output: number) => ChildProcess, isReady: () => Promise<boolean>) {
    this.log = log;
    this.#start = () => start(openSync(log, 'a'));
    this.#isReady = isReady;
  }

  begin(): void {
    this.#child = this.#start();
  }

  async ready(): Promise<void> {
    await until(async () => {
      if (this.#child?.exitCode !== null)
        throw new Error(`the server ended:\n${readFileSync(this.log, 'utf8').slice(-2000)}`);
      return this.#isReady();
    });
  }

  async start(): Promise<void> {
    this.begin();
    await this.ready();
  }

  async end(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise(resolve => void child.once('exit', resolve));
    child.kill('SIGCONT');
    child.kill(signal);
    await ended;
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }
}

/** How servers of NATS are started. */
interface NatsServersOptions {
  readonly sync?: string;
  readonly jetstream?: boolean;
  readonly accounts?: string;
  /** Whether the servers of a cluster name each other to clients, by an address that is no loopback. */
  readonly advertise?: boolean;
  readonly inside?: (at: number, directory: string) => readonly string[];
}

/** Servers of NATS. */
export class NatsServers implements AsyncDisposable {
  readonly directory: string;
  readonly urls: string[] = [];
  readonly monitors: string[] = [];
  readonly processes: ServerProcess[] = [];

  private constructor() {
    this.directory = mkdtempSync('/var/tmp/acode-nats-');
  }

  /**
   * `sync` is what each is told of writing to disk: `always`, or an interval; `accounts`, what `acode fleet tenant` wrote. `inside`
   * gives the words before the program of a server whose directory is a file system of its own.
   */
  static async start(
    count: 1 | 3 | 4 = 1,
    { sync = 'always', jetstream = true, accounts = '', advertise = false, inside = () => [] }: NatsServersOptions = {},
  ): Promise<NatsServers> {
    const servers = new NatsServers();
    const ports = await Promise.all(
      Array.from({ length: count }, async () => [await freePort(), await freePort(), await freePort()]),
    );
    const routes = ports.map(([, , cluster]) => `"nats://127.0.0.1:${cluster}"`).join(', ');
    for (const [at, [client, monitor, cluster]] of ports.entries()) {
      const directory = join(servers.directory, `n${at}`);
      mkdirSync(directory);
      const file = join(directory, 'server.conf');
      writeFileSync(join(directory, 'accounts.conf'), accounts);
      writeFileSync(
        file,
        [
          `listen: 127.0.0.1:${client}`,
          `http: 127.0.0.1:${monitor}`,
          `server_name: n${at}`,
          jetstream
            ? `jetstream { store_dir: "${join(directory, 'store')}", sync_interval: ${sync}, max_file_store: 20G }`
            : '',
          accounts === '' ? '' : 'include ./accounts.conf',
          advertise ? `client_advertise: "0.0.0.0:${client}"` : '',
          // No client learns another address than those that it was given: it may stand behind a proxy that a test cuts off.
          count === 1
            ? ''
            : `cluster { name: acode, listen: 127.0.0.1:${cluster}, routes: [${routes}], no_advertise: ${!advertise} }`,
        ].join('\n'),
      );
      servers.urls.push(`nats://127.0.0.1:${client}`);
      servers.monitors.push(`http://127.0.0.1:${monitor}`);
      const [program, ...before] = [...inside(at, directory), NATS];
      const start = (output: number): ChildProcess =>
        spawn(program, [...before, '-c', file], { stdio: ['ignore', output, output] });
      const path = jetstream ? '/healthz' : '/healthz?js-enabled-only=false&js-server-only=false';
      const isReady = async (): Promise<boolean> =>
        fetch(`http://127.0.0.1:${monitor}${path}`).then(
          ({ ok }) => ok,
          () => false,
        );
      servers.processes.push(new ServerProcess(join(directory, 'server.log'), start, isReady));
    }
    for (const server of servers.processes) server.begin();
    await Promise.all(servers.processes.map(server => server.ready()));
    return servers;
  }

  /** Gives all servers other accounts, while they run. */
  setAccounts(accounts: string): void {
    for (const [at, server] of this.processes.entries()) {
      writeFileSync(join(this.directory, `n${at}`, 'accounts.conf'), accounts);
      server.signal('SIGHUP');
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.processes.map(server => server.end()));
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** How a server of PostgreSQL is started. */
interface PostgresServerOptions {
  readonly inside?: (data: string) => readonly string[];
}

/** A server of PostgreSQL. */
export class PostgresServer implements AsyncDisposable {
  readonly directory: string;
  readonly url: string;
  readonly process: ServerProcess;
  readonly #bin: string;

  private constructor(directory: string, port: number, bin: string, inside: readonly string[]) {
    this.directory = directory;
    this.#bin = bin;
    this.url = `postgres://acode@127.0.0.1:${port}/postgres`;
    const data = join(directory, 'data');
    const settings = [
      '-c',
      'listen_addresses=127.0.0.1',
      '-c',
      `port=${port}`,
      '-c',
      `unix_socket_directories=${directory}`,
    ];
    const [program, ...before] = [...inside, join(bin, 'postgres')];
    const start = (output: number): ChildProcess =>
      spawn(program, [...before, '-D', data, ...settings], { stdio: ['ignore', output, output] });
    this.process = new ServerProcess(join(directory, 'server.log'), start, async () => {
      try {
        execFileSync(join(bin, 'pg_isready'), ['-q', '-h', '127.0.0.1', '-p', String(port)]);
        return true;
      } catch {
        return false;
      }
    });
  }

  /** `inside` gives the words before the server, whose data are a file system of its own. */
  static async start({ inside = (): readonly string[] => [] }: PostgresServerOptions = {}): Promise<PostgresServer> {
    const version = readdirSync(POSTGRES).sort().at(-1) ?? '';
    const directory = mkdtempSync('/var/tmp/acode-pg-');
    const data = join(directory, 'data');
    const words = inside(data);
    const server = new PostgresServer(directory, await freePort(), join(POSTGRES, version, 'bin'), words);
    const [program, ...before] = [...words, join(server.#bin, 'initdb')];
    execFileSync(program, [...before, '-D', data, '-U', 'acode', '-A', 'trust', '--no-locale', '-E', 'UTF8'], {
      stdio: 'ignore',
    });
    await server.process.start();
    return server;
  }

  /** Changes a setting that needs no restart. */
  set(setting: string, value: string): void {
    this.query(`alter system set ${setting} = ${value}`);
    this.query('select pg_reload_conf()');
  }

  query(sql: string): void {
    execFileSync(join(this.#bin, 'psql'), [this.url, '-qc', sql], { stdio: 'ignore' });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.process.end('SIGQUIT');
    rmSync(this.directory, { recursive: true, force: true });
  }
}
