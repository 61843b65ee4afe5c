// Shows that a pull that failed is a rejection also when the engine said 200 first, where dockerode reports success.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { PullProgress } from '../../packages/sandbox/src/isolation/docker/engine/images.ts';
import { Bench, engines, images, withoutEngines } from './engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { startRegistry } from './registry.ts';

describe.skipIf(withoutEngines).each(engines)('images on $name', engine => {
  it('are pulled whole, or not at all and with an error', async () => {
    await using bench = await Bench.at(engine);
    const { signal } = bench;
    const registry = await startRegistry(bench);
    const progress: PullProgress[] = [];
    const onProgress = (step: PullProgress) => void progress.push(step);

    const damaged = bench.engine.images.pull(`${registry}/damaged:1`, { onProgress, signal });
    await expect(damaged).rejects.toMatchObject({
      kind: 'status',
      status: undefined,
      engineMessage: expect.stringContaining('verification failed'),
    });
    // The engine had answered 200 and begun: this is the failure inside the stream.
    expect(progress.length).toBeGreaterThan(0);
    await expect(bench.engine.images.inspect(`${registry}/damaged:1`, bench)).rejects.toMatchObject({ status: 404 });

    progress.length = 0;
    const reference = `${registry}/whole:1`;
    await bench.engine.images.pull(reference, { onProgress, signal });
    onTestFinished(async () => {
      await using cleaner = await Bench.at(engine);
      await cleaner.engine.images.remove(reference, cleaner);
    });
    expect(progress.some(({ id }) => id !== undefined)).toBe(true);
    const pulled = await bench.engine.images.inspect(reference, bench);
    expect(pulled).toMatchObject({ repoTags: [reference], config: { Env: ['FROM=registry'] }, os: 'linux' });
    const [digest = ''] = pulled.repoDigests;
    await bench.engine.images.pull(digest, { signal });
    expect((await bench.engine.images.list(bench)).map(({ id }) => id)).toContain(pulled.id);
    await bench.engine.images.remove(reference, { force: true, signal });
    await bench.engine.images.remove(reference, { force: true, signal });
    await expect(bench.engine.images.inspect(reference, bench)).rejects.toMatchObject({ status: 404 });
  });

  it('that no registry has are refused', async () => {
    await using bench = await Bench.at(engine);
    const pull = bench.engine.images.pull('127.0.0.1:1/acode/none:1', bench);
    await expect(pull).rejects.toMatchObject({ kind: 'status' });
  });

  it('send credentials to the engine and nowhere else', async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    await using bench = await Bench.at(engine, proxy.socket);
    const heads: string[] = [];
    proxy.onRequest((_method, _path, _body, head) => {
      heads.push(head);
      return 'drop';
    });
    const auth = { username: 'me', password: 'ä?>secret' };
    const pull = bench.engine.images.pull('127.0.0.1:1/acode/none:1', { auth, signal: bench.signal });
    const error: unknown = await pull.catch((reason: unknown) => reason);
    expect(error).toMatchObject({ kind: 'disconnected' });
    expect(JSON.stringify(error)).not.toContain('secret');
    const header = /^x-registry-auth: (.*)$/im.exec(heads[0] ?? '')?.[1] ?? '';
    expect(JSON.parse(Buffer.from(header, 'base64url').toString())).toEqual(auth);
  });

  it('are inspected by reference and by id', async () => {
    await using bench = await Bench.at(engine);
    const byReference = await bench.engine.images.inspect(images.busybox, bench);
    expect(byReference.repoTags).toContain(images.busybox);
    expect(byReference.config.Cmd).toEqual(['/bin/sh']);
    await expect(bench.engine.images.inspect(byReference.id, bench)).resolves.toEqual(byReference);
  });
});
