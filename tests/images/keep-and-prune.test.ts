// Listing and pruning: what acode pulled is known, and only that is ever removed.

import { mkdtempSync, rmSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { engines, images, withEngine, withoutEngines } from '../support/engines.ts';
import { PullBench } from './bench.ts';
import { TestRegistry } from './registry.ts';

describe.skipIf(withoutEngines).each(engines)('on $name, images', engine => {
  let registry: TestRegistry;
  let config = '';

  beforeAll(async () => {
    config = mkdtempSync('/var/tmp/acode-test-docker-');
    process.env['DOCKER_CONFIG'] = config;
    registry = await TestRegistry.on(engine);
  });

  afterEach(async () => {
    await registry.clear();
  });

  afterAll(async () => {
    await registry[Symbol.asyncDispose]();
    rmSync(config, { recursive: true, force: true });
  });

  it('are listed with tag, digest and size, and with who pulled them', async () => {
    const ours = await registry.push('list/ours', '1');
    const theirs = await registry.push('list/theirs', '1');
    await withEngine(engine, direct => direct.images.pull(theirs.reference, { signal: AbortSignal.timeout(60_000) }));
    await using bench = await PullBench.open(registry);
    await bench.acode.images.pull(ours.reference);
    await bench.acode.images.pull(theirs.reference);
    const { items, totalBytes, diskBytes } = await bench.acode.images.list();
    const found = (reference: string) => items.find(({ tags }) => tags.includes(reference));
    expect(found(ours.reference)).toMatchObject({
      id: ours.id,
      digests: [expect.stringContaining(ours.digest)],
      pulledByAcode: true,
      containers: 0,
      lastUsedAt: expect.any(String) as string,
    });
    expect(found(theirs.reference)).toMatchObject({ pulledByAcode: false, pulledAt: null });
    expect(found(images.busybox)?.pulledByAcode).toBe(false);
    expect(totalBytes).toBeGreaterThan(2_000_000);
    expect(diskBytes).toBeGreaterThan(1_000_000);
  });

  it('that acode pulled and nobody uses are pruned, once they are old enough, and no others', async () => {
    const ours = await registry.push('prune/ours', '1');
    const busy = await registry.push('prune/busy', '1');
    const theirs = await registry.push('prune/theirs', '1');
    await withEngine(engine, direct => direct.images.pull(theirs.reference, { signal: AbortSignal.timeout(60_000) }));
    await using bench = await PullBench.open(registry);
    for (const { reference } of [ours, busy]) await bench.acode.images.pull(reference);
    await using running = await bench.acode.spawn(['sleep', '60'], { policy: { image: busy.reference } });

    const young = await bench.acode.images.prune();
    expect(young.removed).toEqual([]);
    expect(young.kept.map(({ reason }) => reason).sort()).toEqual(['a container uses it', 'it was used not long ago']);

    const dry = await bench.acode.images.prune({ olderThanDays: 0, dryRun: true });
    expect(dry.removed.map(({ reference }) => reference)).toEqual([ours.reference]);
    await expect(bench.acode.images.isPresent(ours.reference)).resolves.toBe(true);

    const done = await bench.acode.images.prune({ olderThanDays: 0 });
    expect(done.removed.map(({ id }) => id)).toEqual([ours.id]);
    expect(done.removedBytes).toBeGreaterThan(0);
    expect(done.kept).toMatchObject([{ reference: busy.reference, reason: 'a container uses it' }]);
    await expect(bench.acode.images.isPresent(ours.reference)).resolves.toBe(false);
    for (const reference of [theirs.reference, busy.reference, images.busybox, images.debian])
      await expect(bench.acode.images.isPresent(reference)).resolves.toBe(true);
    await expect(bench.acode.audit.tail({ count: 20 })).resolves.toContainEqual(
      expect.objectContaining({ kind: 'removal', operation: 'prune', what: 'image', id: ours.id }),
    );
    await running.kill('SIGKILL');
    await running.result;
  });

  it('that lost their name to a newer one are pruned too', async () => {
    const first = await registry.push('prune/moved', 'stable');
    await using bench = await PullBench.open(registry);
    await bench.acode.images.pull(first.reference);
    const second = await registry.push('prune/moved', 'stable');
    await bench.acode.images.pull(first.reference);
    const { removed } = await bench.acode.images.prune({ olderThanDays: 0 });
    expect(removed.map(({ id }) => id).sort()).toEqual([first.id, second.id].sort());
    const left = (await bench.acode.images.list()).items.map(({ id }) => id);
    expect(left).not.toContain(first.id);
    expect(left).not.toContain(second.id);
  });

  it('whose name somebody gave to another image are left alone', async () => {
    const first = await registry.push('prune/renamed', 'stable');
    await using bench = await PullBench.open(registry);
    await bench.acode.images.pull(first.reference);
    const second = await registry.push('prune/renamed', 'stable');
    await withEngine(engine, direct => direct.images.pull(second.reference, { signal: AbortSignal.timeout(60_000) }));
    const { removed, kept } = await bench.acode.images.prune({ olderThanDays: 0 });
    expect(removed).toEqual([]);
    expect(kept).toMatchObject([{ reason: 'its name means another image now' }]);
    await expect(bench.acode.images.isPresent(second.reference)).resolves.toBe(true);
  });
});
