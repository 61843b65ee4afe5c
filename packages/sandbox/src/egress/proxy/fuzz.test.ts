// The real proxy of a sandbox, fed with generated requests: whatever a sandbox sends, nothing is dialled and nothing arrives at a
// server that a second decision does not allow, and the proxy goes on.
//
// `ACODE_FUZZ_REQUESTS=200000` for as many; `ACODE_FUZZ_SECONDS=600` for a soak, which also watches the memory.

import { randomBytes } from 'node:crypto';
import { createServer, Socket } from 'node:net';
import type { AddressInfo, Server } from 'node:net';
import { Duplex } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { EgressPlan, EgressRule } from '../../contract/egress.ts';
import { decideAddress, decideHost, decideRequest } from '../decide.ts';
import { planOf } from '../plan.ts';
import { decideRepository } from '../repository.ts';
import { referenceHost, referencePath } from '../reference.test.support.ts';
import { Frames } from '../relay/frames.ts';
import { refusalText } from './refusal-text.ts';
import { SandboxProxy } from './sandbox-proxy.ts';
import type { Listener } from './sandbox-proxy.ts';

const REQUESTS = Number(process.env['ACODE_FUZZ_REQUESTS'] ?? 10_000);
const SECONDS = Number(process.env['ACODE_FUZZ_SECONDS'] ?? 0);
const SEED = Number(process.env['ACODE_FUZZ_SEED'] ?? randomBytes(4).readUInt32LE());
const AT_ONCE = 128;
const OF_ONE_PROXY = 1000;
const SILENCE_MS = 100;
const REAL_MS = 5;

// Names that the stand-in for a resolver knows. What is not allowed leads to the same servers: only the rules keep it away.
const FORBIDDEN = '127.0.0.66';
const ADDRESSES: Readonly<Record<string, string>> = {
  'web.test': '127.0.0.1',
  'raw.test': '127.0.0.1',
  'tls.test': '127.0.0.1',
  'a.wild.test': '127.0.0.1',
  'x.a.wild.test': '127.0.0.1',
  'private.test': '10.0.0.1',
  'metadata.test': '169.254.169.254',
};

/** A generator that gives the same values for the same seed. */
class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit;
  }

  of<Value>(values: readonly Value[]): Value {
    return values[this.below(values.length)] as Value;
  }

  bytes(length: number): Buffer {
    return Buffer.from(Array.from({ length }, () => this.below(256)));
  }
}

const HOSTS = [
  ...['web.test', 'raw.test', 'tls.test', 'a.wild.test', 'private.test', 'metadata.test', 'evil.test', 'evilweb.test'],
  ...['WEB.test', 'web.test.', 'web.test..', '.web.test', 'wild.test', 'x.a.wild.test', 'a.wild.test.evil.test'],
  ...[
    '127.0.0.1',
    '127.1',
    '0x7f000001',
    '2130706433',
    '[::1]',
    '[::ffff:127.0.0.1]',
    '::1',
    '0',
    'localhost',
    FORBIDDEN,
  ],
  ...[
    'web.test\0.evil.test',
    'web.test@evil.test',
    'evil.test#web.test',
    'web%2etest',
    'wéb.test',
    'web.test\r\nX: y',
    '',
  ],
  ...[' web.test', 'web.test ', 'web.test\t', 'web_test', '-web.test', 'a'.repeat(300), 'web.test:80', 'host'],
];
const METHODS = ['GET', 'POST', 'HEAD', 'PUT', 'CONNECT', 'OPTIONS', 'TRACE', 'PRI', 'get', 'G\0ET', 'PATCH'];
const PATHS = [
  ...[
    '/',
    '/a',
    '/a/b',
    '/read/x',
    '/read/../secret',
    '/read/%2e%2e/secret',
    '//secret',
    '/read//x',
    '/read/x?y=/../z',
  ],
  ...[
    '/read/%2fsecret',
    '/read/x;a=b',
    '/read/..;/secret',
    '/read/%00',
    '/read/\\..\\secret',
    '*',
    'read',
    '/read/x#y',
    '/secret',
  ],
];
const HEADERS = [
  ...['Content-Length: 5', 'Content-Length: 5, 5', 'Content-Length: +5', 'Content-Length: 0x5', 'content-length:5'],
  ...[
    'Transfer-Encoding: chunked',
    'Transfer-Encoding: gzip, chunked',
    'Transfer-Encoding : chunked',
    'Transfer-Encoding: xchunked',
  ],
  ...[
    'Transfer-Encoding:\tchunked',
    'Connection: close',
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Upgrade: h2c',
    'HTTP2-Settings: AA',
  ],
  ...[
    'Host: web.test',
    'Host: evil.test',
    'X-A: b\r\n c',
    'X-A: b\rGET /secret HTTP/1.1',
    'X\0: y',
    ': y',
    'Expect: 100-continue',
  ],
  ...['Connection: Host', 'Connection: Content-Length', 'Proxy-Connection: keep-alive', 'Keep-Alive: timeout=5'],
];
const BODIES = [
  '',
  'hello',
  '5\r\nhello\r\n0\r\n\r\n',
  '0\r\n\r\nGET /secret HTTP/1.1\r\nHost: web.test\r\n\r\n',
  'zz\r\n',
  '\r\n\r\n',
];

