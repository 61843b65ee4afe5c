import { mkdtemp, rm } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { RequestListener, Server as HttpServer } from 'node:http';
import { BlockList, connect, createServer, isIP } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { connect as tlsConnect, createServer as createTlsServer } from 'node:tls';
import type { TLSSocket } from 'node:tls';
import { afterEach, describe, expect, it } from 'vitest';
import type { EgressLimits, EgressPlan, EgressRule } from '../../contract/egress.ts';
import { decideAddress, decideHost, decideRequest } from '../decide.ts';
import { planOf } from '../plan.ts';
import { decideRepository } from '../repository.ts';
import { SandboxAuthority } from './certificates.ts';
import { SandboxProxy } from './sandbox-proxy.ts';
import type { Decisions, Listener, SandboxProxyOptions } from './sandbox-proxy.ts';

// Stand-ins for the decisions, as small as they can be: what is tested here is that the proxy keeps to them.
const PRIVATE = new BlockList();
for (const [net, prefix] of [
  ['127.0.0.0', 8],
  ['10.0.0.0', 8],
  ['169.254.0.0', 16],
] as const)
  PRIVATE.addSubnet(net, prefix);
const decisions: Decisions = {
  decideHost({ rules }, { host: text, port }) {
    const host = text.toLowerCase();
    if (!/^(?=.{1,253}$)([a-z0-9-]{1,63}\.)+[a-z][a-z0-9-]*$/.test(host)) return { allowed: false, reason: 'bad-host' };
    const found = rules.find(
      one => one.port === port && (one.host === host || (one.host[0] === '*' && host.endsWith(one.host.slice(1)))),
    );
    return found ? { allowed: true, rule: found, host } : { allowed: false, reason: 'not-listed' };
  },
  decideAddress: (of, address) =>
    of.private || !PRIVATE.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4')
      ? { allowed: true }
      : { allowed: false, reason: 'private-address', rule: of },
  decideRequest(of, { method, target }) {
    const found = (of.requests ?? [{ path: '/', methods: [method] }]).filter(({ path }) => target.startsWith(path));
    if (found.length === 0) return { allowed: false, reason: 'path', rule: of };
    return found.some(({ methods }) => methods.includes(method))
      ? { allowed: true }
      : { allowed: false, reason: 'method', rule: of };
  },
  decideRepository,
  refusalText: ({ host, port, reason, isLast }) =>
    `${host}:${port} refused: ${reason}.${isLast ? ' Stop retrying.' : ''}`,
};

const LIMITS: EgressLimits = { connections: 32, headerBytes: 16_384, connectMs: 4000, idleMs: 10_000 };

type Canary = { readonly port: number; readonly received: Buffer[]; connections: number };

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function rule(host: string, port: number, more: Partial<EgressRule> = {}): EgressRule {
  const setBy = { layer: 'user', where: 'test' } as const;
  return {
    id: `allow/${host}`,
    verdict: 'allow',
    host,
    port,
    protocol: 'tcp',
    mode: 'pass',
    private: true,
    setBy,
    ...more,
  };
}

async function listening(server: Server | HttpServer): Promise<number> {
  await new Promise<void>(resolve => {
    server.listen(0, '127.0.0.1', resolve);
  });
  cleanups.push(() => new Promise<void>(resolve => void server.close(() => resolve())));
  return (server.address() as AddressInfo).port;
}

async function canary(onConnection: (socket: Socket) => void = () => {}): Promise<Canary> {
  const seen: { port: number; received: Buffer[]; connections: number } = { port: 0, received: [], connections: 0 };
  const server = createServer({ allowHalfOpen: true }, socket => {
    seen.connections += 1;
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => seen.received.push(chunk));
    cleanups.push(() => void socket.destroy());
    onConnection(socket);
  });
  seen.port = await listening(server);
  return seen;
}

async function httpCanary(listener: RequestListener): Promise<number> {
  const server = createHttpServer(listener);
  cleanups.push(() => server.closeAllConnections());
  return listening(server);
}

interface Opened {
  readonly proxy: SandboxProxy;
  readonly plan: EgressPlan;
  connect(listener?: Listener): Promise<Socket>;
}

interface OpenOptions extends Partial<Omit<SandboxProxyOptions, 'plan'>> {
  readonly limits?: Partial<EgressLimits>;
}

async function open(rules: readonly EgressRule[], { limits, ...options }: OpenOptions = {}): Promise<Opened> {
  const plan = planOf(rules, { ...LIMITS, ...limits });
  const proxy = new SandboxProxy({ plan, decisions, resolve: async () => ['127.0.0.1'], ...options });
  const directory = await mkdtemp(join(tmpdir(), 'acode-egress-'));
  cleanups.push(() => rm(directory, { recursive: true }));
  const listeners: Listener[] = [];
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, socket =>
    proxy.accept(listeners.shift() ?? 'proxy', socket),
  );
  const path = join(directory, 's');
  await new Promise<void>(resolve => {
    server.listen(path, resolve);
  });
  cleanups.push(() => void server.close());
  cleanups.push(() => void proxy.close());
  return {
    proxy,
    plan,
    connect: (listener = 'proxy') =>
      new Promise((resolve, reject) => {
        listeners.push(listener);
        const socket = connect({ path, allowHalfOpen: true }, () => resolve(socket));
        socket.on('error', reject);
        cleanups.push(() => void socket.destroy());
      }),
  };
}

