// Ten who want the same image at the same time: one download, in one process and in ten.

import { mkdtempSync, rmSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { engines, withoutEngines } from '../support/engines.ts';
import { PullBench } from './bench.ts';
import { TestRegistry } from './registry.ts';
import type { Pushed } from './registry.ts';

const MB = 1_000_000;
const MANY = 10;

describe.skipIf(withoutEngines).each(engines)('on $name, ten pulls of one image', engine => {
  let registry: TestRegistry;
  let config = '';

  beforeAll(async () => {
    config = mkdtempSync('/var/tmp/acode-test-docker-');
    process.env['DOCKER_CONFIG'] = config;
    registry = await TestRegistry.on(engine);
  });

  afterEach(async () => {
    await registry.set({ rate: 0 });
    await registry.clear();
    await registry.forget();
  });

  afterAll(async () => {
    await registry[Symbol.asyncDispose]();
    rmSync(config, { recursive: true, force: true });
  });

  // The engine itself may share layers between pulls; that the manifest was asked for by one shows that there was one.
  async function expectOneDownload({ fresh, digest }: Pushed): Promise<void> {
    await expect(registry.downloads(fresh)).resolves.toEqual(fresh.map(() => 1));
    const { requests } = await registry.seen();
    const manifests = requests.filter(({ method, url }) => method === 'GET' && url.includes('/manifests/'));
    expect(manifests.length).toBeLessThanOrEqual(2);
    expect(manifests.length).toBeGreaterThan(0);
    expect(digest).toMatch(/^sha256:/);
  }

  it('in one process, of two hosts, are one download', async () => {
    const pushed = await registry.push('at/once', '1', [1 * MB, 0.5 * MB]);
    await registry.set({ rate: 1 * MB });
    await using one = await PullBench.open(registry);
    await using other = await PullBench.open(registry);
    const pulls = Array.from({ length: MANY }, (_, n) => (n % 2 ? one : other).acode.images.pull(pushed.reference));
    const pulled = await Promise.all(pulls);
    expect(new Set(pulled.map(({ digest }) => digest))).toEqual(new Set([pushed.digest]));
    await expectOneDownload(pushed);
  });

  it('in ten processes are one download', async () => {
    const pushed = await registry.push('at/once', '2', [3 * MB]);
    await registry.set({ rate: 0.3 * MB });
    await using bench = await Bench.at(engine);
    await bench.configure({ security: { trusted_images: [`${registry.address}/*`] } });
    const began = performance.now();
    const ended = await Promise.all(
      Array.from({ length: MANY }, () =>
        bench.call(['--json', 'sandbox', 'pull', pushed.reference], { env: { DOCKER_CONFIG: config } }),
      ),
    );
    expect(ended.map(({ status, stderr }) => ({ status, stderr }))).toEqual(
      ended.map(() => ({ status: 0, stderr: '' })),
    );
    await expectOneDownload(pushed);
    process.stdout.write(
      `FIGURE ten processes pulling one image on ${engine.name}: ${Math.round(performance.now() - began)} ms, 1 download\n`,
    );
  }, 180_000);

  it('whose first process is killed are taken over by another, which had waited for it', async () => {
    const pushed = await registry.push('at/once', '3', [3 * MB]);
    await registry.set({ rate: 0.3 * MB });
    await using bench = await Bench.at(engine);
    await bench.configure({ security: { trusted_images: [`${registry.address}/*`] } });
    const env = { DOCKER_CONFIG: config, XDG_RUNTIME_DIR: process.env['XDG_RUNTIME_DIR'] ?? '' };
    const first = bench.start(['--json', 'sandbox', 'pull', pushed.reference], { env });
    const asked = async () => (await registry.seen()).requests.filter(({ method }) => method === 'GET');
    const blob = pushed.fresh[0] ?? '';
    await expect.poll(async () => (await asked()).some(({ url }) => url.endsWith(blob))).toBe(true);
    // Of this process, and with the other’s runtime directory: where turns are kept.
    await using second = await PullBench.open(registry);
    const pulling = second.acode.images.pull(pushed.reference);
    const waits = () => second.lines.some(({ message }) => message.includes('is waited for'));
    await expect.poll(waits).toBe(true);
    await expect(registry.downloads([blob])).resolves.toEqual([1]);
    expect(second.events).toEqual([]);
    expect({ exit: first.child.exitCode, signal: first.child.signalCode }).toEqual({ exit: null, signal: null });
    first.child.kill('SIGKILL');
    const killed = performance.now();
    const { status, stdout } = await first.ended;
    expect({ status, stdout: stdout.toString() }).toEqual({ status: null, stdout: '' });
    await expect.poll(() => second.events.some(({ type }) => type === 'ImagePullProgress')).toBe(true);
    process.stdout.write(
      `FIGURE a pull taken over from a killed process on ${engine.name}: after ${Math.round(performance.now() - killed)} ms\n`,
    );
    await registry.set({ rate: 0 });
    await expect(pulling).resolves.toMatchObject({ digest: pushed.digest });
    expect((await second.audited()).map(({ event }) => event)).toContain('pulling an image');
  });
});
