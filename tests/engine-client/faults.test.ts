// Shows that every call settles with the right kind of error, whatever is at the other end of the socket.
import { spawnSync } from 'node:child_process';
import { getEventListeners } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import * as z from 'zod';
import { EngineConnection, path } from '../../packages/sandbox/src/isolation/docker/engine/connection.ts';
import { EngineError } from '../../packages/sandbox/src/isolation/docker/engine/protocol.ts';
import { Engine } from '../../packages/sandbox/src/isolation/docker/engine/index.ts';
import { until } from '../support/waiting.ts';
import { type Answer, FaultyEngine, pingReply } from './faulty-engine.ts';

const signal = AbortSignal.timeout(600_000);
const call = { method: 'GET', path: path`/x`, deadlineMs: 30_000, signal } as const;

async function directory(): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), 'faults-'));
  onTestFinished(() => rm(made, { recursive: true, force: true }));
  return made;
}

/** What the promise rejected with. */
async function failure(promise: Promise<unknown>): Promise<{ error: EngineError }> {
  const error: unknown = await promise.then(
    () => 'it succeeded',
    (reason: unknown) => reason,
  );
  if (!(error instanceof EngineError)) throw new Error(`not an EngineError: ${String(error)}`);
  return { error };
}

async function connectTo(answer: Answer): Promise<{ connection: EngineConnection; engine: FaultyEngine }> {
  const engine = await FaultyEngine.afterPing(answer);
  onTestFinished(() => engine[Symbol.asyncDispose]());
  const connection = await EngineConnection.open({ socketPath: engine.socket, signal });
  onTestFinished(() => connection.close());
  return { connection, engine };
}