/** All that comes until the other side ends. */
function rest(stream: Duplex): Promise<string> {
  return new Promise(resolve => {
    let text = '';
    stream.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
    stream.on('end', () => resolve(text));
    stream.on('close', () => resolve(text));
    stream.on('error', () => resolve(text));
    stream.resume();
  });
}

/** What comes until it ends with a text. */
function until(stream: Duplex, ending: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    const onData = (chunk: Buffer): void => {
      text += chunk.toString('latin1');
      if (!text.endsWith(ending)) return;
      stream.off('data', onData).off('close', onClose);
      stream.pause();
      resolve(text);
    };
    const onClose = (): void => reject(new Error(`closed after ${JSON.stringify(text)}`));
    stream.on('data', onData).on('close', onClose);
    stream.resume();
  });
}

async function send(opened: Opened, text: string, listener: Listener = 'proxy'): Promise<string> {
  const socket = await opened.connect(listener);
  socket.write(text, 'latin1');
  return rest(socket);
}

async function tunnel(opened: Opened, authority: string): Promise<Socket> {
  const socket = await opened.connect();
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
  expect(await until(socket, '\r\n\r\n')).toMatch(/^HTTP\/1\.1 200 /);
  return socket;
}

function secure(socket: Duplex, servername: string): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const stream: TLSSocket = tlsConnect(
      {
        socket,
        servername,
        ciphers: 'PSK',
        maxVersion: 'TLSv1.2',
        minVersion: 'TLSv1.2',
        pskCallback: () => ({ psk: Buffer.from('key'), identity: 'x' }),
        checkServerIdentity: () => undefined,
      },
      () => resolve(stream),
    );
    stream.on('error', reject);
    stream.on('close', () => reject(new Error('closed')));
  });
}

/** A TLS server without a certificate, which tells the server name that it was asked for. */
async function tlsCanary(): Promise<number> {
  const server = createTlsServer(
    { ciphers: 'PSK', maxVersion: 'TLSv1.2', pskCallback: () => Buffer.from('key'), pskIdentityHint: '' },
    socket => {
      socket.on('error', () => {});
      socket.end(`hello ${'servername' in socket ? String(socket.servername) : ''}`);
    },
  );
  return listening(server);
}

const echo = (socket: Socket): void => void socket.pipe(socket);

describe('CONNECT', () => {
  it('leads to the allowed host, both ways, and lets each direction end by itself', async () => {
    const server = await canary(socket => {
      socket.on('end', () => socket.end('after your end'));
    });
    const opened = await open([rule('db.test', server.port)]);
    const socket = await tunnel(opened, `db.test:${server.port}`);
    socket.end('a question');
    expect(await rest(socket)).toBe('after your end');
    expect(Buffer.concat(server.received).toString()).toBe('a question');
    expect(opened.proxy.report()).toMatchObject([
      { host: 'db.test', verdict: 'allowed', rule: 'allow/db.test', count: 1, bytesOut: 10, bytesIn: 14 },
    ]);
  });

  it('answers what is not allowed with its reason, before any connection', async () => {
    const server = await canary();
    const opened = await open([rule('db.test', server.port)]);
    const answer = await send(opened, `CONNECT other.test:${server.port} HTTP/1.1\r\n\r\n`);
    expect(answer).toMatch(/^HTTP\/1\.1 403 /);
    expect(answer).toContain(`other.test:${server.port} refused: not-listed.`);
    expect(server.connections).toBe(0);
    expect(opened.proxy.report()).toMatchObject([{ host: 'other.test', verdict: 'denied', reason: 'not-listed' }]);
  });

  it('says stop at the third identical denial, then closes without an answer', async () => {
    const opened = await open([]);
    const answers: string[] = [];
    for (let at = 0; at < 5; at += 1) answers.push(await send(opened, 'CONNECT no.test:443 HTTP/1.1\r\n\r\n'));
    expect(answers.map(text => text.includes('Stop retrying'))).toEqual([false, false, true, false, false]);
    expect(answers.slice(3)).toEqual(['', '']);
    // Another host is explained again.
    expect(await send(opened, 'CONNECT no2.test:443 HTTP/1.1\r\n\r\n')).toContain('403');
    expect(opened.proxy.report()).toMatchObject([
      { host: 'no.test', count: 5 },
      { host: 'no2.test', count: 1 },
    ]);
  });

  it.each([
    '127.0.0.1:PORT',
    '127.1:PORT',
    '0x7f000001:PORT',
    '2130706433:PORT',
    'db.test.:PORT',
    'db.test',
    'db.test:0',
    'db.test:99999',
    'db.test:PORT/',
    'user@db.test:PORT',
    '[::1]:PORT',
    '[[::]]:PORT',
    '[fe80::1%25lo]:PORT',
    '::ffff:127.0.0.1:PORT',
    'db.test\0.evil:PORT',
    'db.test%00:PORT',
    'http://db.test:PORT',
    'evildb.test:PORT',
    'db.test.evil:PORT',
  ])('reaches nothing by %j', async authority => {
    const server = await canary();
    const opened = await open([rule('db.test', server.port)]);
    const answer = await send(opened, `CONNECT ${authority.replace('PORT', String(server.port))} HTTP/1.1\r\n\r\n`);
    expect(answer).toMatch(/^HTTP\/1\.1 4\d\d /);
    expect(server.connections).toBe(0);
    const control = await tunnel(opened, `db.test:${server.port}`);
    await expect.poll(() => server.connections).toBe(1);
    control.destroy();
  });

  it('refuses another Host than the one it is to connect to, two of them, and a body', async () => {
    const server = await canary();
    const opened = await open([rule('db.test', server.port)]);
    const line = `CONNECT db.test:${server.port} HTTP/1.1\r\n`;
    for (const headers of ['Host: evil.test', 'Host: db.test\r\nHost: db.test', 'Content-Length: 3', 'Host: a\r\n b'])
      expect(await send(opened, `${line}${headers}\r\n\r\n`), headers).toMatch(/^HTTP\/1\.1 4/);
    expect(server.connections).toBe(0);
  });

  it('passes on what the client sent together with its request', async () => {
    const server = await canary(echo);
    const opened = await open([rule('db.test', server.port)]);
    const socket = await opened.connect();
    socket.end(`CONNECT db.test:${server.port} HTTP/1.1\r\n\r\nearly`);
    expect(await rest(socket)).toMatch(/^HTTP\/1\.1 200 .*\r\n\r\nearly$/s);
  });
});

