// Every operation that takes a signal lets go at once, with the code for it, also where the engine does not answer.

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Acode } from '@acode/sandbox';
import { TestHost, engines, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';

type Operation = (acode: Acode, signal: AbortSignal) => Promise<unknown>;

const OPERATIONS: readonly [name: string, operation: Operation][] = [
  ['run', (acode, signal) => acode.run(['true'], { signal })],
  ['spawn', (acode, signal) => acode.spawn(['true'], { signal })],
  ['explain', (acode, signal) => acode.explain(['true'], { signal })],
  ['cleanup', (acode, signal) => acode.cleanup({ signal })],
];

describe.skipIf(withoutEngines).each(engines)('on $name', engine => {
  let proxy: EngineProxy;
  let host: TestHost;
  beforeEach(async () => {
    proxy = await EngineProxy.start(engine.socket);
    host = await TestHost.open(engine, { engine: { socket: proxy.socket } });
    // Connected and asked what it can do, so that the engine stops answering in the middle of the operation.
    await host.acode.status();
    await host.acode.explain(['true']);
  });
  afterEach(async () => {
    proxy.onRequest(undefined);
    await host[Symbol.asyncDispose]();
    await proxy[Symbol.asyncDispose]();
  });

  it.each(OPERATIONS)('%s that was cancelled before makes no request', async (_, operation) => {
    const asked = proxy.requests.length;
    await expect(operation(host.acode, AbortSignal.abort())).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    expect(proxy.requests).toHaveLength(asked);
  });

  it.each(OPERATIONS)('%s is cancelled while the engine hangs', async (_, operation) => {
    proxy.onRequest(() => 'hang');
    await expect(operation(host.acode, AbortSignal.timeout(200))).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
  });

  it('what takes no signal is cancelled by closing the host', async () => {
    proxy.onRequest(() => 'hang');
    const asked = Promise.allSettled([host.acode.list(), host.acode.inspect('x')]);
    setTimeout(() => void host.acode.close(), 100);
    const aborted = { status: 'rejected', reason: expect.objectContaining({ code: 'ACODE-SBX-014' }) };
    expect(await asked).toEqual([aborted, aborted]);
  });
});