function head(chance: Chance, line: string, host: string, port: string): string {
  const headers = Array.from({ length: chance.below(4) }, () => chance.of(HEADERS));
  if (chance.below(8) > 0) headers.unshift(`Host: ${chance.below(4) > 0 ? host : chance.of(HOSTS)}${port}`);
  return `${line}\r\n${headers.map(text => `${text}\r\n`).join('')}\r\n${chance.of(BODIES)}`;
}

/** One thing that a sandbox sends, and where. */
function generated(chance: Chance, ports: readonly number[]): { readonly listener: Listener; readonly bytes: Buffer } {
  const host = chance.below(3) > 0 ? chance.of(['web.test', 'raw.test', 'tls.test', 'a.wild.test']) : chance.of(HOSTS);
  // Half of the time the port on which the host is allowed.
  const own = { 'web.test': ports[0], 'tls.test': ports[2] }[host] ?? ports[1] ?? 0;
  const port = chance.below(2) > 0 ? own : chance.of([...ports, 80, 443, 0, 65_536]);
  const version = chance.of(['HTTP/1.1', 'HTTP/1.1', 'HTTP/1.0', 'HTTP/2.0', 'HTTP/0.9', '']);
  const path = chance.of(PATHS);
  const scheme = chance.of(['http', 'http', 'https', 'ftp', 'HTTP']);
  const kinds: readonly (() => { listener: Listener; text: string | Buffer })[] = [
    () => ({ listener: 'proxy', text: head(chance, `CONNECT ${host}:${port} ${version}`, host, `:${port}`) }),
    () => ({
      listener: 'proxy',
      text: Buffer.concat([
        Buffer.from(`CONNECT ${host}:${port} HTTP/1.1\r\nHost: ${host}:${port}\r\n\r\n`, 'latin1'),
        chance.of([
          clientHello(chance, chance.of([host, chance.of(HOSTS)])),
          Buffer.from(head(chance, `GET ${path} HTTP/1.1`, host, ''), 'latin1'),
        ]),
      ]),
    }),
    () => ({
      listener: 'proxy',
      text: head(chance, `${chance.of(METHODS)} ${scheme}://${host}:${port}${path} ${version}`, host, `:${port}`),
    }),
    () => ({ listener: 'proxy', text: head(chance, `${chance.of(METHODS)} ${path} ${version}`, host, '') }),
    () => ({ listener: 'socks', text: socks(chance, host, port) }),
    () => ({
      listener: { address: chance.of(['127.8.0.1', '127.8.0.2', '127.8.0.3', '127.9.9.9']), port },
      text: chance.of([
        head(chance, `${chance.of(METHODS)} ${path} ${version}`, host, `:${port}`),
        clientHello(chance, host),
      ]),
    }),
    () => ({
      listener: { address: '127.9.0.1', port, host },
      text: head(chance, `GET ${path} HTTP/1.1`, host, `:${port}`),
    }),
  ];
  const { listener, text } = chance.of(kinds)();
  return { listener, bytes: mutated(chance, Buffer.isBuffer(text) ? text : Buffer.from(text, 'latin1')) };
}

