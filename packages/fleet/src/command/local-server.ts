// Server of `acode fleet up`: one that this machine has, started with a configuration of its own. Nothing is downloaded.

import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, openSync, closeSync, readFileSync, readdirSync } from 'node:fs';
import { createServer } from 'node:net';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { readPrivateFile, writePrivateFile } from '@acode/sandbox';
import * as z from 'zod';
import type { EngineAddress } from '../connect/open-engine.ts';
import { FLEET_ERRORS } from '../errors.ts';
import { isRecent } from '../engine/nats/server.ts';
import { makeNatsUser } from '../engine/nats/user.ts';
import { answers } from '../engine/postgres/schema.ts';
import { paused, reasonOf } from '../engine/retry.ts';
import type { RequestOf } from './requests.ts';

const execute = promisify(execFile);
const ASK_MS = 10_000;
const START_MS = 60_000;
const END_MS = 10_000;
const EVERY_MS = 100;
const MAX_STATE = 16 * 1024;
const MIN_POSTGRES = 13;
const GIB = 1024 ** 3;

/** A server that runs, and how it is reached. */
export interface LocalServer extends AsyncDisposable {
  /** What it is, for people. */
  readonly name: string;
  /** From this machine. */
  readonly address: EngineAddress;
  /** From other hosts; null where it listens to the loopback only. */
  readonly remote: EngineAddress | null;
}

type UpOptions = RequestOf<'up'>;

/** Starts a server in a directory; a database that the caller names is taken as it is. */
export async function startServer(directory: string, options: UpOptions, signal: AbortSignal): Promise<LocalServer> {
  if (options.postgres !== undefined) return named(options.postgres);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const problems: string[] = [];
  const nats = await natsServer(options.natsServer, problems);
  if (nats) return startNats(nats, join(directory, 'nats'), options, signal);
  const postgres = options.natsServer === undefined ? await postgresBin(problems) : null;
  if (postgres && options.listen === undefined) return startPostgres(postgres, join(directory, 'postgres'), signal);
  throw FLEET_ERRORS.create('ACODE-FLT-020', { problems });
}

function named(url: string): LocalServer {
  const address = { postgres: { url } };
  return { name: 'PostgreSQL', address, remote: address, [Symbol.asyncDispose]: async () => undefined };
}

interface Found {
  readonly path: string;
  readonly version: string;
}

async function natsServer(asked: string | undefined, problems: string[]): Promise<Found | null> {
  const directories = [
    ...(process.env['PATH'] ?? '').split(delimiter),
    '/usr/local/sbin',
    '/usr/sbin',
    '/usr/local/bin',
  ];
  const paths = asked === undefined ? directories.map(directory => join(directory, 'nats-server')) : [asked];
  for (const path of new Set(paths)) {
    if (!existsSync(path)) continue;
    const version = await versionOf(path, /v?(\d+\.\d+\.\d+\S*)/);
    if (version !== null && isRecent(version)) return { path, version };
    problems.push(`${path} is ${version ?? 'no program that answers'}, and 2.12.3 or newer is needed`);
  }
  if (asked !== undefined && problems.length === 0) problems.push(`${asked} does not exist`);
  return null;
}

async function postgresBin(problems: string[]): Promise<Found | null> {
  const versions = '/usr/lib/postgresql';
  const installed = existsSync(versions) ? readdirSync(versions).map(version => join(versions, version, 'bin')) : [];
  const directories = [...(process.env['PATH'] ?? '').split(delimiter), ...installed.sort().reverse()];
  for (const directory of directories) {
    if (!existsSync(join(directory, 'postgres')) || !existsSync(join(directory, 'initdb'))) continue;
    const version = await versionOf(join(directory, 'postgres'), /(\d+(?:\.\d+)*)/);
    if (version !== null && Number.parseInt(version, 10) >= MIN_POSTGRES) return { path: directory, version };
    problems.push(`${directory}/postgres is ${version ?? 'unknown'}, and ${MIN_POSTGRES} or newer is needed`);
  }
  return null;
}

async function versionOf(path: string, pattern: RegExp): Promise<string | null> {
  const { stdout } = await execute(path, ['--version'], { timeout: ASK_MS }).catch(() => ({ stdout: '' }));
  return pattern.exec(stdout)?.[1] ?? null;
}

const natsState = z.object({ port: z.number(), monitor: z.number(), seed: z.string(), user: z.string() });

async function startNats(
  { path, version }: Found,
  directory: string,
  { listen = '127.0.0.1', tlsCert, tlsKey, tlsCa }: UpOptions,
  signal: AbortSignal,
): Promise<LocalServer> {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const isLocal = listen === '127.0.0.1';
  if (!isLocal && (tlsCert === undefined || tlsKey === undefined))
    throw FLEET_ERRORS.create('ACODE-FLT-022', {
      file: listen,
      reason: 'a server that other hosts reach needs a certificate',
      remedy: 'Name it with --tls-cert and --tls-key, and with --tls-ca what it is checked against.',
    });
  const { port, monitor, seed, user } = await kept(directory, natsState, async () => {
    const made = makeNatsUser();
    return { port: await freePort(4222), monitor: await freePort(8222), seed: made.seed, user: made.publicKey };
  });
  const file = join(directory, 'server.conf');
  const tls = tlsCert === undefined ? '' : `tls { cert_file: ${quoted(tlsCert)}, key_file: ${quoted(tlsKey ?? '')} }`;
  writePrivateFile(
    file,
    [
      `listen: ${quoted(`${listen}:${port}`)}`,
      `http: "127.0.0.1:${monitor}"`,
      `server_name: acode`,
      `jetstream { store_dir: ${quoted(join(directory, 'data'))}, sync_interval: always }`,
      `authorization { users: [ { nkey: ${user} } ] }`,
      tls,
      '',
    ].join('\n'),
  );
  const scheme = tlsCert === undefined ? 'nats' : 'tls';
  const server = new ServerProcess(path, ['-c', file], join(directory, 'server.log'));
  await server.ready(async () => (await fetch(`http://127.0.0.1:${monitor}/healthz`)).ok, signal);
  const common = { seed, log_bytes: GIB, blob_bytes: GIB, ...(tlsCa === undefined ? {} : { ca_file: tlsCa }) };
  const servers = [`${scheme}://${listen}:${port}`];
  return {
    name: `NATS ${version}`,
    address: { nats: { ...common, servers, monitors: [`http://127.0.0.1:${monitor}`] } },
    // Checked here: its monitoring port answers this machine only.
    remote: isLocal ? null : { nats: { ...common, servers, unsynced: true } },
    [Symbol.asyncDispose]: () => server.end('SIGTERM'),
  };
}