describe('addresses', () => {
  it('refuses a name that has a private address, also beside a public one', async () => {
    const server = await canary();
    const answers: Record<string, string[]> = { 'a.test': ['127.0.0.1'], 'b.test': ['192.0.2.1', '127.0.0.1'] };
    const rules = Object.keys(answers).map(host => rule(host, server.port, { private: false }));
    const opened = await open(rules, { resolve: async host => answers[host] ?? [] });
    for (const host of Object.keys(answers))
      expect(await send(opened, `CONNECT ${host}:${server.port} HTTP/1.1\r\n\r\n`)).toContain('private-address');
    expect(server.connections).toBe(0);
  });

  it('resolves a name once: the address that was checked is the one dialled', async () => {
    const server = await canary();
    let asked = 0;
    const opened = await open([rule('rebind.test', server.port)], {
      resolve: async () => [(asked += 1) === 1 ? '127.0.0.1' : '127.0.0.2'],
    });
    const socket = await tunnel(opened, `rebind.test:${server.port}`);
    await expect.poll(() => server.connections).toBe(1);
    expect(asked).toBe(1);
    socket.destroy();
  });

  it('tries the next checked address where the first does not answer', async () => {
    const server = await canary(echo);
    const opened = await open([rule('two.test', server.port)], { resolve: async () => ['127.0.0.9', '127.0.0.1'] });
    const socket = await tunnel(opened, `two.test:${server.port}`);
    socket.end('x');
    expect(await rest(socket)).toBe('x');
  });

  it('answers 502 for a name without an address and a server that does not answer', async () => {
    const opened = await open([rule('none.test', 1), rule('shut.test', 1)], {
      resolve: async host => (host === 'none.test' ? [] : ['127.0.0.1']),
    });
    expect(await send(opened, 'CONNECT none.test:1 HTTP/1.1\r\n\r\n')).toMatch(/502 [^]*unresolved/);
    expect(await send(opened, 'CONNECT shut.test:1 HTTP/1.1\r\n\r\n')).toMatch(/502 [^]*unreachable/);
  });

  it('ends a lookup that hangs at the time to connect', async () => {
    const opened = await open([rule('slow.test', 1)], {
      limits: { connectMs: 50 },
      resolve: () => new Promise(() => {}),
    });
    expect(await send(opened, 'CONNECT slow.test:1 HTTP/1.1\r\n\r\n')).toContain('unresolved');
  });
});

describe('TLS', () => {
  it('passes a connection whose server name is the one asked for', async () => {
    const port = await tlsCanary();
    const opened = await open([rule('web.test', port, { protocol: 'tls' })]);
    const stream = await secure(await tunnel(opened, `web.test:${port}`), 'web.test');
    expect(await rest(stream)).toBe('hello web.test');
  });

  it.each(['other.test', 'web.test.', 'a.web.test'])('refuses server name %s', async name => {
    const server = await canary();
    const opened = await open([rule('web.test', server.port, { protocol: 'tls' })]);
    const socket = await tunnel(opened, `web.test:${server.port}`);
    await expect(secure(socket, name)).rejects.toThrow(/unrecognized name|closed/);
    expect(server.received).toEqual([]);
    expect(opened.proxy.report()).toMatchObject([{ verdict: 'denied', reason: 'sni-differs' }]);
  });

  it('refuses what is not TLS, without a byte of it passed on', async () => {
    const server = await canary();
    const opened = await open([rule('web.test', server.port, { protocol: 'tls' })]);
    const socket = await tunnel(opened, `web.test:${server.port}`);
    socket.write('GET / HTTP/1.1\r\nHost: web.test\r\n\r\n');
    expect(await rest(socket)).toBe('');
    expect(server.received).toEqual([]);
    expect(opened.proxy.report()).toMatchObject([{ reason: 'not-tls' }]);
  });
});

