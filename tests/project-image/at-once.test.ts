// Shows that builds of one project at once do not harm each other, and that what was built can be removed again.

import { describe, expect, it } from 'vitest';
import { engines, withEngine, withoutEngines } from '../support/engines.ts';
import { ProjectBench } from './bench.ts';

const soon = (): { signal: AbortSignal } => ({ signal: AbortSignal.timeout(60_000) });

describe.skipIf(withoutEngines).each(engines)('on $name', engine => {
  it('three builds at once are one build, and its image is there', async () => {
    await using bench = await ProjectBench.at(engine);
    bench.put('a');
    const made = await Promise.all([bench.build(), bench.build(), bench.build()]);
    expect(new Set(made.map(({ id }) => id)).size).toBe(1);
    expect(made.filter(({ built }) => built)).toHaveLength(1);
    expect(bench.builds).toBe(1);
    expect((await bench.run(made[0].reference, 'cat /project/a')).stdout).toBe('a');
  });

  it('an image from before that cannot be removed does not make the build fail, and a prune removes it', async () => {
    await using bench = await ProjectBench.at(engine);
    bench.put('a', 'one');
    const first = await bench.build();
    bench.put('a', 'two');
    bench.proxy.onRequest(method =>
      method === 'DELETE' ? { status: 500, message: 'not now', when: 'before' } : undefined,
    );
    const second = await bench.build();
    bench.proxy.onRequest(undefined);
    expect(second.built).toBe(true);
    await withEngine(engine, on =>
      expect(on.images.inspect(first.id, soon())).resolves.toMatchObject({ id: first.id }),
    );
    // Used just now: only who says so removes them.
    expect((await bench.host.acode.images.prune()).removed).toEqual([]);
    const { removed, failed } = await bench.host.acode.images.prune({ olderThanDays: 0 });
    expect(failed).toEqual([]);
    expect(removed.map(({ id }) => id).sort()).toEqual([first.id, second.id].sort());
    await withEngine(engine, on => expect(on.images.inspect(second.id, soon())).rejects.toMatchObject({ status: 404 }));
  });

  it('uninstalling shows the image, and removes it before what is known of it', async () => {
    await using bench = await ProjectBench.at(engine);
    bench.put('a');
    const { id } = await bench.build();
    const shown = await bench.host.acode.uninstall();
    expect(shown.images?.removed.map(one => one.id)).toContain(id);
    await withEngine(engine, on => expect(on.images.inspect(id, soon())).resolves.toMatchObject({ id }));
    await bench.host.acode.uninstall({ purge: true });
    await withEngine(engine, on => expect(on.images.inspect(id, soon())).rejects.toMatchObject({ status: 404 }));
  });
});
