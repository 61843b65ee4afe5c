// An engine that refuses, hangs, loses replies or dies: a code in bounded time, and nothing left behind.

import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Acode } from '@acode/sandbox';
import { TestHost, engines, images, makeWorkspace, withEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';

/** What this fails with; null where it does not. */
function failureOf(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => null,
    (caught: unknown) => caught,
  );
}

describe.skipIf(process.getuid?.() === 0)('an engine that is not there', () => {
  const open = (socket: string) => Acode.open({ engine: { socket }, workspace: makeWorkspace() });

  it('is a refusal with its code, and a status that says so', async () => {
    await using acode = await open('/var/tmp/acode-no-such.sock');
    const error = await failureOf(acode.run(['true']));
    expect(error).toMatchObject({
      code: 'ACODE-SBX-008',
      message: /Nothing was run/,
      cause: { code: 'ACODE-CTN-008' },
    });
    expect(await acode.status()).toMatchObject({
      available: false,
      unavailableReason: /^there is no engine socket at/,
      hint: /Start Docker/,
      level: null,
    });
  });

  it('that hangs is a refusal', async () => {
    const directory = mkdtempSync('/var/tmp/acode-hung-');
    const server = createServer(() => undefined).listen(join(directory, 's'));
    try {
      await using acode = await open(join(directory, 's'));
      const error = await failureOf(acode.run(['true']));
      expect(error).toMatchObject({ code: 'ACODE-SBX-008' });
    } finally {
      server.close();
      rmSync(directory, { recursive: true });
    }
  });
});

describe.skipIf(withoutEngines).each(engines)('trouble with $name', engine => {
  let proxy: EngineProxy;
  let host: TestHost;
  beforeEach(async () => {
    proxy = await EngineProxy.start(engine.socket);
    host = await TestHost.open(engine, { engine: { socket: proxy.socket } });
  });
  afterEach(async () => {
    proxy.onRequest(undefined);
    proxy.resume();
    await host[Symbol.asyncDispose]();
    await proxy[Symbol.asyncDispose]();
  });

  it('a create whose reply was lost is tried again, and what it made is removed', async () => {
    let lost = 0;
    proxy.onRequest((method, path) => {
      if (method !== 'POST' || !path.includes('/containers/create') || lost > 0) return undefined;
      lost += 1;
      return 'drop-reply';
    });
    expect((await host.acode.run(['echo', 'hi'])).stdout).toBe('hi\n');
    expect(lost).toBe(1);
    await host.acode.close();
    expect(await host.containers()).toEqual([]);
  });

  it('a lost engine is told of, and again when it is back, although nothing runs', async () => {
    const told: string[] = [];
    host.acode.events.on('EngineLost', ({ socket }) => told.push(`lost ${socket}`));
    host.acode.events.on('EngineFound', ({ socket, lostMs }) => told.push(`found ${socket} ${lostMs > 0}`));
    await host.acode.run(['true']);
    expect(told).toEqual([]);
    let refused = 0;
    proxy.onRequest((_, path) => {
      if (!path.includes('/events')) return undefined;
      refused += 1;
      return refused < 3 ? 'drop-reply' : undefined;
    });
    proxy.dropAll();
    // Reported within five seconds; the test itself has no clock.
    await vi.waitFor(() => expect(told).toEqual([`lost ${proxy.socket}`]), 20_000);
    await vi.waitFor(() => expect(told).toEqual([`lost ${proxy.socket}`, `found ${proxy.socket} true`]), 20_000);
    expect(refused).toBeGreaterThanOrEqual(2);
    expect((await host.acode.run(['echo', 'on'])).stdout).toBe('on\n');
    expect(told).toHaveLength(2);
  });

  it('a create that is never answered ends at its deadline, and nothing is left', async () => {
    await using slow = await TestHost.open(engine, {
      engine: { socket: proxy.socket },
      config: {
        sandbox: {
          images: { default: images.busybox },
          containers: { create_timeout_seconds: 0.5 },
          retry: { attempts: 0 },
        },
      },
    });
    proxy.onRequest((_, path) => (path.includes('/containers/create') ? 'hang' : undefined));
    const error = await failureOf(slow.acode.run(['true']));
    expect(error).toMatchObject({ code: 'ACODE-SBX-001', cause: { code: 'ACODE-CTN-001' } });
    expect(await slow.containers()).toEqual([]);
  });

  it('what the engine refuses for good is not tried again', async () => {
    proxy.onRequest((method, path) =>
      path.includes('/containers/create') && method === 'POST'
        ? Buffer.from('{"HostConfig":{"NanoCpus":-1}}')
        : undefined,
    );
    await expect(host.acode.run(['true'])).rejects.toMatchObject({ code: 'ACODE-SBX-001' });
    expect(proxy.requests.filter(({ path }) => path.includes('/containers/create'))).toHaveLength(1);
  });

  it('a name that exists already is refused with its code', async () => {
    const taken = (await host.acode.explain(['true'], { taskId: 'taken' })).spec.identity.name;
    const id = await withEngine(
      engine,
      async direct =>
        (
          await direct.containers.create(
            { Image: images.busybox, Labels: { 'acode.session': host.session } },
            { name: taken, signal: AbortSignal.timeout(60_000) },
          )
        ).id,
    );
    await expect(host.acode.run(['true'], { taskId: 'taken' })).rejects.toMatchObject({
      code: 'ACODE-SBX-001',
      cause: { code: 'ACODE-CTN-005', context: { name: taken } },
    });
    await withEngine(engine, direct => direct.containers.remove(id, { signal: AbortSignal.timeout(60_000) }));
  });

  it.each([
    ['POST', '/attach', 'drop'],
    ['POST', '/wait', 'drop'],
    ['POST', '/start', 'drop-reply'],
    ['GET', '/json?', 'drop'],
  ] as const)('%s %s lost on the way (%s) is a typed error, and nothing is left', async (method, part, fate) => {
    await host.acode.run(['true']);
    let hit = false;
    proxy.onRequest((asked, path) => {
      const matches =
        asked === method &&
        (part === '/json?' ? /\/containers\/[0-9a-f]{64}\/json/.test(path) : path.split('?')[0]?.endsWith(part));
      hit ||= matches === true;
      return matches ? fate : undefined;
    });
    const error = await failureOf(host.acode.run(['sleep', '5']));
    expect(hit).toBe(true);
    expect(String((error as { code?: string }).code)).toMatch(/^ACODE-SBX-0(06|18)$/);
  });

  it('an engine that dies in mid-run ends the run with a code, and the sandbox is removed once it answers again', async () => {
    const error = await failureOf(host.acode.run('echo up; sleep 600', { onStdout: () => proxy.dropAll() }));
    expect(error).toMatchObject({ code: 'ACODE-SBX-018' });
    await expect.poll(() => host.containers()).toEqual([]);
  });

  it('a caller who cancels does not wait for an engine that hangs', async () => {
    await host.acode.run(['true']);
    proxy.onRequest((_, path) => (path.includes('/containers/create') ? 'hang' : undefined));
    const error = await failureOf(host.acode.run(['true'], { signal: AbortSignal.timeout(300) }));
    expect(error).toMatchObject({ code: 'ACODE-SBX-014' });
    proxy.dropAll();
  });
});