describe('plain HTTP', () => {
  const seen: { url?: string | undefined; raw: readonly string[]; method?: string | undefined; body: string }[] = [];
  const record: RequestListener = (request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      seen.push({ url: request.url, raw: request.rawHeaders, method: request.method, body });
      response.setHeader('X-Answer', 'yes').end('the answer');
    });
  };
  afterEach(() => void seen.splice(0));

  it('writes a request anew: without what belongs to the connection, with the host decided upon', async () => {
    const port = await httpCanary(record);
    const opened = await open([rule('web.test', port, { protocol: 'http' })]);
    const answer = await send(
      opened,
      `POST http://Web.Test:${port}/a?b=c HTTP/1.1\r\nhOST: web.test:${port}\r\nX-One: 1\r\nX-Private: 2\r\n` +
        'Proxy-Authorization: Basic x\r\nConnection: close, X-Private\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n' +
        '3\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n',
    );
    expect(answer).toMatch(/^HTTP\/1\.1 200 OK\r\n[^]*X-Answer: yes[^]*the answer/);
    expect(seen).toHaveLength(1);
    expect(seen[0]).toMatchObject({ url: '/a?b=c', method: 'POST', body: 'abc' });
    const names = seen[0]?.raw.filter((_, at) => at % 2 === 0).map(name => name.toLowerCase());
    expect(names).toEqual(['host', 'x-one', 'transfer-encoding', 'connection']);
    expect(seen[0]?.raw[1]).toBe(`web.test:${port}`);
  });

  it('serves requests of one connection one after another, and to several hosts', async () => {
    const port = await httpCanary(record);
    const opened = await open(['a.test', 'b.test'].map(host => rule(host, port, { protocol: 'http' })));
    const request = (host: string, more: string): string =>
      `GET http://${host}:${port}/${host} HTTP/1.1\r\nHost: ${host}:${port}\r\n${more}\r\n`;
    const answer = await send(opened, request('a.test', '') + request('b.test', 'Connection: close\r\n'));
    expect(answer.match(/the answer/g)).toHaveLength(2);
    expect(seen.map(({ url }) => url)).toEqual(['/a.test', '/b.test']);
  });

  it.each([
    ['two lengths', 'POST', 'Content-Length: 3\r\nContent-Length: 3', 'abc'],
    ['length and chunks', 'POST', 'Content-Length: 3\r\nTransfer-Encoding: chunked', '0\r\n\r\n'],
    ['two codings', 'POST', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked', '0\r\n\r\n'],
    ['another coding', 'POST', 'Transfer-Encoding: xchunked', '0\r\n\r\n'],
    ['a list of codings', 'POST', 'Transfer-Encoding: identity, chunked', '0\r\n\r\n'],
    ['a signed length', 'POST', 'Content-Length: +3', 'abc'],
    ['a list of lengths', 'POST', 'Content-Length: 3, 3', 'abc'],
    ['a folded line', 'GET', 'X-A: b\r\n Content-Length: 3', ''],
    ['a folded line at the start', 'GET', ' X-A: b', ''],
    ['a space before the colon', 'GET', 'X-A : b', ''],
    ['a bare line feed', 'GET', 'X-A: b\nX-B: c', ''],
    ['a NUL', 'GET', 'X-A: b\0c', ''],
    ['two hosts', 'GET', 'Host: web.test:PORT', ''],
    ['another host', 'GET', 'HOST evil.test', ''],
    ['Connection that drops the host', 'GET', 'Connection: close, host', ''],
    [
      'an upgrade to HTTP/2',
      'GET',
      'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk',
      '',
    ],
    ['a WebSocket', 'GET', 'Connection: Upgrade\r\nUpgrade: websocket', ''],
  ])('refuses %s', async (_what, method, header, body) => {
    const port = await httpCanary(record);
    const opened = await open([rule('web.test', port, { protocol: 'http' })]);
    const hosts = header.startsWith('HOST ') ? `Host: ${header.slice(5)}` : `Host: web.test:${port}\r\n${header}`;
    const text = `${method} http://web.test:${port}/ HTTP/1.1\r\n${hosts.replace('PORT', String(port))}\r\n\r\n${body}`;
    const socket = await opened.connect();
    socket.end(text, 'latin1');
    expect(await rest(socket)).toMatch(/^HTTP\/1\.1 4\d\d /);
    expect(seen).toEqual([]);
  });

  it.each([
    ['/', 'origin form'],
    ['https://web.test:PORT/', 'https'],
    ['http://web.test:PORT@evil.test/', 'user information'],
    ['http://web.test:PORT\\@evil.test/', 'backslash'],
    ['http://evil.test:PORT/', 'another host'],
    ['http://web.test./', 'trailing dot'],
    ['//web.test:PORT/', 'no scheme'],
    ['*', 'asterisk'],
  ])('refuses target %s (%s)', async target => {
    const port = await httpCanary(record);
    const opened = await open([rule('web.test', port, { protocol: 'http' })]);
    const socket = await opened.connect();
    socket.end(`GET ${target.replace('PORT', String(port))} HTTP/1.1\r\nHost: web.test:${port}\r\n\r\n`);
    expect(await rest(socket)).toMatch(/^HTTP\/1\.1 4\d\d /);
    expect(seen).toEqual([]);
  });

  it('enforces methods and paths, and goes on after a refusal', async () => {
    const port = await httpCanary(record);
    const requests = [{ methods: ['GET'], path: '/pkg/' }];
    const opened = await open([rule('web.test', port, { protocol: 'http', requests })]);
    const head = (line: string, more = ''): string => `${line} HTTP/1.1\r\nHost: web.test:${port}\r\n${more}\r\n`;
    const base = `http://web.test:${port}`;
    const text =
      head(`PUT ${base}/pkg/a`, 'Content-Length: 5\r\n') +
      'abcde' +
      head(`GET ${base}/other`) +
      head(`GET ${base}/pkg/a`, 'Connection: close\r\n');
    const answer = await send(opened, text);
    expect(answer.match(/HTTP\/1\.1 (\d+)/g)).toEqual(['HTTP/1.1 403', 'HTTP/1.1 403', 'HTTP/1.1 200']);
    expect(seen.map(({ method, url }) => `${method} ${url}`)).toEqual(['GET /pkg/a']);
    expect(opened.proxy.report().map(({ verdict, reason }) => [verdict, reason])).toEqual([
      ['denied', 'method'],
      ['denied', 'path'],
      ['allowed', undefined],
    ]);
  });

  it('serves plain HTTP in a tunnel and at a name, with that Host only', async () => {
    const port = await httpCanary(record);
    const opened = await open([rule('web.test', port, { protocol: 'http' })]);
    const good = `GET /x HTTP/1.1\r\nHost: web.test:${port}\r\nConnection: close\r\n\r\n`;
    const bad = good.replace('Host: web', 'Host: evil');
    const inTunnel = async (text: string): Promise<string> => {
      const socket = await tunnel(opened, `web.test:${port}`);
      socket.write(text);
      return rest(socket);
    };
    const atName = (text: string): Promise<string> => send(opened, text, { address: '127.8.0.1', port });
    for (const ask of [inTunnel, atName]) {
      expect(await ask(good)).toContain('the answer');
      const socket = ask(bad.replace('Connection: close', 'Connection: close'));
      expect(await socket).toMatch(/^HTTP\/1\.1 421 /);
    }
    expect(seen.map(({ url }) => url)).toEqual(['/x', '/x']);
    const nested = `CONNECT web.test:${port} HTTP/1.1\r\nHost: web.test:${port}\r\n\r\n`;
    expect(await inTunnel(nested)).toMatch(/^HTTP\/1\.1 403 /);
  });

  it('cuts the answer where the server’s is cut', async () => {
    const server = await canary(socket => {
      socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart'));
    });
    const opened = await open([rule('web.test', server.port, { protocol: 'http' })]);
    const text = `GET http://web.test:${server.port}/ HTTP/1.1\r\nHost: web.test:${server.port}\r\n\r\n`;
    expect(await send(opened, text)).toMatch(/Content-Length: 100[^]*part$/);
  });

  it('does not use a connection upstream of another sandbox', async () => {
    const ports: (number | undefined)[] = [];
    const port = await httpCanary((request, response) => {
      ports.push(request.socket.remotePort);
      response.end();
    });
    const rules = [rule('web.test', port, { protocol: 'http' })];
    const text = `GET http://web.test:${port}/ HTTP/1.1\r\nHost: web.test:${port}\r\nConnection: close\r\n\r\n`;
    const [one, other] = [await open(rules), await open(rules)];
    await send(one, text);
    await send(one, text);
    await send(other, text);
    expect(ports[0]).toBe(ports[1]);
    expect(ports[2]).not.toBe(ports[0]);
  });
});

