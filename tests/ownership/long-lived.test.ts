// A host that lives for days: what it could not remove at first goes later, and it stays alive to others whatever tidies up.

import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { ownerSocketsIn } from '../support/remains.ts';

const runtime = () => process.env['XDG_RUNTIME_DIR'] ?? '';

describe.skipIf(withoutEngines)('a host that lives for long', () => {
  let proxy: EngineProxy;
  let host: TestHost;
  beforeEach(async () => {
    proxy = await EngineProxy.start(mainEngine.socket);
    host = await TestHost.open(mainEngine, {
      engine: { socket: proxy.socket },
      config: {
        sandbox: {
          images: { default: images.busybox },
          network: { allow_bridge: true },
          cleanup: { timeout_seconds: 1 },
          retry: { attempts: 1 },
        },
      },
    });
  });
  afterEach(async () => {
    proxy.onRequest(undefined);
    await host[Symbol.asyncDispose]();
    await proxy[Symbol.asyncDispose]();
  });

  it('removes what it had given up when it next makes a sandbox', async () => {
    // The users of the image are read in the first run, from a container of their own.
    await host.acode.run(['true']);
    await expect.poll(() => host.containers()).toEqual([]);
    proxy.onRequest(method => (method === 'DELETE' ? 'drop' : undefined));
    await host.acode.run(['true']);
    // The control: it was given up, and is there although the engine is well again.
    await new Promise(resolve => setTimeout(resolve, 2500));
    proxy.onRequest(undefined);
    await new Promise(resolve => setTimeout(resolve, 1000));
    const [left, ...others] = await host.containers();
    expect([left !== undefined, others]).toEqual([true, []]);

    await using running = await host.acode.spawn(['cat']);
    await expect.poll(async () => (await host.containers()).map(({ id }) => id)).not.toContain(left?.id);
    await running.closeStdin();
    await running.result;
  });

  it('is not taken for dead where its socket was taken away', async () => {
    await using bench = await Bench.at(mainEngine);
    const peer = () => bench.call(['run', '--', 'true'], { env: { XDG_RUNTIME_DIR: runtime() } });
    const forget = (): void => {
      for (const name of ownerSocketsIn(runtime())) rmSync(join(runtime(), 'acode', 'owners', name), { force: true });
    };
    await using running = await host.acode.spawn(['cat']);
    const ids = async () => (await host.containers()).map(({ id }) => id);
    const [mine = ''] = await ids();
    forget();
    await host.acode.run(['true']);
    expect((await peer()).status).toBe(0);
    expect(await ids()).toContain(mine);

    // The control: with its socket gone and nothing done about it, it is dead to its peers.
    forget();
    expect((await peer()).status).toBe(0);
    await expect.poll(ids).not.toContain(mine);
    await Promise.allSettled([running.result]);
  });

  it('keeps no bridge for each of the sessions it has worked for', async () => {
    const bridges = new Set<string>();
    host.acode.events.on('NetworkRemoved', ({ name }) => bridges.add(name));
    const sessions = Array.from({ length: 8 }, (_, at) => `${host.session}-${at}`);
    for (const sessionId of sessions) await host.acode.run(['true'], { sessionId, policy: { network: 'bridge' } });
    // Of eight idle ones four are kept.
    await expect.poll(() => bridges.size).toBe(4);
    await host.acode.close();
    expect(bridges.size).toBe(8);
  });
});
