// Dialling through the proxy of a company: real sockets on the loopback.

import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import type { EgressRule } from '../../contract/egress.ts';
import { decideAddress } from '../decide.ts';
import { dial, Refused, remembering } from './dial.ts';
import type { DialOptions } from './dial.ts';

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

const rule = (host: string, more: Partial<EgressRule> = {}): EgressRule => ({
  ...{ id: `allow/${host}`, verdict: 'allow', host, port: 443, protocol: 'tls', mode: 'pass' },
  setBy: { layer: 'request', where: 'policy.network' },
  ...more,
});

async function server(answer: (socket: Socket, heard: string) => void): Promise<{ port: number; heard: string[] }> {
  const heard: string[] = [];
  const listening = createServer(socket => {
    heard.push('');
    socket.on('error', () => undefined);
    closing.push(() => socket.destroy());
    socket.on('data', chunk => {
      heard[heard.length - 1] += String(chunk);
      answer(socket, String(chunk));
    });
  });
  await new Promise<void>(resolve => void listening.listen(0, '127.0.0.1', resolve));
  closing.push(() => listening.close());
  return { port: (listening.address() as AddressInfo).port, heard };
}

function options(port: number, more: Partial<DialOptions> = {}): DialOptions {
  return {
    resolve: () => Promise.reject(new Error('unknown here')),
    check: (...asked) => {
      const decided = decideAddress(...asked);
      if (!decided.allowed) throw new Refused(decided.reason);
    },
    connectMs: 4000,
    signal: new AbortController().signal,
    upstream: { host: '127.0.0.1', port },
    ...more,
  };
}

describe('a connection through the proxy of a company', () => {
  it('is a tunnel to the name, which need not be known here; bytes right behind the answer are kept', async () => {
    const proxy = await server(socket => socket.write('HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nearly'));
    const socket = await dial(rule('a.example'), 'a.example', 8443, options(proxy.port));
    closing.push(() => socket.destroy());
    const early = await new Promise<string>(resolve => {
      socket.once('data', data => resolve(String(data))).resume();
    });
    expect(early).toBe('early');
    expect(proxy.heard).toEqual(['CONNECT a.example:8443 HTTP/1.1\r\nHost: a.example:8443\r\n\r\n']);
  });

  it.each([
    ['refuses', 'HTTP/1.1 403 Forbidden\r\n\r\n', 'answered 403'],
    ['says what is no HTTP', 'SSH-2.0\r\n\r\n', 'answered 0'],
    ['sends a head without an end', `HTTP/1.1 200 OK\r\n${'x'.repeat(40_000)}`, 'answered nothing'],
  ])('is none where the proxy %s', async (_, said, message) => {
    const proxy = await server(socket => socket.write(said));
    const dialled = dial(rule('a.example'), 'a.example', 443, options(proxy.port));
    await expect(dialled).rejects.toMatchObject({
      reason: 'unreachable',
      rule: 'allow/a.example',
      message: expect.stringContaining(message) as string,
    });
  });

  it('is not asked for where this host knows a private address of the name', async () => {
    const proxy = await server(socket => socket.write('HTTP/1.1 200 OK\r\n\r\n'));
    const resolve = () => Promise.resolve(['10.0.0.1']);
    const dialled = dial(rule('a.example'), 'a.example', 443, options(proxy.port, { resolve }));
    await expect(dialled).rejects.toMatchObject({ reason: 'private-address' });
    expect(proxy.heard).toEqual([]);
  });

  it('is direct for private hosts and for services of this host', async () => {
    const proxy = await server(() => undefined);
    const site = await server(socket => socket.write('direct'));
    const own = [rule('intern.example', { private: true, port: site.port }), rule('host', { port: site.port })];
    for (const one of own) {
      const resolve = () => Promise.resolve(['127.0.0.1']);
      const socket = await dial(one, one.host, site.port, options(proxy.port, { resolve }));
      socket.write('hello');
      await new Promise(settled => void socket.once('data', settled));
      socket.destroy();
    }
    expect([proxy.heard, site.heard]).toEqual([[], ['hello', 'hello']]);
  });
});

describe('what is asked of this host for each connection', () => {
  it('is asked once a second about the same thing, and again at once where it failed', async () => {
    let now = 0;
    const asked: string[] = [];
    const read = remembering(
      about => {
        asked.push(about);
        return about === 'fails' ? Promise.reject(new Error('no')) : Promise.resolve(asked.length);
      },
      () => now,
    );
    expect([await read('a'), await read('a'), await read('b')]).toEqual([1, 1, 2]);
    now = 1000;
    expect([await read('a'), await read('a')]).toEqual([3, 3]);
    await expect(read('fails')).rejects.toThrow('no');
    await expect(read('fails')).rejects.toThrow('no');
    expect(asked).toEqual(['a', 'b', 'a', 'fails', 'fails']);
    // It does not grow with what a sandbox asks for.
    for (let at = 0; at < 64; at += 1) await read(`name-${at}`);
    expect(await read('a')).toBe(asked.length);
  });

  it('is no reason to dial an address that was not checked', async () => {
    const site = await server(socket => socket.write('reached'));
    const answers = [['192.0.2.1'], ['127.0.0.1']];
    let now = 0;
    const resolve = remembering(
      () => Promise.resolve(answers.shift() ?? []),
      () => now,
    );
    const checked: string[] = [];
    const check = (_: EgressRule, address: string): void => {
      checked.push(address);
      if (address.startsWith('127.')) throw new Refused('private-address');
    };
    const one = { ...options(0, { resolve, check, connectMs: 50 }), upstream: undefined };
    await expect(dial(rule('a.example'), 'a.example', site.port, one)).rejects.toMatchObject({ reason: 'unreachable' });
    now = 1000;
    await expect(dial(rule('a.example'), 'a.example', site.port, one)).rejects.toMatchObject({
      reason: 'private-address',
    });
    expect(checked).toEqual(['192.0.2.1', '127.0.0.1']);
    expect(site.heard).toEqual([]);
  });
});
