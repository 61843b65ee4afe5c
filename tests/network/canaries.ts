// Servers and clients of the tests’ own on the engines: every address a network test aims at belongs to one of these.

import { randomBytes } from 'node:crypto';
import { images, withEngine } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { demultiplex } from '../../packages/sandbox/src/isolation/docker/engine/streams.ts';
import type { Engine } from '../../packages/sandbox/src/isolation/docker/engine/index.ts';

/** What a canary answers to whoever reaches it. */
export const SONG = 'canary-sings';

const signal = (): AbortSignal => AbortSignal.timeout(60_000);

/** A container of the test’s own, past the library: a service of the host, another container, or somebody on the host. */
export class Canary implements AsyncDisposable {
  readonly id: string;
  /** Its name on a network of a user’s. */
  readonly name: string;
  readonly address: string;
  readonly address6: string;
  readonly #engine: TestEngine;

  private constructor(engine: TestEngine, id: string, name: string, endpoint: Record<string, unknown>) {
    this.#engine = engine;
    this.id = id;
    this.name = name;
    const text = (key: string): string => (typeof endpoint[key] === 'string' ? endpoint[key] : '');
    this.address = text('IPAddress');
    this.address6 = text('GlobalIPv6Address');
  }

  /** Answers {@link SONG} on a port; `host` as the network makes it a service of the engine’s host. */
  static async sing(engine: TestEngine, network: string, port: number): Promise<Canary> {
    return Canary.serve(engine, network, `exec nc -ll -p ${port} -e echo ${SONG}`, `:${hex(port)} `);
  }

  /** Runs a server of any kind; it is there when `sign` stands in what the kernel lists as listening. */
  static async serve(
    engine: TestEngine,
    network: string,
    script: string,
    sign: string,
    image = images.busybox,
  ): Promise<Canary> {
    return withEngine(engine, async direct => {
      // Named, since older engines do not find containers by a name they made up themselves.
      const name = `acode-test-canary-${randomBytes(4).toString('hex')}`;
      const wanted = body(['sh', '-c', script], network, image);
      const created = await direct.containers.create(wanted, { name, signal: signal() });
      await direct.containers.start(created.id, { signal: signal() });
      const { NetworkSettings } = await direct.containers.inspect(created.id, { signal: signal() });
      const [endpoint] = Object.values(NetworkSettings.Networks ?? {});
      const canary = new Canary(engine, created.id, name, endpoint ?? {});
      try {
        await untilListening(direct, created.id, sign);
        return canary;
      } catch (error) {
        await canary[Symbol.asyncDispose]();
        throw error;
      }
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await withEngine(this.#engine, direct => direct.containers.remove(this.id, { force: true, signal: signal() }));
  }
}

/** What {@link nameServer} answers for `acode.test`, and only for that. */
export const ANSWER = '127.0.0.9';

const ANSWERING = String.raw`import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 53))
while True:
    data, who = s.recvfrom(512)
    question = data[12 : data.index(b"\0", 12) + 5]
    known = question == b"\x05acode\x04test\0\0\1\0\1"
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton("127.0.0.9")
    s.sendto(data[:2] + b"\x81\x80\0\1\0" + bytes([known]) + b"\0\0\0\0" + question + known * answer, who)`;

/** A name server of the test’s own: sandboxes that look names up ask this one, and nobody else’s. */
export function nameServer(engine: TestEngine, network: string): Promise<Canary> {
  return Canary.serve(engine, network, `exec python3 -c '${ANSWERING}'`, ':0035 ', images.debian);
}

/** What a program outside every sandbox prints; without another network, one on the engine’s host itself. */
export async function outside(
  engine: TestEngine,
  script: string,
  { network = 'host', image = images.busybox, dns = '' } = {},
): Promise<string> {
  return withEngine(engine, async direct => {
    const { id } = await direct.containers.create(body(['sh', '-c', script], network, image, dns), {
      signal: signal(),
    });
    try {
      const stream = await direct.containers.attach(id, { stdout: true, stderr: true, signal: signal() });
      await direct.containers.start(id, { signal: signal() });
      let printed = '';
      const take = (data: Buffer): void => void (printed += data.toString());
      await demultiplex(stream, { stdout: take, stderr: take });
      return printed;
    } finally {
      await direct.containers.remove(id, { force: true, signal: signal() });
    }
  });
}

/** A network of the test’s own, as a user makes one. */
export class UserNetwork implements AsyncDisposable {
  readonly id: string;
  readonly name: string;
  readonly #engine: TestEngine;

  private constructor(engine: TestEngine, id: string, name: string) {
    this.#engine = engine;
    this.id = id;
    this.name = name;
  }

  static async create(engine: TestEngine, changes: Record<string, unknown> = {}): Promise<UserNetwork> {
    const name = `acode-test-net-${randomBytes(4).toString('hex')}`;
    const wanted = { Name: name, Driver: 'bridge', ...changes };
    const id = await withEngine(engine, direct => direct.networks.create(wanted, { signal: signal() }));
    return new UserNetwork(engine, id, wanted.Name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await withEngine(this.#engine, direct => direct.networks.remove(this.id, { signal: signal() }));
  }
}

/** The networks that carry a session’s label. */
export async function networksOf(engine: TestEngine, session: string): Promise<{ Id: string; Name: string }[]> {
  return withEngine(engine, direct => direct.networks.list({ labels: [`acode.session=${session}`], signal: signal() }));
}

/** A port nobody else in the tests uses. */
export function anyPort(): number {
  return 20_000 + Math.floor(Math.random() * 8000);
}

function hex(port: number): string {
  return port.toString(16).toUpperCase().padStart(4, '0');
}

function body(argv: readonly string[], network: string, image = images.busybox, dns = ''): object {
  return {
    Image: image,
    Entrypoint: argv,
    Labels: { 'acode-test.canary': 'true' },
    HostConfig: { NetworkMode: network, Init: true, Dns: dns === '' ? [] : [dns] },
  };
}

const LISTENING = ['tcp', 'tcp6', 'udp', 'udp6', 'unix'].map(kind => `/proc/net/${kind}`);

async function untilListening(direct: Engine, id: string, sign: string): Promise<void> {
  for (let attempt = 0; attempt < 50; attempt += 1) {
    const exec = await direct.exec.create(id, { argv: ['cat', ...LISTENING] }, { signal: signal() });
    const stream = await direct.exec.start(exec, { signal: signal() });
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    if (Buffer.concat(chunks).toString().includes(sign)) return;
  }
  throw new Error(`nothing listens with the sign ${sign}`);
}
