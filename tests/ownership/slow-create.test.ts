// A client is killed while a slow engine still creates its container. The container appears later and must be removed.

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { until } from '../support/waiting.ts';
import { exists, reapersOf } from './victims.ts';

const SLOW_MS = 5000;
const pause = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));

describe.skipIf(withoutEngines)('an engine that lists fast and creates slowly', () => {
  let proxy: EngineProxy;
  let bench: Bench;
  beforeEach(async () => {
    proxy = await EngineProxy.start(mainEngine.socket);
    bench = await Bench.at({ socket: proxy.socket });
  });
  afterEach(async () => {
    await bench[Symbol.asyncDispose]();
    await proxy[Symbol.asyncDispose]();
  });

  it('leaves nothing of a client that was killed meanwhile', async () => {
    const made: string[] = [];
    let asked = false;
    // Like a slow engine: it finishes the request although the client is gone.
    proxy.onRequest(async (method, path, body) => {
      if (method !== 'POST' || !path.includes('/containers/create')) return undefined;
      asked = true;
      void pause(SLOW_MS).then(() => create(path, body));
      return 'hang';
    });
    async function create(path: string, body: Buffer): Promise<void> {
      const name = new URL(path, 'http://engine').searchParams.get('name') ?? '';
      const request = objectOf(body);
      await withEngine(mainEngine, async direct => {
        const { id } = await direct.containers.create(request, { name, signal: AbortSignal.timeout(60_000) });
        made.push(id);
      });
    }
    const { child, ended } = bench.start(['run', '--', 'true']);
    await until(() => asked);
    await pause(500);
    child.kill('SIGKILL');
    await ended;
    expect(reapersOf(bench)).toHaveLength(1);
    await until(() => made.length === 1);
    const [id = ''] = made;
    await pause(15_000);
    expect(await exists(mainEngine, id)).toBe(false);
    // The reaper was waiting only for that container, so it has exited.
    expect(reapersOf(bench)).toEqual([]);
  });

  it('is not waited for where nothing was being made', async () => {
    const { child, ended } = bench.start(['run', '--', 'sh', '-c', 'echo up; sleep 600'], {
      onOutput: started => started.kill('SIGKILL'),
    });
    await ended;
    expect(child.signalCode).toBe('SIGKILL');
    await until(() => reapersOf(bench).length === 0);
    expect(await bench.left()).toEqual([]);
  });
});

function objectOf(body: Buffer): object {
  const parsed: unknown = JSON.parse(body.toString());
  if (typeof parsed !== 'object' || parsed === null) throw new Error('the request has no body');
  return parsed;
}