describe('SOCKS', () => {
  const greeting = Buffer.from([5, 1, 0]);
  const request = (name: string, port: number): Buffer =>
    Buffer.concat([
      Buffer.from([5, 1, 0, 3, name.length]),
      Buffer.from(name, 'latin1'),
      Buffer.from([port >> 8, port & 255]),
    ]);
  const ask = async (opened: Opened, bytes: Buffer): Promise<Buffer> => {
    const socket = await opened.connect('socks');
    socket.end(Buffer.concat([greeting, bytes]));
    return Buffer.from(await rest(socket), 'latin1');
  };

  it('leads to a name, with what was sent early', async () => {
    const server = await canary(echo);
    const opened = await open([rule('db.test', server.port)]);
    const answer = await ask(opened, Buffer.concat([request('db.test', server.port), Buffer.from('early')]));
    expect([...answer.subarray(0, 4)]).toEqual([5, 0, 5, 0]);
    expect(answer.subarray(12).toString()).toBe('early');
  });

  it('reads a request in single bytes', async () => {
    const server = await canary(echo);
    const opened = await open([rule('db.test', server.port)]);
    const socket = await opened.connect('socks');
    for (const byte of Buffer.concat([greeting, request('db.test', server.port)])) {
      socket.write(Buffer.from([byte]));
      await pause(1);
    }
    socket.end();
    expect([...Buffer.from(await rest(socket), 'latin1').subarray(0, 4)]).toEqual([5, 0, 5, 0]);
  });

  it('refuses addresses, other commands and names with NUL', async () => {
    const server = await canary();
    const opened = await open([rule('db.test', server.port)]);
    const port = [server.port >> 8, server.port & 255];
    const cases: [Buffer, number][] = [
      [Buffer.from([5, 1, 0, 1, 127, 0, 0, 1, ...port]), 8],
      [Buffer.from([5, 1, 0, 4, ...Array<number>(15).fill(0), 1, ...port]), 8],
      [Buffer.from([5, 2, 0, 3, 7, ...Buffer.from('db.test'), ...port]), 7],
      [request('db.test\0.evil', server.port), 2],
      [request('127.0.0.1', server.port), 2],
      [request('other.test', server.port), 2],
    ];
    for (const [bytes, code] of cases) expect((await ask(opened, bytes))[3], bytes.toString('latin1')).toBe(code);
    expect(server.connections).toBe(0);
  });
});