function mutated(chance: Chance, bytes: Buffer): Buffer {
  switch (chance.below(10)) {
    case 0: {
      const copy = Buffer.from(bytes);
      if (copy.length > 0) copy[chance.below(copy.length)] = chance.below(256);
      return copy;
    }
    case 1:
      return bytes.subarray(0, chance.below(bytes.length + 1));
    case 2:
      return Buffer.concat([bytes, bytes]);
    case 3:
      return Buffer.concat([
        bytes.subarray(0, bytes.length >> 1),
        chance.bytes(chance.below(32)),
        bytes.subarray(bytes.length >> 1),
      ]);
    default:
      return bytes;
  }
}

function socks(chance: Chance, host: string, port: number): Buffer {
  const name = Buffer.from(host.slice(0, 255), 'latin1');
  const kind = chance.of([3, 3, 3, 1, 4, 9]);
  const address = kind === 3 ? Buffer.concat([Buffer.from([name.length]), name]) : chance.bytes(kind === 1 ? 4 : 16);
  const greeting = chance.of([
    Buffer.from([5, 1, 0]),
    Buffer.from([5, 2, 2, 0]),
    Buffer.from([4, 1]),
    Buffer.from([5, 0]),
  ]);
  const request = Buffer.from([5, chance.of([1, 1, 2, 3]), 0, kind]);
  return Buffer.concat([
    greeting,
    request,
    address,
    Buffer.from([(port >> 8) & 255, port & 255]),
    Buffer.from('hello'),
  ]);
}

/** A ClientHello with a server name, whole or in part wrong. */
function clientHello(chance: Chance, name: string): Buffer {
  const text = Buffer.from(name, 'latin1');
  const u16 = (value: number): Buffer => Buffer.from([(value >> 8) & 255, value & 255]);
  const entry = Buffer.concat([Buffer.from([chance.below(20) === 0 ? 1 : 0]), u16(text.length), text]);
  const list = Buffer.concat([u16(entry.length), entry, chance.below(10) === 0 ? entry : Buffer.alloc(0)]);
  const extension = Buffer.concat([u16(chance.below(20) === 0 ? 0xfe0d : 0), u16(list.length), list]);
  const extensions =
    chance.below(20) === 0
      ? Buffer.alloc(0)
      : chance.below(20) === 0
        ? Buffer.concat([extension, extension])
        : extension;
  const body = Buffer.concat([
    u16(0x0303),
    chance.bytes(32),
    Buffer.from([0]),
    u16(2),
    u16(0x1301),
    Buffer.from([1, 0]),
    u16(extensions.length),
    extensions,
  ]);
  const length = body.length + (chance.below(15) === 0 ? chance.below(5) : 0);
  const message = Buffer.concat([Buffer.from([1, (length >> 16) & 255, (length >> 8) & 255, length & 255]), body]);
  const cut = chance.below(4) === 0 ? 1 + chance.below(message.length - 1) : message.length;
  const record = (part: Buffer): Buffer => Buffer.concat([Buffer.from([22, 3, 1]), u16(part.length), part]);
  return Buffer.concat([
    record(message.subarray(0, cut)),
    ...(cut < message.length ? [record(message.subarray(cut))] : []),
  ]);
}