describe('opening a connection', () => {
  it.each([
    ['1.41', '1.41'],
    ['1.51', '1.51'],
    ['1.52', '1.51'],
  ])('uses %s as %s', async (offered, used) => {
    await using engine = await FaultyEngine.start(socket => socket.end(pingReply(offered)));
    using connection = await EngineConnection.open({ socketPath: engine.socket, signal });
    expect(connection.apiVersion).toBe(used);
    expect(connection.supports('1.44')).toBe(used !== '1.41');
  });

  it('refuses an engine that only knows 1.40', async () => {
    await using engine = await FaultyEngine.start(socket => socket.end(pingReply('1.40')));
    const { error } = await failure(EngineConnection.open({ socketPath: engine.socket, signal }));
    expect(error).toMatchObject({ kind: 'protocol', operation: 'GET /_ping' });
    expect(error.message).toContain('1.40');
  });

  it.each([
    ['an HTTP server that is no engine', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK', 'protocol'],
    ['no HTTP server', 'SSH-2.0-OpenSSH_9.2\r\n', 'protocol'],
    ['an engine that is starting', 'HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n', 'status'],
    ['a listener that hangs up', '', 'disconnected'],
  ])('refuses %s', async (_, reply, kind) => {
    await using engine = await FaultyEngine.start(socket => socket.end(reply));
    const { error } = await failure(EngineConnection.open({ socketPath: engine.socket, signal }));
    expect(error.kind).toBe(kind);
  });

  it('gives up on a hung socket at its deadline and closes it', async () => {
    await using engine = await FaultyEngine.start(() => undefined);
    const { error } = await failure(EngineConnection.open({ socketPath: engine.socket, signal, deadlineMs: 200 }));
    expect(error.kind).toBe('timeout');
    await until(() => engine.openConnections === 0);
  });

  it('gives up on an answer that trickles in for ever', async () => {
    await using engine = await FaultyEngine.start(socket => {
      socket.write('HTTP/1.1 200 OK\r\nApi-Version: 1.44\r\nContent-Length: 1000\r\n\r\n');
      const timer = setInterval(() => socket.write('x'), 20);
      socket.once('close', () => clearInterval(timer));
    });
    const { error } = await failure(EngineConnection.open({ socketPath: engine.socket, signal, deadlineMs: 200 }));
    expect(error.kind).toBe('timeout');
  });

  it('says that nothing is there', async () => {
    const { error } = await failure(EngineConnection.open({ socketPath: join(await directory(), 'none'), signal }));
    expect(error).toMatchObject({ kind: 'unreachable', cause: { code: 'ENOENT' } });
  });

  it('says that nobody listens', async () => {
    const socketPath = join(await directory(), 'dead.sock');
    // A listener that is killed leaves its socket file; closing it properly would remove the file.
    spawnSync(process.execPath, [
      '-e',
      `require('net').createServer().listen(${JSON.stringify(socketPath)}, () => process.kill(process.pid, 'SIGKILL'))`,
    ]);
    const { error } = await failure(EngineConnection.open({ socketPath, signal }));
    expect(error).toMatchObject({ kind: 'unreachable', cause: { code: 'ECONNREFUSED' } });
  });

  it('says that a file is not a socket', async () => {
    const socketPath = join(await directory(), 'file');
    await writeFile(socketPath, '');
    const { error } = await failure(EngineConnection.open({ socketPath, signal }));
    expect(error.kind).toBe('unreachable');
  });

  it.skipIf(process.getuid?.() === 0)('says that the socket is not for us', async () => {
    const socketPath = join(await directory(), 'closed.sock');
    const server = createServer();
    onTestFinished(() => void server.close());
    await new Promise<void>(resolve => server.listen(socketPath, resolve));
    await chmod(socketPath, 0o000);
    const { error } = await failure(EngineConnection.open({ socketPath, signal }));
    expect(error).toMatchObject({ kind: 'refused', cause: { code: 'EACCES' } });
  });

  it('refuses a path that the system would cut to the name of another socket', async () => {
    const { error } = await failure(EngineConnection.open({ socketPath: `/tmp/${'x'.repeat(120)}`, signal }));
    expect(error.kind).toBe('unreachable');
  });

  it('is not begun with a signal that has already fired', async () => {
    await using engine = await FaultyEngine.start(() => expect.fail('it was asked'));
    const reason = new Error('enough');
    const aborted = AbortSignal.abort(reason);
    const { error } = await failure(EngineConnection.open({ socketPath: engine.socket, signal: aborted }));
    expect(error).toMatchObject({ kind: 'aborted', cause: reason });
  });
});

describe('a call', () => {
  const respond = (status: string, body: string) => (socket: { end(text: string): unknown }) =>
    void socket.end(`HTTP/1.1 ${status}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);

  it.each([
    ['{"message":"no such thing"}', 'no such thing'],
    ['page not found\n', 'page not found\n'],
    ['{"error":1}', '{"error":1}'],
    ['', ''],
  ])("carries the engine's words: %j", async (body, engineMessage) => {
    const { connection } = await connectTo(respond('404 Not Found', body));
    const { error } = await failure(connection.json(call, z.unknown()));
    expect(error).toMatchObject({ kind: 'status', status: 404, operation: 'GET /x', engineMessage });
  });

  it('bounds what it keeps of them', async () => {
    const { connection } = await connectTo(respond('500 Oh', JSON.stringify({ message: 'm'.repeat(60_000) })));
    expect((await failure(connection.empty(call))).error.engineMessage).toHaveLength(4096);
    const { connection: flood } = await connectTo(respond('500 Oh', 'm'.repeat(1_000_000)));
    expect((await failure(flood.empty(call))).error).toMatchObject({ kind: 'status', status: 500, engineMessage: '' });
  });

  it('does not follow a redirect', async () => {
    const { connection } = await connectTo(
      socket => void socket.end('HTTP/1.1 301 M\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n'),
    );
    expect((await failure(connection.empty(call))).error).toMatchObject({ kind: 'status', status: 301 });
  });

  it('takes only the statuses it was told', async () => {
    const { connection } = await connectTo(respond('200 OK', '1'));
    await expect(connection.json({ ...call, expect: [200] }, z.number())).resolves.toBe(1);
    expect((await failure(connection.json({ ...call, expect: [201] }, z.number()))).error.status).toBe(200);
  });

  it.each([
    ['no JSON', 'hello'],
    ['JSON of another shape', '{"Id":7}'],
  ])('rejects %s as a breach of the protocol', async (_, body) => {
    const { connection } = await connectTo(respond('200 OK', body));
    const { error } = await failure(connection.json(call, z.looseObject({ Id: z.string() })));
    expect(error.kind).toBe('protocol');
  });

  it('stops reading an answer beyond 16 MiB', async () => {
    const { connection, engine } = await connectTo(socket => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      const chunk = Buffer.alloc(1024 * 1024, '[');
      const pour = () => {
        while (!socket.destroyed && socket.write(chunk));
        if (!socket.destroyed) socket.once('drain', pour);
      };
      pour();
    });
    const { error } = await failure(connection.json(call, z.unknown()));
    expect(error.kind).toBe('protocol');
    expect(error.message).toContain('16777216');
    await until(() => engine.openConnections === 0);
  });

  it.each([
    ['before the answer', ''],
    ['inside the headers', 'HTTP/1.1 200 OK\r\nConte'],
    ['inside a body of known length', 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"a"'],
    ['inside a chunked body', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n'],
    ['inside an error', 'HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\n{"a"'],
  ])('settles when the connection drops %s', async (_, reply) => {
    const { connection } = await connectTo(socket => void socket.write(reply, () => socket.destroy()));
    const { error } = await failure(connection.json(call, z.unknown()));
    // Once the engine has said 404, that is the news; the lost text is not.
    expect(error.kind).toBe(reply.includes('404') ? 'status' : 'disconnected');
  });

  it.each([
    '',
    'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"a"',
    'HTTP/1.1 404 N\r\nContent-Length: 10\r\n\r\n{"a"',
  ])(
    'ends at its deadline, at an abort and at close, and closes its socket each time (answer so far: %j)',
    async reply => {
      const { connection, engine } = await connectTo(socket => void socket.write(reply || '\r\n'));
      expect((await failure(connection.json({ ...call, deadlineMs: 50 }, z.unknown()))).error.kind).toBe('timeout');
      const controller = new AbortController();
      const aborted = failure(connection.json({ ...call, signal: controller.signal }, z.unknown()));
      await sleep(50);
      controller.abort(new Error('enough'));
      expect((await aborted).error).toMatchObject({ kind: 'aborted', cause: { message: 'enough' } });
      const closed = failure(connection.json(call, z.unknown()));
      await sleep(50);
      connection.close();
      expect((await closed).error.kind).toBe('aborted');
      expect((await failure(connection.json(call, z.unknown()))).error.kind).toBe('aborted');
      await until(() => engine.openConnections === 0);
    },
  );

  it('leaves nothing on a signal that outlives it', async () => {
    const { connection } = await connectTo(respond('200 OK', '1'));
    const warnings: Error[] = [];
    const warned = (warning: Error) => void warnings.push(warning);
    process.on('warning', warned);
    onTestFinished(() => void process.off('warning', warned));
    const controller = new AbortController();
    const many = Array.from({ length: 40 }, () => connection.json({ ...call, signal: controller.signal }, z.number()));
    await Promise.all(many);
    await sleep(0);
    expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0);
    expect(warnings).toEqual([]);
  });

  it('takes a deadline of any length', async () => {
    const { connection } = await connectTo(socket => void setTimeout(() => respond('200 OK', '1')(socket), 50));
    await expect(connection.json({ ...call, deadlineMs: Infinity }, z.number())).resolves.toBe(1);
    await expect(connection.json({ ...call, deadlineMs: 2 ** 40 }, z.number())).resolves.toBe(1);
  });

  it('sends JSON with its length', async () => {
    const heads: string[] = [];
    const { connection } = await connectTo((socket, head) => {
      heads.push(head.toLowerCase());
      respond('200 OK', '1')(socket);
    });
    await connection.json({ ...call, method: 'POST', body: { name: 'ü' }, query: { q: 'a b' } }, z.number());
    expect(heads[0]).toContain('post /v1.44/x?q=a+b http/1.1');
    expect(heads[0]).toContain('content-type: application/json');
    expect(heads[0]).toContain('content-length: 13');
    expect(heads[0]).not.toContain('chunked');
  });
});

describe('an upload', () => {
  it('that is refused first is not sent, and its source is closed', async () => {
    const { connection } = await connectTo(
      socket => void socket.end('HTTP/1.1 403 F\r\nContent-Length: 24\r\n\r\n{"message":"read-only  "}'),
    );
    let pulled = 0;
    const body = new Readable({
      read() {
        pulled++;
        this.push(Buffer.alloc(64 * 1024));
      },
    });
    const { error } = await failure(connection.empty({ ...call, method: 'PUT', body }));
    expect(error).toMatchObject({ kind: 'status', status: 403 });
    await until(() => body.destroyed);
    expect(pulled).toBeLessThanOrEqual(1);
  });

  it('whose source fails is given up with that cause', async () => {
    const { connection, engine } = await connectTo(socket => void socket.write('HTTP/1.1 100 Continue\r\n\r\n'));
    const cause = new Error('disk gone');
    const body = Readable.from(
      (async function* () {
        yield Buffer.from('some');
        await sleep(20);
        throw cause;
      })(),
    );
    expect((await failure(connection.empty({ ...call, method: 'PUT', body }))).error).toMatchObject({
      kind: 'aborted',
      cause,
    });
    await until(() => engine.openConnections === 0);
  });

  it('that is aborted closes socket and source', async () => {
    const { connection, engine } = await connectTo(socket => void socket.write('HTTP/1.1 100 Continue\r\n\r\n'));
    const controller = new AbortController();
    const body = new Readable({ read: () => undefined });
    const upload = failure(connection.empty({ ...call, method: 'PUT', body, signal: controller.signal }));
    await sleep(30);
    controller.abort();
    expect((await upload).error.kind).toBe('aborted');
    await until(() => body.destroyed);
    await until(() => engine.openConnections === 0);
    const unused = new Readable({ read: () => undefined });
    await failure(connection.empty({ ...call, method: 'PUT', body: unused, signal: controller.signal }));
    expect(unused.destroyed).toBe(true);
  });
});

describe('a stream', () => {
  const open = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n1\n\r\n';

  async function drain(body: AsyncIterable<Buffer>): Promise<string> {
    let text = '';
    for await (const chunk of body) text += chunk.toString();
    return text;
  }

  it('outlives the deadline of its headers', async () => {
    const { connection } = await connectTo(socket => {
      socket.write(open);
      setTimeout(() => socket.end('2\r\n2\n\r\n0\r\n\r\n'), 2200);
    });
    const { body } = await connection.stream({ ...call, deadlineMs: 2000 });
    await expect(drain(body)).resolves.toBe('1\n2\n');
  });

  it('ends when the engine is silent for too long, and not when the reader is slow', async () => {
    const { connection } = await connectTo(socket => void socket.write(open));
    const { body } = await connection.stream({ ...call, idleMs: 60 });
    expect((await failure(drain(body))).error.kind).toBe('timeout');

    const { connection: fast } = await connectTo(socket => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      socket.end(Buffer.alloc(1024 * 1024));
    });
    const { body: slow } = await fast.stream({ ...call, idleMs: 1000 });
    await sleep(1300);
    expect((await drain(slow)).length).toBe(1024 * 1024);
  });

  it('ends with a drop, an abort and a close for its reader', async () => {
    const { connection, engine } = await connectTo(socket => void socket.write(open));
    const controller = new AbortController();
    const streams = [
      await connection.stream({ ...call, signal: controller.signal }),
      await connection.stream(call),
      await connection.stream(call),
    ];
    const ends = streams.map(({ body }) => failure(drain(body)));
    controller.abort();
    streams[1]?.body.destroy();
    expect((await ends[0])?.error.kind).toBe('aborted');
    expect((await ends[1])?.error.kind).toBe('aborted');
    connection.close();
    expect((await ends[2])?.error.kind).toBe('aborted');
    await until(() => engine.openConnections === 0);

    const { connection: dropping } = await connectTo(
      socket => void socket.write(open, () => setTimeout(() => socket.destroy(), 20)),
    );
    expect((await failure(drain((await dropping.stream(call)).body))).error.kind).toBe('disconnected');
  });

  it('may be left by its reader, and by nobody having read it', async () => {
    const { connection, engine } = await connectTo(socket => void socket.write(open));
    for await (const chunk of (await connection.stream(call)).body) {
      expect(chunk.toString()).toBe('1\n');
      break;
    }
    const controller = new AbortController();
    const { body } = await connection.stream({ ...call, signal: controller.signal });
    controller.abort();
    await sleep(20);
    // The error is kept until the stream is read.
    expect((await failure(drain(body))).error.kind).toBe('aborted');
    await until(() => engine.openConnections === 0);
  });
});

describe('a hijack', () => {
  it('accepts bytes that come together with the headers, as 101 and as 200', async () => {
    for (const status of ['101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp', '200 OK']) {
      const { connection } = await connectTo(socket => {
        socket.write(`HTTP/1.1 ${status}\r\n\r\nearly `);
        setTimeout(() => socket.end('late'), 20);
      });
      const stream = await connection.hijack({ ...call, method: 'POST' });
      let text = '';
      for await (const chunk of stream) text += chunk.toString();
      expect(text).toBe('early late');
      await stream.closed;
    }
  });

  it('that is refused says why', async () => {
    const { connection } = await connectTo(
      socket => void socket.end('HTTP/1.1 409 C\r\nContent-Length: 21\r\n\r\n{"message":"stopped"}'),
    );
    const { error } = await failure(connection.hijack({ ...call, method: 'POST' }));
    expect(error).toMatchObject({ kind: 'status', status: 409, engineMessage: 'stopped' });
  });

  it('tells writers, and those who close, that nobody is there', async () => {
    const { connection } = await connectTo(
      socket =>
        void socket.write('HTTP/1.1 101 U\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n', () =>
          setTimeout(() => socket.destroy(), 20),
        ),
    );
    const stream = await connection.hijack({ ...call, method: 'POST' });
    await stream.closed;
    expect((await failure(stream.write('x'))).error.kind).toBe('disconnected');
    await stream.closeWrite();
  });

  it('settles a write that an abort interrupts', async () => {
    const { connection } = await connectTo(socket => {
      socket.write('HTTP/1.1 101 U\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n');
      socket.pause();
    });
    const controller = new AbortController();
    const stream = await connection.hijack({ ...call, method: 'POST', signal: controller.signal });
    const write = failure(stream.write(Buffer.alloc(8 * 1024 * 1024)));
    const close = stream.closeWrite();
    await sleep(30);
    controller.abort();
    expect((await write).error.kind).toBe('aborted');
    await close;
    await stream.closed;
  });
});

describe('subscribing to events', () => {
  const event = (action: string, time: string) =>
    `${JSON.stringify({ Type: 'container', Action: action, Actor: { ID: 'a', Attributes: null } }).slice(0, -1)},"timeNano":${time}}\n`;
  const chunked = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;

  it('keeps the time exactly and never ends quietly', async () => {
    const time = '1763164800123456789';
    const answer = `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunked(event('die', time))}0\r\n\r\n`;
    await using faulty = await FaultyEngine.afterPing(socket => void socket.end(answer));
    using engine = await Engine.open({ socketPath: faulty.socket, signal });
    const subscription = await engine.events.subscribe({ filters: {}, signal });
    const seen: unknown[] = [];
    const end = failure(
      (async () => {
        for await (const one of subscription) seen.push(one);
      })(),
    );
    expect((await end).error.kind).toBe('disconnected');
    expect(seen).toEqual([{ type: 'container', action: 'die', id: 'a', attributes: {}, timeNano: BigInt(time) }]);
  });
});