describe('names', () => {
  it('lead to the host that an address stands for, and no other', async () => {
    const server = await canary(echo);
    const opened = await open([rule('db.test', server.port), rule('*.wild.test', server.port)]);
    const port = server.port;
    const ask = async (listener: Listener): Promise<string> => {
      const socket = await opened.connect(listener);
      socket.end('x');
      return rest(socket);
    };
    expect(await ask({ address: '127.8.0.1', port })).toBe('x');
    expect(await ask({ address: '127.8.9.9', port, host: 'a.wild.test' })).toBe('x');
    expect(await ask({ address: '127.8.0.2', port })).toBe('');
    expect(await ask({ address: '127.8.0.1', port: port + 1 })).toBe('');
    expect(await ask({ address: '127.8.9.9', port, host: 'evil.test' })).toBe('');
    expect(server.connections).toBe(2);
  });
});

describe('limits', () => {
  it('closes a connection beyond the limit before it reads from it, and takes others when one ended', async () => {
    const server = await canary(echo);
    const opened = await open([rule('db.test', server.port)], { limits: { connections: 2 } });
    const held = [await opened.connect(), await opened.connect()];
    await expect.poll(() => opened.proxy.report().length).toBe(0);
    expect(await rest(await opened.connect())).toBe('');
    expect(opened.proxy.report()).toMatchObject([{ verdict: 'denied', reason: 'limit', count: 1 }]);
    held[0]?.destroy();
    await pause(50);
    (await tunnel(opened, `db.test:${server.port}`)).destroy();
  });

  it('closes everything once the bytes are used up', async () => {
    const server = await canary(echo);
    const opened = await open([rule('db.test', server.port)], { limits: { bytes: 1000 } });
    const socket = await tunnel(opened, `db.test:${server.port}`);
    socket.write(Buffer.alloc(900));
    await rest(socket);
    expect(await send(opened, `CONNECT db.test:${server.port} HTTP/1.1\r\n\r\n`)).toBe('');
  });

  it('closes idle clients: one that says nothing, one in the middle of a head, one that opened a tunnel', async () => {
    const server = await canary();
    const opened = await open([rule('db.test', server.port)], { limits: { connectMs: 2000, idleMs: 2000 } });
    const silent = await opened.connect();
    const slow = await opened.connect();
    slow.write('CONNECT db.te');
    const idle = await tunnel(opened, `db.test:${server.port}`);
    await Promise.all([rest(silent), rest(slow), rest(idle)]);
    expect(server.received).toEqual([]);
  });

  it('lets a client whose request is refused send its body first, which else would lose the answer', async () => {
    const opened = await open([rule('web.test', 80, { protocol: 'http' })]);
    const socket = await opened.connect();
    let [text, isOver] = ['', false];
    socket.on('data', bytes => (text += String(bytes))).once('end', () => (isOver = true));
    socket.write(
      'POST http://other.test/ HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\nContent-Length: 4\r\n\r\n',
    );
    await expect.poll(() => text).toContain('HTTP/1.1 403');
    await pause(50);
    expect(isOver).toBe(false);
    socket.write('body');
    await expect.poll(() => isOver).toBe(true);
    expect(text).toContain('other.test');
  });

  it('refuses a head that is too long', async () => {
    const opened = await open([rule('web.test', 80, { protocol: 'http' })], { limits: { headerBytes: 2048 } });
    const text = `GET http://web.test/ HTTP/1.1\r\nHost: web.test\r\nX-A: ${'a'.repeat(4000)}\r\n\r\n`;
    expect(await send(opened, text)).toMatch(/^HTTP\/1\.1 4/);
  });

  it('holds back a server that sends more than the client reads', async () => {
    let sent = 0;
    const server = await canary(socket => {
      const chunk = Buffer.alloc(65_536);
      const write = (): void => {
        while (!socket.destroyed && socket.write(chunk)) sent += chunk.length;
        socket.once('drain', write);
      };
      socket.once('data', write);
    });
    const opened = await open([rule('db.test', server.port)]);
    const socket = await tunnel(opened, `db.test:${server.port}`);
    socket.write('go');
    await expect.poll(() => sent).toBeGreaterThan(0);
    await pause(300);
    const before = sent;
    await pause(300);
    expect(sent).toBe(before);
    expect(before).toBeLessThan(64 * 1024 * 1024);
    socket.destroy();
  });
});