// What arrived at the server behind web.test, read by the strictest rules there are: anything else is a violation.
function violationsIn(bytes: Buffer, requests: NonNullable<EgressRule['requests']>, port: number): string[] {
  const found: string[] = [];
  let rest = bytes.toString('latin1');
  while (rest !== '') {
    const [whole, method = '', target = '', lines = ''] =
      /^([A-Z]+) (\S+) HTTP\/1\.1\r\n((?:[!#$%&'*+.^_`|~\w-]+: [^\r\n\0]*\r\n)*)\r\n/.exec(rest) ?? [];
    // A request that was cut off in the middle is none.
    if (whole === undefined)
      return rest.includes('\r\n\r\n') ? [...found, `not a request: ${JSON.stringify(rest.slice(0, 200))}`] : found;
    if (!referencePath(requests, method, target)) found.push(`${method} ${target}`);
    const headers = lines
      .split('\r\n')
      .filter(line => line !== '')
      .map(line => line.split(': ') as [string, string]);
    const named = (wanted: string): string[] =>
      headers.filter(([name]) => name.toLowerCase() === wanted).map(([, value]) => value);
    if (named('host').join() !== `web.test:${port}`) found.push(`Host ${named('host').join()}`);
    if (named('upgrade').length > 0) found.push('Upgrade');
    const [length, coding] = [named('content-length'), named('transfer-encoding')];
    if (length.length + coding.length > 1) found.push(`two lengths: ${[...length, ...coding].join(' ')}`);
    rest = rest.slice(whole.length);
    if (coding.length > 0) {
      const end = /(?:^|\r\n)0\r\n\r\n/.exec(rest);
      rest = end ? rest.slice(end.index + end[0].length) : '';
    } else rest = rest.slice(Number(length[0] ?? 0));
  }
  return found;
}

// The message in the records of TLS, each of which begins with five bytes of its own.
function withoutRecords(text: string): string {
  const bytes = Buffer.from(text, 'latin1');
  let message = '';
  for (let at = 0; at + 5 <= bytes.length; at += 5 + bytes.readUInt16BE(at + 3))
    message += bytes.toString('latin1', at + 5, at + 5 + bytes.readUInt16BE(at + 3));
  return message;
}

describe('what a sandbox sends', () => {
  const dialled: string[] = [];
  const asked: string[] = [];
  const received = new Map<Socket, Buffer[]>();
  const hellos: string[] = [];
  const servers: Server[] = [];
  const sockets = new Set<Socket>();
  let [web, raw, tls] = [0, 0, 0];
  let forbidden = 0;
  let plan: EgressPlan | null = null;
  // oxlint-disable-next-line typescript/unbound-method -- called with the socket that it is for
  const real = Socket.prototype.connect;
  const requests = [
    { methods: ['GET', 'HEAD'], path: '/read/' },
    { methods: ['POST'], path: '/a$' },
  ];

  async function serving(onConnection: (socket: Socket) => void, address = '127.0.0.1', port = 0): Promise<number> {
    const server = createServer(socket => {
      socket.on('error', () => undefined);
      sockets.add(socket);
      socket.once('close', () => sockets.delete(socket));
      onConnection(socket);
    });
    servers.push(server);
    await new Promise<void>(resolve => void server.listen(port, address, resolve));
    return (server.address() as AddressInfo).port;
  }

  beforeAll(async () => {
    web = await serving(socket => {
      const chunks: Buffer[] = [];
      received.set(socket, chunks);
      socket.on('data', chunk => {
        chunks.push(chunk);
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
      });
    });
    raw = await serving(socket => void socket.resume());
    tls = await serving(socket =>
      socket.once('data', hello => {
        hellos.push(hello.toString('latin1'));
        socket.end();
      }),
    );
    for (const port of [web, raw, tls]) await serving(() => (forbidden += 1), FORBIDDEN, port);
    const setBy = { layer: 'user', where: 'test' } as const;
    const rule = (host: string, port: number, more: Partial<EgressRule>): EgressRule => ({
      ...{ id: `allow/${host}`, verdict: 'allow', host, port, protocol: 'tcp', mode: 'pass', setBy, private: true },
      ...more,
    });
    const rules = [
      rule('web.test', web, { protocol: 'http', requests }),
      rule('raw.test', raw, {}),
      rule('tls.test', tls, { protocol: 'tls' }),
      rule('*.wild.test', raw, {}),
      rule('private.test', raw, { private: false }),
      rule('metadata.test', raw, {}),
    ];
    plan = planOf(rules, { connections: 256, headerBytes: 8192, connectMs: 1000, idleMs: 1000 });
    // Every dial of this process passes here, those of the proxy among them.
    Socket.prototype.connect = function (this: Socket, ...args: unknown[]): Socket {
      // As `net.connect` calls it: what it was given, in an array.
      const [[to]] = args as [[{ host?: string; port?: number }]];
      dialled.push(`${String(to.host)}:${String(to.port)}`);
      return Reflect.apply(real, this, args) as Socket;
    };
  });

  afterAll(async () => {
    Socket.prototype.connect = real;
    for (const socket of sockets) socket.destroy();
    await Promise.all(servers.map(server => new Promise(resolve => void server.close(resolve))));
  });

  const resolve = async (host: string): Promise<readonly string[]> => {
    asked.push(host);
    // A changed byte makes other names below the suffix that a rule allows.
    return [ADDRESSES[host] ?? (host.endsWith('.wild.test') ? '127.0.0.1' : FORBIDDEN)];
  };

  // As the relay gives it: a stream whose other end the sandbox has.
  async function send(
    proxy: SandboxProxy,
    { listener, bytes }: ReturnType<typeof generated>,
    chance: Chance,
  ): Promise<void> {
    const [inside, outside] = pair();
    outside.pause();
    proxy.accept(listener, outside);
    const pieces = chance.below(5) === 0 ? Array.from(bytes, (_, at) => bytes.subarray(at, at + 1)) : [bytes];
    let last = performance.now();
    inside.on('data', () => (last = performance.now()));
    const ended = new Promise<void>(done => inside.once('close', () => done()));
    for (const piece of pieces.slice(0, 400)) if (!inside.destroyed) inside.write(piece);
    if (chance.below(2) === 0) inside.end();
    while (!inside.destroyed && performance.now() - last < SILENCE_MS)
      await Promise.race([ended, new Promise(done => void setTimeout(done, REAL_MS))]);
    inside.destroy();
    outside.destroy();
  }

  function verify(): void {
    const { rules } = plan ?? { rules: [] };
    for (const to of dialled.splice(0))
      expect([`127.0.0.1:${web}`, `127.0.0.1:${raw}`, `127.0.0.1:${tls}`]).toContain(to);
    for (const host of asked.splice(0))
      expect([host, rules.some(({ port }) => referenceHost([...rules], host, port) === 'allowed')]).toEqual([
        host,
        true,
      ]);
    for (const [socket, chunks] of received) {
      expect(violationsIn(Buffer.concat(chunks), requests, web)).toEqual([]);
      if (socket.destroyed) received.delete(socket);
      else chunks.splice(0);
    }
    // The name is in a ClientHello as it is, and those that are refused have another one.
    for (const hello of hellos.splice(0)) expect(withoutRecords(hello)).toMatch(/^[^]*tls\.test(?!\.)(?![^]*evil)/);
    expect(forbidden).toBe(0);
  }

  async function fuzz(isOver: (count: number) => boolean, look: () => void = () => undefined): Promise<number> {
    const chance = new Chance(SEED);
    let [count, allowed] = [0, 0];
    while (!isOver(count)) {
      if (!plan) throw new Error('there is no plan');
      const decisions = { decideHost, decideAddress, decideRequest, decideRepository, refusalText };
      const proxy = new SandboxProxy({ plan, decisions, resolve });
      let left = OF_ONE_PROXY;
      const sending = async (): Promise<void> => {
        while (left-- > 0) await send(proxy, generated(chance, [web, raw, tls]), chance);
      };
      await Promise.all(Array.from({ length: AT_ONCE }, sending));
      count += OF_ONE_PROXY;
      const rows = proxy.close().filter(({ verdict }) => verdict === 'allowed');
      allowed += rows.reduce((sum, row) => sum + row.count, 0);
      verify();
      look();
    }
    // The control: enough of it was allowed, and arrived.
    expect(allowed).toBeGreaterThan(count / 200);
    return count;
  }

  it('reaches what the rules allow, and nothing else', { timeout: 3_600_000 }, async () => {
    process.stdout.write(`FIGURE ${REQUESTS} requests, ACODE_FUZZ_SEED=${SEED}\n`);
    expect(await fuzz(count => count >= REQUESTS)).toBeGreaterThanOrEqual(REQUESTS);
  });

  const soak = SECONDS > 0 ? it : () => undefined;
  soak('for a while, in memory that does not grow', { timeout: (SECONDS + 60) * 1000 }, async () => {
    const began = performance.now();
    const samples: { readonly at: number; readonly bytes: number }[] = [];
    const look = (): void => {
      const at = (performance.now() - began) / 1000;
      if (at - (samples.at(-1)?.at ?? 0) < 1) return;
      globalThis.gc?.();
      samples.push({ at, bytes: process.memoryUsage().heapUsed });
    };
    const count = await fuzz(() => performance.now() - began > SECONDS * 1000, look);
    const mean = (from: number, to: number): number => {
      const part = samples.filter(({ at }) => at >= from * SECONDS && at < to * SECONDS).map(({ bytes }) => bytes);
      return part.reduce((sum, bytes) => sum + bytes, 0) / part.length;
    };
    const [early, late] = [mean(0.2, 0.4), mean(0.8, 1)];
    process.stdout.write(
      `FIGURE heap after ${count} requests: ${(late / early).toFixed(3)} × that of the second fifth of ${SECONDS} s\n`,
    );
    expect(late).toBeLessThan(early * 1.2);
  });

  it('as frames: never crashes, and takes no stream that was not opened rightly', async () => {
    const chance = new Chance(SEED + 1);
    let opened = 0;
    for (let round = 0; round < REQUESTS / 50; round++) {
      const [inside, outside] = pair();
      const frames = new Frames(outside, {
        control: () => true,
        open: name => {
          opened += 1;
          expect(name.length).toBeLessThanOrEqual(32);
          return name.startsWith('127.');
        },
        max: () => 16,
        closed: () => undefined,
      });
      inside.write(OPENED);
      for (let part = 0; part < 8 && !inside.destroyed; part++) inside.write(mutated(chance, frame(chance)));
      for (let turn = 0; turn < 4; turn++) await new Promise(done => void setImmediate(done));
      frames.close();
      inside.destroy();
    }
    expect(opened).toBeGreaterThanOrEqual(REQUESTS / 50);
  });
});

// The first frame of a forwarder on whose listener somebody connected.
const OPENED = Buffer.concat([Buffer.from([1, 0, 0, 0, 79, 0, 13, 0]), Buffer.from('127.8.0.1:443')]);

function frame(chance: Chance): Buffer {
  const payload = chance.of([
    Buffer.from('127.8.0.1:443'),
    Buffer.from('proxy'),
    chance.bytes(chance.below(200)),
    Buffer.alloc(4, 255),
    Buffer.alloc(0),
  ]);
  const header = Buffer.alloc(8);
  header.writeUInt32LE(chance.of([0, 1, 2, 0xffffffff, chance.below(8)]), 0);
  header.write(chance.of(['O', 'D', 'E', 'R', 'W', 'X', '\0']), 4, 'latin1');
  header.writeUInt16LE(chance.below(12) === 0 ? chance.below(65_536) : payload.length, 6);
  return Buffer.concat([header, payload]);
}

/** Two ends of one stream. */
function pair(): [Duplex, Duplex] {
  const ends: Duplex[] = [];
  for (const at of [0, 1])
    ends.push(
      new Duplex({
        allowHalfOpen: true,
        read: () => undefined,
        write: (chunk: Buffer, _, done) => {
          const other = ends[1 - at];
          if (other && !other.destroyed) other.push(chunk);
          done();
        },
        final: done => {
          const other = ends[1 - at];
          if (other && !other.destroyed) other.push(null);
          done();
        },
        destroy: (error, done) => {
          setImmediate(() => ends[1 - at]?.destroy());
          done(error);
        },
      }),
    );
  for (const end of ends) end.on('error', () => undefined);
  return ends as [Duplex, Duplex];
}
