// A container that the engine says it is removing, for ever: nobody waits for it longer than they said.

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Clock } from '@acode/sandbox';
import { systemClock } from '../../packages/sandbox/src/lifecycle/clock.ts';
import { TestHost, images, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { exists, leftover } from './victims.ts';

const DEAD = '00000000-0000-4000-8000-000000000000';
const MOMENT_MS = 1500;
const IN_PROGRESS = { status: 409, when: 'before' } as const;

describe.skipIf(withoutEngines)('an orphan that is stuck in its removal', () => {
  let proxy: EngineProxy;
  let host: TestHost;
  let orphan: string;
  beforeEach(async () => {
    proxy = await EngineProxy.start(mainEngine.socket);
    host = await TestHost.open(mainEngine, {
      engine: { socket: proxy.socket },
      config: { sandbox: { images: { default: images.busybox }, cleanup: { timeout_seconds: 2 } } },
    });
    const { spec } = await host.acode.explain(['true']);
    orphan = await leftover(mainEngine, { ...spec.identity.labels, 'acode.owner': DEAD, 'acode.session': 'gone' });
    proxy.onRequest((method, path) => {
      if (!path.includes(orphan)) return undefined;
      if (method === 'DELETE')
        return { ...IN_PROGRESS, message: `removal of container ${orphan} is already in progress` };
      return path.includes('/wait') ? 'hang' : undefined;
    });
  });
  afterEach(async () => {
    proxy.onRequest(undefined);
    await withEngine(mainEngine, direct =>
      direct.containers.remove(orphan, { force: true, signal: AbortSignal.timeout(60_000) }),
    );
    await host[Symbol.asyncDispose]();
    await proxy[Symbol.asyncDispose]();
  });

  it('is a failure that cleanup reports in the time there is for it', async () => {
    // It is reported although the engine never answers.
    const { failed, removed } = await host.acode.cleanup();
    expect(failed).toMatchObject([{ sandbox: { containerId: orphan }, reason: expect.stringContaining('2 seconds') }]);
    expect(removed.map(({ containerId }) => containerId)).not.toContain(orphan);

    // The control: once the engine lets go of it, the same call removes it.
    proxy.onRequest(undefined);
    expect((await host.acode.cleanup()).removed.map(({ containerId }) => containerId)).toContain(orphan);
    expect(await exists(mainEngine, orphan)).toBe(false);
  });

  it('holds up no command, and no reaper is let loose because of it', async () => {
    const over: number[] = [];
    const clock: Clock = {
      ...systemClock,
      after: (ms, action) => systemClock.after(ms, () => (over.push(ms), action())),
    };
    const own = await TestHost.open(mainEngine, { engine: { socket: proxy.socket }, clock });
    await own.acode.run(['true']);
    const asked = () => proxy.requests.filter(({ method, path }) => method === 'DELETE' && path.includes(orphan));
    await expect.poll(() => asked().length).toBeGreaterThan(0);
    over.length = 0;
    await own.acode.close();
    // What ended the wait for the sweep was the moment that a close has for it, and no deadline of the sweep’s own.
    expect(over).toContain(MOMENT_MS);
    await own[Symbol.asyncDispose]();
    // A reaper lists by owner; nobody else does when the session is over.
    await new Promise(resolve => setTimeout(resolve, 1500));
    const reaped = proxy.requests.filter(({ path }) => decodeURIComponent(path).includes('acode.owner='));
    expect(reaped.filter(({ path }) => path.startsWith('/containers/json'))).toEqual([]);
    expect(await exists(mainEngine, orphan)).toBe(true);
  });
});
