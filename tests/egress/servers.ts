// Servers of the tests’ own on this machine’s loopback, under names that `.ci/engines/up` writes to /etc/hosts, and hosts whose
// configuration lets sandboxes reach them.

import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import type { RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { Acode, policyFrom } from '@acode/sandbox';
import type { AcodeOptions, RunRequest, RunResult } from '@acode/sandbox';
import { SandboxAuthority } from '../../packages/sandbox/src/egress/proxy/certificates.ts';
import { podman, everyEngine, images, makeWorkspace } from '../support/engines.ts';
import { everything } from '../support/targets.ts';

/** Names that lead to this machine’s loopback. */
export const ONE = 'one.acode.test';
export const TWO = 'two.acode.test';
export const API = 'api.acode.test';
export const WILD = ['a.wild.acode.test', 'b.wild.acode.test'] as const;

/** Whether the names are there. */
export const withoutNames = !readFileSync('/etc/hosts', 'utf8').includes(ONE);

/** A server that counts who came. */
export class Site implements AsyncDisposable {
  readonly port: number;
  /** The certificate authority of an HTTPS server, as PEM. */
  readonly pem: string;
  /** Requests and connections, as text, in their order. */
  readonly seen: string[];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server, seen: string[], pem: string) {
    this.#server = server;
    this.port = (server.address() as AddressInfo).port;
    this.seen = seen;
    this.pem = pem;
    server.on('connection', socket => this.#sockets.add(socket));
  }

  /** Plain HTTP that answers with the host and the path it was asked for. */
  static http(answer?: RequestListener): Promise<Site> {
    const seen: string[] = [];
    return Site.#listen(createHttpServer(recorded(seen, answer)), seen);
  }

  /** HTTPS with certificates for these names. */
  static https(names: readonly string[], answer?: RequestListener): Promise<Site> {
    const authority = new SandboxAuthority([...names]);
    const seen: string[] = [];
    const server = createHttpsServer(
      { SNICallback: (name, done) => done(null, authority.context(name)) },
      recorded(seen, answer),
    );
    return Site.#listen(server, seen, authority.pem);
  }

  /** Any bytes over TCP: says hello, and what it hears. */
  static tcp(): Promise<Site> {
    const seen: string[] = [];
    const server = createServer(socket => {
      seen.push('connection');
      socket.on('error', () => undefined);
      socket.write('hello\n');
      socket.pipe(socket);
    });
    return Site.#listen(server, seen);
  }

  /** A proxy of a company: leads every tunnel to one port of this machine, and keeps what it was asked for. */
  static tunnels(asked: string[], port: number): Promise<Site> {
    const server = createHttpServer().on('connect', ({ url = '' }, client, head) => {
      asked.push(url);
      const upstream = connect(port, '127.0.0.1', () => {
        client.write('HTTP/1.1 200 Connection established\r\n\r\n');
        if (head.length > 0) upstream.write(head);
        client.pipe(upstream).pipe(client);
      });
      for (const socket of [client, upstream]) socket.on('error', () => void client.destroy());
    });
    return Site.#listen(server, []);
  }

  static async #listen(server: Server, seen: string[], pem = ''): Promise<Site> {
    server.on('error', () => undefined);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new Site(server, seen, pem);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }
}

function recorded(
  seen: string[],
  answer: RequestListener = (_, response) => void response.end('answer\n'),
): RequestListener {
  return (request, response) => {
    seen.push(`${request.method} ${request.headers.host?.replace(/:\d+$/, '')}${request.url}`);
    answer(request, response);
  };
}

/** A place where sandboxes with an allow-list run. */
export interface Place {
  readonly name: string;
  readonly socket: string;
  readonly level?: 'bubblewrap';
  readonly runtime?: string;
}

const withoutBubblewrap = process.getuid?.() === 0 || !existsSync('/usr/bin/bwrap');

/** Everywhere: each engine, gVisor, Podman, bubblewrap. */
export const places: readonly Place[] = [
  ...everyEngine.map(({ name, socket }) => ({ name, socket })),
  ...everyEngine
    .filter(({ runtimes }) => runtimes?.includes('runsc') === true)
    .map(({ name, socket }) => ({ name: `${name}, gVisor`, socket, runtime: 'runsc' })),
  ...(podman ? [{ name: podman.name, socket: podman.socket }] : []),
  ...(withoutBubblewrap
    ? []
    : [{ name: 'bubblewrap', socket: '/nonexistent/docker.sock', level: 'bubblewrap' as const }]),
];

/** Places for what the engine has no part in. */
export const mainPlaces: readonly Place[] = everything
  ? places
  : places.filter(({ name }) => name === everyEngine.at(-1)?.name);

/** A host whose user lets sandboxes reach the servers of a test. Closing it removes its workspace. */
export class AllowHost implements AsyncDisposable {
  readonly acode: Acode;
  readonly #directory: string;

  private constructor(acode: Acode, directory: string) {
    this.acode = acode;
    this.#directory = directory;
  }

  static async open(
    { socket, level, runtime }: Place,
    { roots = [], mounts = [], network, mode, ...options }: OpenOptions = {},
  ): Promise<AllowHost> {
    const directory = makeWorkspace();
    const workspace = join(directory, 'workspace');
    mkdirSync(workspace);
    const bundle = join(directory, 'ca.pem');
    if (roots.length > 0) writeFileSync(bundle, roots.join('\n'));
    const own = { private_hosts: ['*.acode.test'], ...(roots.length > 0 ? { ca_file: bundle } : {}), ...network };
    const config: AcodeOptions['config'] = {
      ...(mode ? { mode } : {}),
      sandbox: {
        ...(level ? { level, bubblewrap: { accept_process_limits: true }, require_for: [] } : {}),
        ...(runtime ? { runtime } : {}),
        images: { default: images.debian },
        mounts: { allowed_host_roots: [...mounts] },
        network: own,
      },
    };
    return new AllowHost(await Acode.open({ workspace, engine: { socket }, ...options, config }), directory);
  }

  /** Runs a line for the shell with this allow-list. */
  run(line: string, allow: readonly string[], more: RunRequest = {}): Promise<RunResult> {
    return this.acode.run(line, { ...more, policy: policyFrom({ ...more.policy, network: { allow } }) });
  }

  /** Writes a file of the workspace. */
  write(name: string, content: string): void {
    const path = join(this.#directory, 'workspace', name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, content);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.acode.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

interface OpenOptions extends AcodeOptions {
  /** Certificate authorities of servers. */
  readonly roots?: readonly string[];
  /** Directories that a command may mount. */
  readonly mounts?: readonly string[];
  readonly mode?: 'airgapped';
  /** More of `sandbox.network` in the user’s file. */
  readonly network?: Record<string, unknown>;
}
