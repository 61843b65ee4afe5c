import { X509Certificate } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { EgressRule } from '../../contract/egress.ts';
import { planOf } from '../plan.ts';
import { egressProxy } from './proxy.ts';
import type { EgressProxy, EgressTask } from './proxy.ts';

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function rule(host: string, port: number): EgressRule {
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
  };
}

async function echoServer(): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, socket => void socket.on('error', () => {}).pipe(socket));
  await new Promise<void>(resolve => {
    server.listen(0, '127.0.0.1', resolve);
  });
  cleanups.push(() => void server.close());
  return (server.address() as AddressInfo).port;
}

interface Network {
  readonly task: EgressTask;
  connect(): Promise<Socket>;
}

async function network(proxy: EgressProxy, rules: readonly EgressRule[]): Promise<Network> {
  const directory = await mkdtemp(join(tmpdir(), 'acode-egress-'));
  cleanups.push(() => rm(directory, { recursive: true }));
  const task = await proxy.open({ id: directory, plan: planOf(rules), transport: { kind: 'socket', directory } });
  return {
    task,
    connect: () =>
      new Promise((resolve, reject) => {
        const socket = connect({ path: join(directory, 'relay'), allowHalfOpen: true }, () => resolve(socket));
        socket.on('error', reject);
        cleanups.push(() => void socket.destroy());
        // As the forwarder begins each connection.
        socket.write('127.0.0.1:3128\n');
      }),
  };
}

async function ask(net: Network, text: string): Promise<string> {
  const socket = await net.connect();
  socket.end(text);
  return rest(socket);
}

function rest(socket: Socket): Promise<string> {
  return new Promise(resolve => {
    let text = '';
    socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
    socket.on('close', () => resolve(text)).on('end', () => resolve(text));
  });
}

const connectTo = (host: string, port: number): string => `CONNECT ${host}:${port} HTTP/1.1\r\n\r\n`;

describe('the proxy thread', () => {
  it('gives two sandboxes their own networks, changes one, and reports both', async () => {
    const port = await echoServer();
    const proxy = egressProxy();
    cleanups.push(() => proxy.close());
    const [one, other] = [await network(proxy, [rule('host', port)]), await network(proxy, [])];
    expect(await ask(one, `${connectTo('host', port)}hello`)).toMatch(/^HTTP\/1\.1 200 [^]*hello$/);
    const refused = await ask(other, connectTo('host', port));
    expect(refused).toMatch(/^HTTP\/1\.1 403 /);
    expect(refused).toContain(`--network allow=host:${port}`);
    await one.task.update(planOf([], undefined, 2));
    expect(await ask(one, connectTo('host', port))).toMatch(/^HTTP\/1\.1 403 /);
    expect(await one.task.report()).toMatchObject([
      { host: 'host', verdict: 'allowed', count: 1, bytesOut: 5, bytesIn: 5 },
      { host: 'host', verdict: 'denied', reason: 'not-listed', count: 1 },
    ]);
    expect(await other.task.close()).toMatchObject([{ verdict: 'denied' }]);
    await expect(other.connect()).rejects.toThrow(/ENOENT|ECONNREFUSED/);
  });

  it('tells what the sandbox has to trust, by the plan of the moment', async () => {
    const proxy = egressProxy();
    cleanups.push(() => proxy.close());
    const { task } = await network(proxy, [rule('a.test', 443)]);
    expect(task.trust()).toBeNull();
    const inspected: EgressRule = { ...rule('a.test', 443), protocol: 'tls', mode: 'inspect' };
    // No forwarder is there to be told the names of the plan: that is not what is looked at.
    await task.update(planOf([inspected], undefined, 2));
    const { certificate, bundle } = task.trust() ?? { certificate: '', bundle: '' };
    expect(new X509Certificate(certificate)).toMatchObject({ ca: true, subject: 'CN=acode sandbox CA' });
    expect(bundle.endsWith(certificate)).toBe(true);
    expect(bundle.length).toBeGreaterThan(10 * certificate.length);
  });

  it('takes the network along when it ends: connections are cut, and none is accepted', async () => {
    const port = await echoServer();
    const proxy = egressProxy();
    const net = await network(proxy, [rule('host', port)]);
    const socket = await net.connect();
    socket.write(connectTo('host', port));
    await new Promise(resolve => void socket.once('data', resolve));
    const cut = rest(socket);
    await proxy.close();
    await net.task.lost;
    expect(await cut).toBe('');
    await expect(net.connect()).rejects.toThrow(/ENOENT|ECONNREFUSED/);
    await expect(net.task.update(planOf([]))).rejects.toThrow('has ended');
    expect(await net.task.close()).toEqual([]);
    expect(await net.task.bound).toMatchObject({ reason: expect.stringContaining('ended') });
    // Another sandbox gets another thread.
    cleanups.push(() => proxy.close());
    expect(await ask(await network(proxy, []), connectTo('host', port))).toMatch(/403/);
  });
});
