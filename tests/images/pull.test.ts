// Pulls from a real registry, on every engine: what is pulled, what breaks on the way, and what is refused before a byte is asked for.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { PullProgress } from '@acode/sandbox';
import { engines, withoutEngines } from '../support/engines.ts';
import { figure } from '../support/waiting.ts';
import { PullBench } from './bench.ts';
import { TestRegistry } from './registry.ts';

const MB = 1_000_000;
const refused = (code: string, part: string) =>
  expect.objectContaining({ code, message: expect.stringContaining(part) as string });

describe.skipIf(withoutEngines).each(engines)('on $name, an image', engine => {
  let registry: TestRegistry;
  let config = '';

  beforeAll(async () => {
    // No configuration of whoever runs the tests.
    config = mkdtempSync('/var/tmp/acode-test-docker-');
    process.env['DOCKER_CONFIG'] = config;
    registry = await TestRegistry.on(engine);
  });

  afterEach(async () => {
    await registry.set({ rate: 0, killAfter: 0, hang: false, damage: false });
    await registry.clear();
    await registry.forget();
  });

  afterAll(async () => {
    await registry[Symbol.asyncDispose]();
    rmSync(config, { recursive: true, force: true });
  });

  it('that is missing is pulled by the run that needs it, and the run is of the image that was decided on', async () => {
    const pushed = await registry.push('tools/shell', '1', [200_000, 100_000]);
    await using bench = await PullBench.open(registry);
    await expect(bench.acode.images.isPresent(pushed.reference)).resolves.toBe(false);
    const { exitCode, stdout, image } = await bench.acode.run('echo pulled', { policy: { image: pushed.reference } });
    expect({ exitCode, stdout }).toEqual({ exitCode: 0, stdout: 'pulled\n' });
    expect(image).toEqual({ reference: pushed.reference, digest: pushed.digest });
    await expect(registry.downloads(pushed.fresh)).resolves.toEqual([1, 1]);
    await expect(bench.acode.images.isPresent(pushed.reference)).resolves.toBe(true);
    const [before, after] = await bench.audited();
    expect(before).toMatchObject({
      event: 'pulling an image',
      detail: { image: pushed.reference, decision: 'allowed', login: 'anonymous' },
    });
    expect(JSON.stringify(before)).toContain('is trusted (your configuration');
    expect(after).toMatchObject({ event: 'image pulled', detail: { digest: pushed.digest, imageId: pushed.id } });
    expect(bench.lines).toContainEqual(
      expect.objectContaining({
        level: 'info',
        message: 'image pulled',
        fields: expect.objectContaining({ digest: pushed.digest }) as unknown,
      }),
    );
    // A second run asks nobody.
    await registry.forget();
    await bench.acode.run('true', { policy: { image: pushed.reference } });
    await expect(registry.seen()).resolves.toMatchObject({ connections: 0 });
  });

  it('is pulled with figures that end at every byte, as events and to who asks', async () => {
    const pushed = await registry.push('tools/progress', '1', [1.5 * MB, 1 * MB]);
    await registry.set({ rate: 1 * MB });
    await using bench = await PullBench.open(registry);
    const heard: PullProgress[] = [];
    const pulled = await bench.acode.images.pull(pushed.reference, { onProgress: one => heard.push(one) });
    expect(pulled).toMatchObject({ digest: pushed.digest, id: pushed.id, changed: true });
    expect(heard.at(-1)).toMatchObject({ bytes: pushed.freshBytes, totalBytes: pushed.freshBytes });
    expect(heard.at(-1)?.layers.map(({ state }) => state)).toEqual(['present', 'complete', 'complete']);
    expect(heard.some(({ bytesPerSecond }) => (bytesPerSecond ?? 0) > 0.2 * MB)).toBe(true);
    expect(heard.some(({ secondsLeft }) => secondsLeft !== null && secondsLeft > 0)).toBe(true);
    expect(bench.events.filter(({ type }) => type === 'ImagePullProgress').length).toBe(heard.length);
    expect(bench.events.some(event => event.type === 'ImagePulled' && event.digest === pushed.digest)).toBe(true);
  });

  it('whose registry is killed in the middle of a layer is pulled all the same, and most of it once', async () => {
    const pushed = await registry.push('tools/broken', '1', [4 * MB]);
    await registry.set({ rate: 2 * MB, killAfter: 2 * MB, awayMs: 1500 });
    await using bench = await PullBench.open(registry);
    const states = new Set<string>();
    const began = performance.now();
    const pulled = await bench.acode.images.pull(pushed.reference, {
      onProgress: ({ layers }) => layers.forEach(({ state }) => states.add(state)),
    });
    expect(pulled.digest).toBe(pushed.digest);
    const { requests } = await registry.seen();
    const parts = requests.filter(({ method, url }) => method === 'GET' && url.endsWith(pushed.fresh[0] ?? ''));
    expect(parts.length).toBeGreaterThanOrEqual(2);
    // The control: it was in the middle.
    expect(parts[0]?.bytes).toBeGreaterThan(1.5 * MB);
    expect(parts[0]?.bytes).toBeLessThan(3 * MB);
    const asked = parts.reduce((sum, { bytes }) => sum + bytes, 0);
    const ranges = parts.filter(({ range }) => range !== null).length;
    process.stdout.write(
      `FIGURE broken pull on ${engine.name}: ${Math.round(performance.now() - began)} ms, ${asked} of ${pushed.freshBytes} bytes sent in ${parts.length} answers, ${ranges} by range, states ${[...states].join(' ')}\n`,
    );
    // What was on its way when the connection broke may be sent twice; what had come is not.
    expect(ranges).toBeGreaterThan(0);
    expect(asked).toBeGreaterThanOrEqual(pushed.freshBytes);
    expect(asked).toBeLessThanOrEqual(pushed.freshBytes + 0.25 * MB);
  });

  it('whose registry does not answer is given up at the deadline, and nothing is left', async () => {
    const pushed = await registry.push('tools/slow', '1');
    await registry.set({ hang: true });
    await using bench = await PullBench.open(registry, { containers: { pull_timeout_seconds: 2 } });
    // The registry would never answer.
    await expect(bench.acode.run('true', { policy: { image: pushed.reference } })).rejects.toEqual(
      refused('ACODE-SBX-002', 'not done in 2 s'),
    );
    expect(bench.events.filter(({ type }) => type === 'ContainerCreated')).toEqual([]);
    await expect(bench.acode.images.isPresent(pushed.reference)).resolves.toBe(false);
    await registry.set({ hang: false });
    await expect(bench.acode.images.pull(pushed.reference)).resolves.toMatchObject({ digest: pushed.digest });
  });

  it('that another host pulls in vain is given up at its own deadline, the wait included', async () => {
    const pushed = await registry.push('tools/in-vain', '1');
    await registry.set({ hang: true });
    await using first = await PullBench.open(registry);
    await using second = await PullBench.open(registry, { containers: { pull_timeout_seconds: 4 } });
    const stop = new AbortController();
    const inVain = expect(first.acode.images.pull(pushed.reference, { signal: stop.signal })).rejects.toMatchObject({
      code: 'ACODE-SBX-014',
    });
    await expect.poll(async () => (await registry.seen()).connections).toBeGreaterThan(0);
    const began = performance.now();
    const late = expect(second.acode.images.pull(pushed.reference)).rejects.toEqual(
      refused('ACODE-SBX-002', 'not done in 4 s'),
    );
    // The control: it waits, and has its turn when the other one gives up.
    await expect
      .poll(() => second.lines.some(({ message }) => message.includes('waiting for another process')))
      .toBe(true);
    stop.abort();
    await inVain;
    await late;
    figure('second pull of an image that no registry sends, its deadline of 4 s', performance.now() - began, 6900);
    expect((await second.audited()).map(({ event }) => event)).toContain('pulling an image');
  });

  it('that is cancelled while it is pulled is given up at once', async () => {
    const pushed = await registry.push('tools/cancelled', '1');
    await registry.set({ hang: true });
    await using bench = await PullBench.open(registry);
    const stop = new AbortController();
    const pulling = bench.acode.images.pull(pushed.reference, { signal: stop.signal });
    await expect.poll(async () => (await registry.seen()).connections).toBeGreaterThan(0);
    stop.abort();
    await expect(pulling).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
  });

  it('that comes damaged is refused, and no sandbox is made of it', async () => {
    const pushed = await registry.push('tools/damaged', '1');
    await registry.set({ damage: true });
    await using bench = await PullBench.open(registry, { retry: { attempts: 0 } });
    await expect(bench.acode.run('true', { policy: { image: pushed.reference } })).rejects.toMatchObject({
      code: 'ACODE-SBX-002',
      context: { kind: 'damaged' },
      hint: expect.stringContaining('Nothing of it is used') as string,
    });
    expect(bench.events.filter(({ type }) => type === 'ContainerCreated')).toEqual([]);
    await expect(bench.acode.images.isPresent(pushed.reference)).resolves.toBe(false);
    // The control: it came, and as it should be it is accepted.
    const { requests } = await registry.seen();
    expect(requests.some(({ url, bytes }) => url.includes('/blobs/') && bytes > 0)).toBe(true);
    await registry.set({ damage: false });
    const { exitCode } = await bench.acode.run('true', { policy: { image: pushed.reference } });
    expect(exitCode).toBe(0);
  });

  it('is held to the digest that was named', async () => {
    const pushed = await registry.push('tools/pinned', '1');
    const bare = pushed.reference.slice(0, -2);
    await using bench = await PullBench.open(registry, { security: { require_digest: true } });
    await expect(bench.acode.images.pull(pushed.reference)).rejects.toEqual(
      refused('ACODE-SBX-010', 'names no digest'),
    );
    await expect(bench.acode.images.pull(`${bare}@sha256:${'0'.repeat(64)}`)).rejects.toMatchObject({
      code: 'ACODE-SBX-002',
      context: { kind: 'absent' },
    });
    await expect(bench.acode.images.pull(`${bare}:1@${pushed.digest}`)).resolves.toMatchObject({ id: pushed.id });
    const { exitCode } = await bench.acode.run('true', { policy: { image: `${bare}@${pushed.digest}` } });
    expect(exitCode).toBe(0);
  });

  it('that nobody has is an error that says so, after one question', async () => {
    await registry.push('tools/there', '1');
    await using bench = await PullBench.open(registry);
    await registry.forget();
    await expect(bench.acode.images.pull(`${registry.address}/tools/there:none`)).rejects.toMatchObject({
      code: 'ACODE-SBX-002',
      context: { kind: 'absent' },
      cause: { code: 'ACODE-CTN-006' },
    });
    const { requests } = await registry.seen();
    expect(
      requests.filter(({ method, url }) => method === 'GET' && url.includes('/manifests/none')).length,
    ).toBeLessThanOrEqual(1);
    expect((await bench.audited()).at(-1)).toMatchObject({ errorCode: 'ACODE-SBX-002' });
  });

  it('whose tag has moved is noticed when it is pulled, and not taken before', async () => {
    const first = await registry.push('tools/moving', 'stable');
    await using bench = await PullBench.open(registry);
    await bench.acode.images.pull(first.reference);
    const second = await registry.push('tools/moving', 'stable');
    const policy = { image: first.reference };
    const before = await bench.acode.run('true', { policy });
    expect(before.image?.digest).toBe(first.digest);
    const after = await bench.acode.run('true', { policy: { ...policy, pull: 'always' } });
    expect(after.image?.digest).toBe(second.digest);
    const moved = { digest: second.digest, previousDigest: first.digest };
    expect((await bench.audited()).at(-1)).toMatchObject({
      event: 'image pulled, and the tag has moved',
      detail: moved,
    });
    expect(bench.lines).toContainEqual(
      expect.objectContaining({ level: 'warn', fields: expect.objectContaining(moved) as unknown }),
    );
    const again = await bench.acode.images.pull(first.reference);
    expect(again).toMatchObject({ changed: false, digest: second.digest });
    expect(again.previousDigest).toBeUndefined();
  });

  it('of a repository that only looks like a trusted one is refused before anybody is asked', async () => {
    await registry.push('trusted-evil/shell', '1');
    const good = await registry.push('trusted/shell', '1');
    await registry.forget();
    await using bench = await PullBench.open(registry, {}, { trusted: 'trusted/*' });
    const port = registry.address.split(':')[1];
    for (const lookAlike of [
      `${registry.address}/trusted-evil/shell:1`,
      `${registry.address}/trusted:1`,
      `localhost:${port}/trusted/shell:1`,
      `127.0.0.1.evil.invalid:${port}/trusted/shell:1`,
    ]) {
      await expect(bench.acode.run('true', { policy: { image: lookAlike } })).rejects.toEqual(
        refused('ACODE-SBX-010', 'is not on this engine and may not be pulled'),
      );
      await expect(bench.acode.images.pull(lookAlike)).rejects.toEqual(refused('ACODE-SBX-010', 'is not trusted'));
    }
    await expect(registry.seen()).resolves.toEqual({ connections: 0, requests: [] });
    expect((await bench.audited()).filter(({ kind }) => kind === 'refusal')).toHaveLength(4);
    await expect(bench.acode.images.pull(good.reference)).resolves.toMatchObject({ digest: good.digest });
    expect((await registry.seen()).connections).toBeGreaterThan(0);
  });

  it('is never asked for offline, in air-gapped mode or by a policy of never: the registry sees no connection', async () => {
    const pushed = await registry.push('tools/offline', '1');
    await registry.forget();
    const policy = { image: pushed.reference };
    const cases = [
      [{ images: { offline: true } }, {}, 'sandbox.images.offline is true'],
      [{ images: { pull_policy: 'never' as const } }, {}, 'the pull policy is never'],
      [{}, { mode: 'airgapped' as const }, 'the mode is airgapped'],
    ] as const;
    for (const [sandbox, top, rule] of cases) {
      await using bench = await PullBench.open(registry, sandbox, { config: top });
      await expect(bench.acode.run('true', { policy })).rejects.toEqual(refused('ACODE-SBX-009', rule));
      if (rule !== 'the pull policy is never')
        await expect(bench.acode.images.pull(pushed.reference)).rejects.toEqual(refused('ACODE-SBX-009', rule));
    }
    await expect(registry.seen()).resolves.toEqual({ connections: 0, requests: [] });
    // What is there is run, and asked for anew by nobody.
    await using online = await PullBench.open(registry);
    await online.acode.images.pull(pushed.reference);
    expect((await registry.seen()).connections).toBeGreaterThan(0);
    await registry.forget();
    await using offline = await PullBench.open(registry, { images: { offline: true } });
    const { exitCode } = await offline.acode.run('true', { policy: { ...policy, pull: 'always' } });
    expect(exitCode).toBe(0);
    await expect(registry.seen()).resolves.toEqual({ connections: 0, requests: [] });
  });

  it('is only announced by an explanation', async () => {
    const pushed = await registry.push('tools/explained', '1');
    await registry.forget();
    await using bench = await PullBench.open(registry);
    const { notes, spec } = await bench.acode.explain('true', { policy: { image: pushed.reference } });
    expect(notes.join('\n')).toContain(`The image ${pushed.reference} would be pulled first`);
    expect(spec.image.id).toBe('');
    await expect(registry.seen()).resolves.toEqual({ connections: 0, requests: [] });
  });

  it('that is there stands in where the registry is away, for a run and never for a pull', async () => {
    const pushed = await registry.push('tools/away', '1');
    await using bench = await PullBench.open(registry, { retry: { attempts: 0 } });
    await bench.acode.images.pull(pushed.reference);
    await registry.set({ hang: true });
    await using hurried = await PullBench.open(registry, {
      retry: { attempts: 0 },
      containers: { pull_timeout_seconds: 2 },
    });
    const { exitCode, image } = await hurried.acode.run('true', {
      policy: { image: pushed.reference, pull: 'always' },
    });
    expect({ exitCode, digest: image?.digest }).toEqual({ exitCode: 0, digest: pushed.digest });
    expect(hurried.lines.some(({ message }) => message.includes('the image that is there is used'))).toBe(true);
    await expect(hurried.acode.images.pull(pushed.reference)).rejects.toEqual(
      refused('ACODE-SBX-002', 'not done in 2 s'),
    );
  });

  it('runs only with a signature that is accepted, where the program that runs it wants one', async () => {
    const pushed = await registry.push('tools/signed', '1');
    const asked: unknown[] = [];
    let accept = false;
    await using bench = await PullBench.open(
      registry,
      {},
      {
        verifySignature: async image => {
          asked.push(image);
          if (!accept) throw new Error('no key of ours signed it');
        },
      },
    );
    const policy = { image: pushed.reference };
    await expect(bench.acode.run('true', { policy })).rejects.toEqual(
      refused('ACODE-SBX-010', 'no key of ours signed it'),
    );
    expect(bench.events.filter(({ type }) => type === 'ContainerCreated')).toEqual([]);
    accept = true;
    await expect(bench.acode.run('true', { policy })).resolves.toMatchObject({ exitCode: 0 });
    expect(asked[0]).toMatchObject({ id: pushed.id, repositoryDigests: [expect.stringContaining(pushed.digest)] });
  });

  it('is not pulled with a docker configuration that lies in the workspace', async () => {
    const pushed = await registry.push('tools/planted', '1');
    await registry.forget();
    await using bench = await PullBench.open(registry);
    mkdirSync(join(bench.workspace, '.docker'));
    writeFileSync(join(bench.workspace, '.docker', 'config.json'), '{}', { mode: 0o600 });
    process.env['DOCKER_CONFIG'] = join(bench.workspace, '.docker');
    try {
      await expect(bench.acode.images.pull(pushed.reference)).rejects.toEqual(
        refused('ACODE-SBX-013', 'lies in the workspace'),
      );
      await expect(registry.seen()).resolves.toEqual({ connections: 0, requests: [] });
    } finally {
      process.env['DOCKER_CONFIG'] = config;
    }
    await expect(bench.acode.images.pull(pushed.reference)).resolves.toMatchObject({ digest: pushed.digest });
  });
});
