// What an image that is there costs a run: by its tag, beside the same run by its id.

import { describe, expect, it } from 'vitest';
import { TestHost, engines, images, withEngine, withoutEngines } from '../support/engines.ts';

const PAIRS = 21;
const MOST_MS = 20;

describe.skipIf(withoutEngines).each(engines)('on $name', engine => {
  it('a run by tag costs at most 20 ms more than a run by id', async () => {
    const { id } = await withEngine(engine, direct =>
      direct.images.inspect(images.busybox, { signal: AbortSignal.timeout(10_000) }),
    );
    await using host = await TestHost.open(engine);
    const time = async (image: string): Promise<number> => {
      const began = performance.now();
      const { exitCode } = await host.acode.run(['true'], { policy: { image } });
      expect(exitCode).toBe(0);
      return performance.now() - began;
    };
    await time(images.busybox);
    await time(id);
    const pairs: { tag: number; id: number }[] = [];
    for (let pair = 0; pair < PAIRS; pair += 1) {
      // Side by side, and each first as often as the other: a machine that is busy is busy for both.
      if (pair % 2 === 0) pairs.push({ tag: await time(images.busybox), id: await time(id) });
      else pairs.push({ id: await time(id), tag: await time(images.busybox) });
    }
    const more = median(pairs.map(({ tag, id: by }) => tag - by));
    const [byTag, byId] = [median(pairs.map(({ tag }) => tag)), median(pairs.map(({ id: by }) => by))];
    process.stdout.write(
      `FIGURE cached image on ${engine.name}: by tag ${byTag.toFixed(1)} ms, by id ${byId.toFixed(1)} ms, in pairs ${more.toFixed(1)} ms more (medians of ${PAIRS})\n`,
    );
    expect(more).toBeLessThanOrEqual(MOST_MS);
  }, 120_000);
});

function median(values: readonly number[]): number {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}
