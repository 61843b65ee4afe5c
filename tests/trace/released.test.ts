// Whatever fails on the way of a command, everything it held is given back: container, connections, timers, its place.

import { readdirSync, readlinkSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { TestHost, engines, images, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import type { RequestFate } from '../support/proxy.ts';

const STEPS: readonly [step: string, request: RegExp, fate: RequestFate][] = [
  ['looking for the image', /^GET .*\/images\/.*\/json/, 'drop'],
  ['creating', /^POST .*\/containers\/create/, 'drop'],
  ['creating, with the answer lost', /^POST .*\/containers\/create/, 'drop-reply'],
  ['attaching', /^POST .*\/attach/, 'drop'],
  ['waiting for the end', /^POST .*\/wait/, 'drop'],
  ['starting', /^POST .*\/start/, 'drop-reply'],
  ['verifying', /^GET .*\/containers\/[0-9a-f]{64}\/json/, 'drop'],
];

// Open sockets of the library: those of this process without the two that the proxy has for each connection.
const sockets = (proxy: EngineProxy): number =>
  readdirSync('/proc/self/fd').filter(isSocket).length - 2 * proxy.openConnections;

function isSocket(descriptor: string): boolean {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`).startsWith('socket:');
  } catch {
    return false;
  }
}

const timers = (): number => process.getActiveResourcesInfo().filter(kind => kind === 'Timeout').length;

describe.skipIf(withoutEngines).each(engines)('a run on $name that fails', engine => {
  it.each(STEPS)('while %s gives everything back', async (_, request, fate) => {
    await using proxy = await EngineProxy.start(engine.socket);
    const before = timers();
    await using host = await TestHost.open(engine, {
      engine: { socket: proxy.socket },
      maxConcurrent: 1,
      config: { sandbox: { images: { default: images.busybox }, retry: { attempts: 0 } } },
    });
    // From the second sandbox on the engine also tells who else has some.
    for (let count = 0; count < 2; count += 1) await (await host.acode.spawn(['true']))[Symbol.asyncDispose]();
    // What stays open between runs: the engine’s events.
    await proxy.untilOpen(2);
    const open = sockets(proxy);
    let broken = 0;
    proxy.onRequest((method, path) => (request.test(`${method} ${path}`) && broken++ === 0 ? fate : undefined));
    await expect(host.acode.run(['sleep', '600'])).rejects.toMatchObject({
      code: expect.stringMatching(/^ACODE-SBX-/),
    });
    expect(broken).toBeGreaterThan(0);
    await expect.poll(() => host.containers()).toEqual([]);
    await expect.poll(() => sockets(proxy)).toBe(open);
    // With one place only, the next run shows that it is free again.
    expect((await host.acode.run(['echo', 'hi'])).stdout).toBe('hi\n');
    await host[Symbol.asyncDispose]();
    // Gone with the host: the engine’s events, the owner’s socket and the pipe to the reaper.
    await expect.poll(() => sockets(proxy)).toBe(open - 4);
    expect(timers()).toBeLessThanOrEqual(before);
  });
});
