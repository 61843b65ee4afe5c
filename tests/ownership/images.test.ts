// A container has the labels of its image too: an image can neither keep a sandbox alive nor have somebody’s container removed.

import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { path } from '../../packages/sandbox/src/isolation/docker/engine/connection.ts';
import { Bench } from '../cli/bench.ts';
import { images, engines, withEngine, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { exists, gone, leftover, reapersOf, sleeping } from './victims.ts';

const DEAD = '00000000-0000-4000-8000-000000000000';
const soon = () => AbortSignal.timeout(60_000);

describe.skipIf(withoutEngines).each(engines)('an image with labels on $name', engine => {
  let bench: Bench;
  let made: { images: string[]; containers: string[] };
  beforeEach(async () => {
    bench = await Bench.at(engine);
    made = { images: [], containers: [] };
  });
  afterEach(async () => {
    await withEngine(engine, async direct => {
      for (const id of made.containers) await direct.containers.remove(id, { force: true, signal: soon() });
      for (const name of made.images) await direct.images.remove(name, { force: true, signal: soon() });
    });
    await bench[Symbol.asyncDispose]();
  });

  it('of acode’s own is refused before a container is made of it; with others it runs', async () => {
    const source = await runs(images.busybox, {});
    const harmless = await commit(source, ['LABEL org.example.keep=true']);
    const fine = await bench.call(['run', '--image', harmless, '--', 'echo', 'fine']);
    expect([fine.status, fine.stdout.toString()]).toEqual([0, 'fine\n']);

    const hostile = await commit(source, ['LABEL acode.keep=true']);
    const refused = await bench.call(['run', '--image', hostile, '--json', '--', 'echo', 'fine']);
    expect(refused.status).toBe(125);
    expect(JSON.parse(refused.stdout.toString())).toMatchObject({
      code: 'ACODE-SBX-010',
      context: { violation: 'DangerousImage', detail: expect.stringContaining('acode.keep') },
    });
    expect(await bench.left()).toEqual([]);
  });

  it('made of a sandbox does not make an orphan of what somebody runs from it', async () => {
    const { child, ended, id } = await sleeping(bench, engine, 'copied');
    // Past its time and of a dead owner as well: nothing but the name tells them apart.
    const copy = await commit(id, ['LABEL acode.expires=2020-01-01T00:00:00Z']);
    const labels = await labelsOf(copy);
    expect(labels).toMatchObject({ 'acode.managed': 'true', 'acode.owner': expect.stringMatching(/-/) });
    const theirs = await runs(copy, {});
    const theirOrphan = await runs(copy, { 'acode.owner': DEAD });
    const control = await leftover(engine, { ...labels, 'acode.owner': DEAD });
    made.containers.push(control);

    expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
    expect((await bench.call(['sandbox', 'cleanup', '--force', '--all-sessions'])).status).toBe(0);
    child.kill('SIGKILL');
    await ended;
    await gone(engine, id);
    await until(() => reapersOf(bench).length === 0);
    expect(await Promise.all([theirs, theirOrphan, control].map(one => exists(engine, one)))).toEqual([
      true,
      true,
      false,
    ]);
  });

  async function commit(container: string, changes: string[]): Promise<string> {
    const tag = randomUUID();
    const query = { container, repo: 'acode-test/labelled', tag, changes: changes.join('\n') };
    const call = { method: 'POST', path: path`/commit`, query, signal: soon(), deadlineMs: 20_000 } as const;
    const name = `acode-test/labelled:${tag}`;
    await withEngine(engine, direct =>
      direct.connection.json({ ...call, body: {}, expect: [201] }, z.looseObject({ Id: z.string() })),
    );
    made.images.push(name);
    return name;
  }

  async function labelsOf(image: string): Promise<Record<string, string>> {
    return withEngine(
      engine,
      async direct => (await direct.images.inspect(image, { signal: soon() })).config.Labels ?? {},
    );
  }

  // As `docker run` does it: the image’s labels come along by themselves.
  async function runs(image: string, labels: Record<string, string>): Promise<string> {
    const body = { Image: image, Entrypoint: ['sleep'], Cmd: ['600'], Labels: labels };
    return withEngine(engine, async (direct): Promise<string> => {
      const { id } = await direct.containers.create(
        { ...body, HostConfig: { NetworkMode: 'none' } },
        { signal: soon() },
      );
      made.containers.push(id);
      await direct.containers.start(id, { signal: soon() });
      return id;
    });
  }
});
