// What a served command costs beyond starting Node: the reason why there are servers.

import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { ServedBench, places } from './served-bench.ts';

const ROUNDS = 11;
// For every machine. On a busy one everything takes longer, starting Node included.
const MOST_MS = 150;
const MOST_STARTS = 3;

describe.each(places)('a served command on $name', place => {
  it(`takes at most ${MOST_MS} ms, or ${MOST_STARTS} starts of Node, beyond starting Node`, async () => {
    await using served = await ServedBench.at(place);
    const [starts, beyond]: [number[], number[]] = [[], []];
    for (let round = 0; round < ROUNDS; round++) {
      const began = performance.now();
      spawnSync(process.execPath, ['-e', '0'], { env: served.bench.env });
      const start = performance.now() - began;
      const { ms, status } = await served.call(['sandbox', 'exec', '--', 'true']);
      expect(status).toBe(0);
      starts.push(start);
      beyond.push(ms - start);
      await new Promise(resolve => void setTimeout(resolve, 500));
    }
    const [start, more] = [median(starts), median(beyond)];
    process.stdout.write(
      `a served command on ${place.name}: ${more.toFixed(1)} ms beyond the ${start.toFixed(1)} ms of Node (medians of ${ROUNDS})\n`,
    );
    expect(more).toBeLessThanOrEqual(Math.max(MOST_MS, MOST_STARTS * start));
  });
});

function median(values: readonly number[]): number {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)] ?? Infinity;
}