describe('a new plan', () => {
  it('closes the connections that it does not allow, and keeps the others', async () => {
    const server = await canary(echo);
    const [kept, dropped] = [rule('kept.test', server.port), rule('dropped.test', server.port)];
    const opened = await open([kept, dropped]);
    const sockets = [
      await tunnel(opened, `kept.test:${server.port}`),
      await tunnel(opened, `dropped.test:${server.port}`),
    ] as const;
    const ended = rest(sockets[1]);
    opened.proxy.update(planOf([kept], LIMITS, 2));
    expect(await ended).toBe('');
    sockets[0].end('still');
    expect(await rest(sockets[0])).toBe('still');
    expect(await send(opened, `CONNECT dropped.test:${server.port} HTTP/1.1\r\n\r\n`)).toMatch(/403/);
  });

  it('refuses the next request of a connection that is kept alive', async () => {
    const port = await httpCanary((_request, response) => void response.end('ok!'));
    const opened = await open([rule('web.test', port, { protocol: 'http' })]);
    const socket = await opened.connect();
    const text = `GET http://web.test:${port}/ HTTP/1.1\r\nHost: web.test:${port}\r\n\r\n`;
    socket.write(text);
    await until(socket, 'ok!');
    opened.proxy.update(planOf([], LIMITS, 2));
    socket.end(text);
    expect(await rest(socket)).not.toContain('200');
  });
});

// The certificates of the test’s own servers.
const upstream = new SandboxAuthority(['test']);
const real = { ...decisions, decideHost, decideAddress, decideRequest };

async function httpsCanary(listener: RequestListener, authority = upstream): Promise<number> {
  const server = createHttpsServer({ SNICallback: (name, done) => done(null, authority.context(name)) }, listener);
  cleanups.push(() => server.closeAllConnections());
  return listening(server);
}

/** TLS through the proxy, as a client inside that trusts the sandbox’s own authority. */
async function inspected(opened: Opened, authority: string, more: object = {}): Promise<TLSSocket> {
  const socket = await tunnel(opened, authority);
  const ca = opened.proxy.certificate ?? '';
  const [servername = ''] = authority.split(':');
  return new Promise((resolve, reject) => {
    const stream = tlsConnect({ socket, servername, ca, ALPNProtocols: ['http/1.1'], ...more }, () => resolve(stream));
    stream.on('error', reject);
    cleanups.push(() => void stream.destroy());
  });
}