const postgresState = z.object({ port: z.number(), password: z.string() });

async function startPostgres({ path, version }: Found, directory: string, signal: AbortSignal): Promise<LocalServer> {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const { port, password } = await kept(directory, postgresState, async () => ({
    port: await freePort(5432),
    password: randomBytes(24).toString('base64url'),
  }));
  const data = join(directory, 'data');
  if (!existsSync(join(data, 'PG_VERSION'))) {
    const passwords = join(directory, 'password');
    writePrivateFile(passwords, `${password}\n`);
    const about = [
      '-D',
      data,
      '-U',
      'acode',
      '-A',
      'scram-sha-256',
      '--pwfile',
      passwords,
      '--no-locale',
      '-E',
      'UTF8',
    ];
    await execute(join(path, 'initdb'), about, { timeout: START_MS, signal });
  }
  const settings = ['listen_addresses=127.0.0.1', `port=${port}`, 'unix_socket_directories='];
  const server = new ServerProcess(
    join(path, 'postgres'),
    ['-D', data, ...settings.flatMap(setting => ['-c', setting])],
    join(directory, 'server.log'),
  );
  const url = `postgres://acode:${password}@127.0.0.1:${port}/postgres`;
  await server.ready(() => answers(url, ASK_MS), signal);
  return {
    name: `PostgreSQL ${version}`,
    address: { postgres: { url } },
    remote: null,
    [Symbol.asyncDispose]: () => server.end('SIGINT'),
  };
}

/** A server as a process of this one. */
class ServerProcess {
  readonly #child: ChildProcess;
  readonly #log: string;

  constructor(path: string, argv: readonly string[], log: string) {
    this.#log = log;
    const output = openSync(log, 'a', 0o600);
    // A group of its own: a Ctrl-C of the terminal is this process’s to pass on, when the worker has ended.
    this.#child = spawn(path, argv, { stdio: ['ignore', output, output], detached: true });
    closeSync(output);
    this.#child.on('error', () => undefined);
    process.once('exit', () => this.#child.kill('SIGKILL'));
  }

  async ready(check: () => Promise<boolean>, signal: AbortSignal): Promise<void> {
    const end = performance.now() + START_MS;
    while (!signal.aborted) {
      if (this.#isOver()) throw this.#failed('it ended');
      if (await check().catch(() => false)) return;
      if (performance.now() > end) break;
      await paused(EVERY_MS, signal);
    }
    await this.end('SIGKILL');
    signal.throwIfAborted();
    throw this.#failed(`it did not answer within ${START_MS / 1000} s`);
  }

  async end(how: NodeJS.Signals): Promise<void> {
    if (this.#isOver()) return;
    const ended = new Promise(resolve => void this.#child.once('exit', resolve));
    const late = setTimeout(() => this.#child.kill('SIGKILL'), END_MS);
    this.#child.kill(how);
    await ended;
    clearTimeout(late);
  }

  #isOver(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null || this.#child.pid === undefined;
  }

  #failed(what: string): Error {
    const last = readFileSync(this.#log, 'utf8').trimEnd().split('\n').at(-1) ?? '';
    return FLEET_ERRORS.create('ACODE-FLT-001', { engine: this.#child.spawnfile, reason: `${what}: ${last}` });
  }
}

// Ports and secrets stay the same at every start.
async function kept<State>(directory: string, schema: z.ZodType<State>, make: () => Promise<State>): Promise<State> {
  const path = join(directory, 'state.json');
  const found = readPrivateFile(path, { maxBytes: MAX_STATE });
  if (found) return schema.parse(JSON.parse(found.text));
  if (existsSync(path))
    throw FLEET_ERRORS.create('ACODE-FLT-022', {
      file: path,
      reason: 'it can be read by others, or belongs to another user',
      remedy: `Remove ${directory}: it holds the fleet of this machine.`,
    });
  const made = await make();
  writePrivateFile(path, JSON.stringify(made), { durable: 'name' });
  return made;
}

/** The usual port, or another one where that is taken. */
async function freePort(usual: number): Promise<number> {
  for (const port of [usual, 0]) {
    const server = createServer();
    try {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        server.listen(port, '127.0.0.1', resolve);
      });
      const address = server.address();
      if (address !== null && typeof address === 'object') return address.port;
    } catch (error) {
      if (port === 0) throw FLEET_ERRORS.create('ACODE-FLT-001', { engine: '127.0.0.1', reason: reasonOf(error) });
    } finally {
      await new Promise(resolve => void server.close(resolve));
    }
  }
  throw FLEET_ERRORS.create('ACODE-FLT-001', { engine: '127.0.0.1', reason: 'no port is free' });
}

function quoted(text: string): string {
  return JSON.stringify(text);
}
