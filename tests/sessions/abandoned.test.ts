// A client with an open sandbox that is killed: everything of it goes, at once and by itself.

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Bench } from '../cli/bench.ts';
import { oddSeconds, processesOf } from '../levels/host-processes.ts';
import { exists, gone, reapersOf, sockets, until as untilTrue } from '../ownership/victims.ts';
import { withoutEngines } from '../support/engines.ts';
import { benchAt, client } from './clients.ts';
import { places, until } from './places.ts';

const ROUNDS = Number(process.env['ACODE_KILL_ROUNDS'] ?? 5);

describe.skipIf(withoutEngines).each(places)('a client on $name that is killed', place => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await benchAt(place);
  });
  afterEach(() => bench[Symbol.asyncDispose]());

  it('takes its sandbox and three commands in it along within a second', { timeout: 300_000 }, async () => {
    const times: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const seconds = oddSeconds();
      const commands = [
        `sleep ${seconds}`,
        `trap "" TERM HUP INT; sleep ${seconds} & sleep ${seconds}`,
        `sh -c "sleep ${seconds} & wait" & wait`,
      ];
      const { child, said, ended } = await client(bench, { what: 'hold', commands });
      const seen = place.lacks['kernel walls'] === undefined;
      // The control: they run, and whoever looks for them finds them.
      if (seen) await until(() => processesOf(`sleep ${seconds}`).length === 4, 5000);
      expect(await exists(place.engine, said.containerId)).toBe(true);
      const began = performance.now();
      child.kill('SIGKILL');
      if (seen) await until(() => processesOf(`sleep ${seconds}`).length === 0, 10_000);
      await gone(place.engine, said.containerId, 10_000);
      times.push(performance.now() - began);
      await ended;
    }
    times.sort((one, other) => one - other);
    const worst = times.at(-1) ?? Infinity;
    process.stdout.write(
      `FIGURE killed client to open sandbox gone, ${place.name}: p50 ${Math.round(times[Math.floor(times.length / 2)] ?? 0)} ms, worst ${Math.round(worst)} ms over ${ROUNDS}\n`,
    );
    expect(worst).toBeLessThan(place.level === 'gvisor' ? 2000 : 1000);
    await untilTrue(() => reapersOf(bench).length === 0, 20_000);
    expect(sockets(bench)).toEqual([]);
  });

  it('is asked to end and ends its sandbox itself', async () => {
    const { child, said, ended } = await client(bench, { what: 'hold', commands: ['sleep 600'] });
    child.kill('SIGTERM');
    await ended;
    await gone(place.engine, said.containerId, 5000);
    expect(await exists(place.engine, said.containerId)).toBe(false);
  });
});
