// Between a list and a removal everything can have changed: the sweep asks again, of the engine, the owner and the host.

import { randomUUID } from 'node:crypto';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { OwnerSocket } from '../../packages/sandbox/src/lifecycle/ownership.ts';
import { TestHost, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { exists, leftover } from './victims.ts';

const runtime = () => join(process.env['XDG_RUNTIME_DIR'] ?? '', 'acode');

describe.skipIf(withoutEngines)('an orphan of the list', () => {
  let proxy: EngineProxy;
  let host: TestHost;
  let owner: string;
  let orphan: string;
  beforeEach(async () => {
    proxy = await EngineProxy.start(mainEngine.socket);
    host = await TestHost.open(mainEngine, { engine: { socket: proxy.socket } });
    const { spec } = await host.acode.explain(['true']);
    owner = randomUUID();
    orphan = await leftover(mainEngine, { ...spec.identity.labels, 'acode.owner': owner, 'acode.session': 'gone' });
  });
  afterEach(async () => {
    await host[Symbol.asyncDispose]();
    await proxy[Symbol.asyncDispose]();
    await withEngine(mainEngine, direct =>
      direct.containers.remove(orphan, { force: true, signal: AbortSignal.timeout(60_000) }),
    );
  });

  const looksAgain = (path: string) => path.includes(`/containers/${orphan}/json`);

  it('goes where nothing has changed', async () => {
    await host.acode.run(['true']);
    await host.acode.close();
    expect(proxy.requests.some(({ path }) => looksAgain(path))).toBe(true);
    expect(await exists(mainEngine, orphan)).toBe(false);
  });

  it('stays where its owner is found to live when it is looked at again', async () => {
    let socket: OwnerSocket | null = null;
    proxy.onRequest(async (_, path) => {
      if (looksAgain(path)) socket ??= await OwnerSocket.listen(runtime(), owner);
      return undefined;
    });
    await host.acode.run(['true']);
    await host.acode.close();
    expect(socket).not.toBeNull();
    expect(await exists(mainEngine, orphan)).toBe(true);
    await (socket as OwnerSocket | null)?.close();
  });

  it('stays where the runtime directory is not the host’s any more, since the sockets went with it', async () => {
    rmSync(join(runtime(), 'host'));
    await host.acode.run(['true']);
    await host.acode.close();
    expect(await exists(mainEngine, orphan)).toBe(true);
  });

  it('stays where something else has its id by then', async () => {
    proxy.onRequest((_, path) =>
      looksAgain(path) ? { status: 404, message: 'no such container', when: 'before' } : undefined,
    );
    await host.acode.run(['true']);
    await host.acode.close();
    const removals = proxy.requests.filter(({ method, path }) => method === 'DELETE' && path.includes(orphan));
    expect(removals).toEqual([]);
    expect(await exists(mainEngine, orphan)).toBe(true);
  });
});