describe('inspection', () => {
  const requests = [{ methods: ['GET', 'HEAD'], path: '/' }];
  const inspect = (port: number, more: Partial<EgressRule> = {}): EgressRule =>
    rule('api.test', port, { protocol: 'tls', mode: 'inspect', requests, ...more });
  const seen: string[] = [];
  const record: RequestListener = (request, response) => {
    seen.push(`${request.method} ${request.url} ${request.headers.host}`);
    request.resume();
    response.end('the answer');
  };
  afterEach(() => void seen.splice(0));

  async function ask(opened: Opened, port: number, text: string): Promise<string> {
    const stream = await inspected(opened, `api.test:${port}`);
    stream.end(text.replaceAll('HOST', `api.test:${port}`));
    return rest(stream);
  }

  it('ends TLS with a certificate of the sandbox’s own, and enforces methods and paths', async () => {
    const port = await httpsCanary(record);
    const opened = await open([inspect(port)], { decisions: real, extraRoots: upstream.pem });
    expect(await ask(opened, port, 'GET /a HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n')).toContain(
      'the answer',
    );
    const put = 'PUT /pkg HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc';
    expect(await ask(opened, port, put)).toMatch(/^HTTP\/1\.1 403 [^]*method/);
    for (const path of ['/a/../b', '//a', '/a%2e%2e', '/%00'])
      expect(await ask(opened, port, `GET ${path} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n`), path).toMatch(
        /^HTTP\/1\.1 403 |^$/,
      );
    expect(seen).toEqual([`GET /a api.test:${port}`]);
    expect(opened.proxy.report()[0]).toMatchObject({ host: 'api.test', verdict: 'allowed', count: 1 });
  });

  it('encrypts what a client asks for as https without a tunnel, under the same rules', async () => {
    const port = await httpsCanary(record);
    const rules = [inspect(port), rule('plain.test', port, { protocol: 'http' }), rule('raw.test', port)];
    const opened = await open(rules, { decisions: real, extraRoots: upstream.pem });
    const absolute = (method: string, host: string): Promise<string> =>
      send(
        opened,
        `${method} https://${host}:${port}/a HTTP/1.1\r\nHost: ${host}:${port}\r\nConnection: close\r\n\r\n`,
      );
    expect(await absolute('GET', 'api.test')).toContain('the answer');
    expect(await absolute('DELETE', 'api.test')).toMatch(/^HTTP\/1\.1 403 [^]*method/);
    expect(await absolute('GET', 'plain.test')).toMatch(/^HTTP\/1\.1 403 [^]*not-http/);
    expect(await absolute('GET', 'raw.test')).toMatch(/^HTTP\/1\.1 403 /);
    expect(await absolute('GET', 'evil.test')).toMatch(/^HTTP\/1\.1 403 [^]*evil\.test/);
    expect(seen).toEqual([`GET /a api.test:${port}`]);
  });

  it('refuses another Host, a tunnel, HTTP/2 and a WebSocket inside', async () => {
    const port = await httpsCanary(record);
    const opened = await open([inspect(port)], { decisions: real, extraRoots: upstream.pem });
    const refusals = [
      'GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n',
      'CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n',
      'GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n',
      'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
      'GET / HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
      'GET / HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n',
      'TRACE / HTTP/1.1\r\nHost: HOST\r\n\r\n',
    ];
    for (const text of refusals) expect(await ask(opened, port, text), text).toMatch(/^HTTP\/1\.1 4\d\d |^$/);
    expect(seen).toEqual([]);
  });

  it('lets a WebSocket through where the rule does', async () => {
    const server = createHttpsServer({ SNICallback: (name, done) => done(null, upstream.context(name)) });
    server.on('upgrade', (request, socket: Duplex) => {
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Path: ${request.url}\r\n\r\n`,
      );
      socket.on('error', () => {}).pipe(socket);
    });
    const port = await listening(server);
    const opened = await open([inspect(port, { websocket: true })], { decisions: real, extraRoots: upstream.pem });
    const stream = await inspected(opened, `api.test:${port}`);
    stream.write(`GET /ws HTTP/1.1\r\nHost: api.test:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`);
    expect(await until(stream, '\r\n\r\n')).toMatch(/^HTTP\/1\.1 101 [^]*X-Path: \/ws/);
    stream.write('ping');
    expect(await until(stream, 'ping')).toBe('ping');
    stream.destroy();
  });

  it('refuses a server whose certificate nobody signed that is trusted, or that is another’s', async () => {
    const stranger = await httpsCanary(record, new SandboxAuthority(['test']));
    const opened = await open([inspect(stranger)], { decisions: real, extraRoots: upstream.pem });
    const get = 'GET / HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n';
    expect(await ask(opened, stranger, get)).toMatch(/^HTTP\/1\.1 502 [^]*untrusted-server/);
    const server = createHttpsServer(
      { SNICallback: (_name, done) => done(null, upstream.context('other.test')) },
      record,
    );
    const other = await listening(server);
    const again = await open([inspect(other)], { decisions: real, extraRoots: upstream.pem });
    expect(await ask(again, other, get)).toMatch(/^HTTP\/1\.1 502 [^]*untrusted-server/);
    expect(seen).toEqual([]);
  });

  it('makes an authority that is trusted for the inspected names only', async () => {
    const port = await httpsCanary(record);
    const opened = await open([inspect(port)], { decisions: real, extraRoots: upstream.pem });
    await expect(inspected(opened, `api.test:${port}`, { ca: upstream.pem })).rejects.toThrow(/self-signed|unable to/);
    // Inside, whoever had the key of the authority could be no other host than those it is for.
    const authority = new SandboxAuthority(['api.test']);
    const elsewhere = await httpsCanary(record, authority);
    const reach = (servername: string): Promise<string> =>
      new Promise((resolve, reject) => {
        const stream = tlsConnect({ port: elsewhere, host: '127.0.0.1', servername, ca: authority.pem }, () => {
          stream.destroy();
          resolve('trusted');
        });
        stream.on('error', reject);
      });
    expect(await reach('api.test')).toBe('trusted');
    await expect(reach('evil.test')).rejects.toThrow(/permitted subtree violation/);
  });

  it('offers HTTP/1.1 alone, and refuses another server name before a certificate is shown', async () => {
    const port = await httpsCanary(record);
    const opened = await open([inspect(port)], { decisions: real, extraRoots: upstream.pem });
    const stream = await inspected(opened, `api.test:${port}`, { ALPNProtocols: ['h2', 'http/1.1'] });
    expect(stream.alpnProtocol).toBe('http/1.1');
    await expect(inspected(opened, `api.test:${port}`, { servername: 'evil.test' })).rejects.toThrow(/unrecognized/);
  });

  it('has no certificate where no rule inspects', async () => {
    expect((await open([rule('api.test', 443, { protocol: 'tls' })])).proxy.certificate).toBeNull();
  });
});
