// What the engine cannot do for a moment is tried again, as often and as patiently as the user wants; then it is a typed error.

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { AcodeError, ConfigInput } from '@acode/sandbox';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';

type Retry = NonNullable<NonNullable<ConfigInput['sandbox']>['retry']>;

describe.skipIf(withoutEngines)('an engine that fails for a moment', () => {
  let proxy: EngineProxy;
  let creates: number[];
  beforeEach(async () => {
    proxy = await EngineProxy.start(mainEngine.socket);
    creates = [];
  });
  afterEach(() => proxy[Symbol.asyncDispose]());

  const open = (retry: Retry = {}) =>
    TestHost.open(mainEngine, {
      engine: { socket: proxy.socket },
      config: { sandbox: { images: { default: images.busybox }, retry } },
    });

  // A size limit on a file system without quotas is something the engine answers with a real 500.
  const failCreates = (times: number): void => {
    proxy.onRequest((method, path, body) => {
      if (method !== 'POST' || !path.includes('/containers/create')) return undefined;
      creates.push(performance.now());
      if (creates.length > times) return undefined;
      const request = JSON.parse(body.toString()) as { HostConfig: object };
      return Buffer.from(
        JSON.stringify({ ...request, HostConfig: { ...request.HostConfig, StorageOpt: { size: '1G' } } }),
      );
    });
  };

  const failure = async (host: TestHost): Promise<AcodeError> =>
    (await host.acode.run(['true']).catch((error: unknown) => error)) as AcodeError;

  const patience = async (retry: Retry): Promise<number> => {
    creates = [];
    failCreates(Infinity);
    await using host = await open(retry);
    await failure(host);
    return (creates.at(-1) ?? 0) - (creates[0] ?? 0);
  };

  it('is asked again until it can', async () => {
    await using host = await open();
    // The first run also makes a container to read the image’s list of users from.
    await host.acode.run(['true']);
    failCreates(2);
    expect((await host.acode.run(['echo', 'hi'])).stdout).toBe('hi\n');
    expect(creates).toHaveLength(3);
  });

  it.each([
    [{ base_ms: 1 }, 4],
    [{ attempts: 1, base_ms: 1 }, 2],
    [{ attempts: 0 }, 1],
  ])('is asked as often as %j says, %i times in all', async (retry, times) => {
    await using host = await open(retry);
    failCreates(Infinity);
    await failure(host);
    expect(creates).toHaveLength(times);
  });

  it('is given the pauses that base_ms and factor say, longer each time', async () => {
    expect(await patience({ base_ms: 100, factor: 4 })).toBeGreaterThan(await patience({ base_ms: 2, factor: 1 }));
  });

  it('and never recovers is an error with a code, a hint and, behind it, the engine’s own status and words', async () => {
    await using host = await open({ attempts: 0 });
    failCreates(Infinity);
    const error = await failure(host);
    expect(error).toMatchObject({ code: 'ACODE-SBX-001', exitStatus: 125, hint: expect.stringMatching(/status/) });
    expect(error.cause).toMatchObject({ code: 'ACODE-CTN-001', context: { reason: /storage-opt/ } });
    expect((error.cause as Error).cause).toMatchObject({ kind: 'status', status: 500, engineMessage: /storage-opt/ });
    expect(await host.containers()).toEqual([]);
  });
});
