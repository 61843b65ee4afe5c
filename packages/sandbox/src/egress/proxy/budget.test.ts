// A budget as the proxy keeps it: requests with a credential are counted, tokens of their answers too, and the one after is refused.

import { createServer } from 'node:http';
import type { IncomingMessage, Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Duplex } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import type { EgressLimits, EgressRule } from '../../contract/egress.ts';
import { decideAddress, decideHost, decideRequest } from '../decide.ts';
import { EGRESS_LIMITS, planOf } from '../plan.ts';
import { decideRepository } from '../repository.ts';
import { refusalText } from './refusal-text.ts';
import { SandboxProxy } from './sandbox-proxy.ts';

const decisions = { decideHost, decideAddress, decideRequest, decideRepository, refusalText };
const USAGE = JSON.stringify({ usage: { input_tokens: 40, output_tokens: 2 } });
const open: (() => void)[] = [];
afterEach(() => {
  for (const close of open.splice(0)) close();
});

/** A model that answers everything, and remembers which keys came. */
async function model(): Promise<{ readonly port: number; readonly keys: string[] }> {
  const keys: string[] = [];
  const server: Server = createServer((request: IncomingMessage, response) => {
    keys.push(request.headers.authorization ?? '');
    request.resume().once('end', () => response.end(USAGE));
  });
  await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
  open.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, keys };
}

/** A proxy with the model behind a base URL, and what it says to requests. */
async function proxied(limits: Partial<EgressLimits>) {
  const { port, keys } = await model();
  const rule: EgressRule = {
    ...{ id: 'allow/model.test', verdict: 'allow', host: 'model.test', port, protocol: 'http', mode: 'base-url' },
    ...{ private: true, credential: 'model', setBy: { layer: 'user', where: 'test' } },
  };
  const credentials = [{ name: 'model', as: 'bearer', placeholder: 'placeholder-of-the-sandbox' }] as const;
  const plan = planOf([rule], { ...EGRESS_LIMITS, ...limits }, 1, { credentials });
  const told: string[] = [];
  const proxy = new SandboxProxy({
    plan,
    decisions,
    resolve: () => Promise.resolve(['127.0.0.1']),
    ask: () => Promise.resolve({ value: 'the-key-of-the-person' }),
    spent: budget => told.push(budget),
  });
  open.push(() => void proxy.close());
  const at = plan.baseUrls?.[0]?.at ?? 0;
  const ask = async (method = 'POST', key = 'placeholder-of-the-sandbox'): Promise<string> => {
    const head = `${method} /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:${at}\r\nAuthorization: Bearer ${key}\r\nConnection: close\r\n`;
    return exchange(proxy, at, method === 'POST' ? `${head}Content-Length: 2\r\n\r\n{}` : `${head}\r\n`);
  };
  return { proxy, told, keys, ask };
}

// As the relay gives it: a stream whose other end the sandbox has.
function exchange(proxy: SandboxProxy, at: number, text: string): Promise<string> {
  return new Promise(resolve => {
    let answer = '';
    const client = new Duplex({
      allowHalfOpen: true,
      read: () => undefined,
      write: (chunk: Buffer, _, done) => {
        answer += chunk.toString();
        done();
      },
      final: done => {
        resolve(answer);
        done();
      },
    });
    client.once('close', () => resolve(answer));
    client.pause();
    client.push(text);
    proxy.accept({ address: '127.0.0.1', port: at }, client);
  });
}

describe('the budget of a sandbox', () => {
  it('of requests refuses the one after, which reaches nobody, and tells once', async () => {
    const { ask, told, keys, proxy } = await proxied({ requests: 2 });
    // One with a key of the sandbox’s own is refused before it counts.
    expect(await ask('POST', 'sk-of-somebody-else')).toMatch(/^HTTP\/1\.1 403 /);
    for (const method of ['POST', 'GET']) expect(await ask(method)).toMatch(/^HTTP\/1\.1 200 /);
    expect(told).toEqual([]);
    for (let count = 0; count < 2; count += 1)
      expect(await ask()).toMatch(/^HTTP\/1\.1 403 [^]*budget of requests or tokens is used up/);
    expect(told).toEqual(['requests']);
    expect(keys).toEqual(Array(2).fill('Bearer the-key-of-the-person'));
    const rows = proxy.report().map(({ verdict, reason, count, tokens }) => [verdict, reason, count, tokens]);
    // A GET is no question to a model: its answer counts no tokens.
    expect(rows).toEqual([
      ['denied', 'foreign-credential', 1, undefined],
      ['allowed', undefined, 2, 42],
      ['denied', 'budget', 2, undefined],
    ]);
  });

  it('of tokens lets an answer end, and refuses the next request', async () => {
    const { ask, told, proxy } = await proxied({ tokens: 43 });
    for (let count = 0; count < 2; count += 1) expect(await ask()).toContain(USAGE);
    expect(told).toEqual([]);
    expect(await ask()).toMatch(/^HTTP\/1\.1 403 /);
    expect(told).toEqual(['tokens']);
    expect(proxy.report().find(({ verdict }) => verdict === 'allowed')?.tokens).toBe(84);
  });
});
