// Measures how long it takes to see that nothing has changed: nobody waits for a build that is not needed.

import { describe, expect, it } from 'vitest';
import { mainEngine, withoutEngines } from '../support/engines.ts';
import { figure } from '../support/waiting.ts';
import { ProjectBench } from './bench.ts';

const FILES = 5000;
const ROUNDS = 9;

describe.skipIf(withoutEngines)('an unchanged project', () => {
  it('of thousands of files is known for unchanged without a build', { timeout: 240_000 }, async () => {
    await using bench = await ProjectBench.at(mainEngine);
    for (let n = 0; n < FILES; n += 1) bench.put(`src/part${n % 50}/file${n}.js`, `${n}\n`.repeat(400));
    // Hashes are kept of what was not changed just now.
    await new Promise(resolve => setTimeout(resolve, 2100));
    const first = await bench.build();
    const times: number[] = [];
    const busy = process.cpuUsage();
    for (let round = 0; round < ROUNDS; round += 1) {
      const began = performance.now();
      expect(await bench.build()).toMatchObject({ built: false, id: first.id });
      times.push(performance.now() - began);
    }
    const { user, system } = process.cpuUsage(busy);
    const cpuMs = (user + system) / 1000 / ROUNDS;
    const median = times.sort((one, other) => one - other)[Math.floor(ROUNDS / 2)] ?? Infinity;
    const size = `${first.files} files, ${Math.round(first.bytes / 1024 ** 2)} MiB`;
    const parts = `of that ${Math.round(cpuMs)} ms of CPU; its build ${Math.round(first.durationMs)} ms`;
    figure(`unchanged project of ${size}, p50 (${parts})`, median, 300);
    expect(bench.builds).toBe(1);
  });
});
