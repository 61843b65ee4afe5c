// A client that is killed: everything of it is gone within a second, with no other acode process running.

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { oddSeconds, processesOf } from '../levels/host-processes.ts';
import { client } from '../sessions/clients.ts';
import { places } from '../sessions/places.ts';
import { withoutEngines } from '../support/engines.ts';
import { exists, gone, reapersOf, sleeping, sockets, until } from './victims.ts';

const ROUNDS = Number(process.env['ACODE_KILL_ROUNDS'] ?? 5);

async function rounds(what: string, round: (at: number) => Promise<number>): Promise<number> {
  const times: number[] = [];
  for (let at = 0; at < ROUNDS; at += 1) times.push(await round(at));
  times.sort((one, other) => one - other);
  const nth = (share: number): number => times[Math.ceil(times.length * share) - 1] ?? Infinity;
  process.stdout.write(
    `FIGURE ${what}: p50 ${Math.round(nth(0.5))} ms, p95 ${Math.round(nth(0.95))} ms over ${ROUNDS}\n`,
  );
  return nth(0.95);
}

describe.skipIf(withoutEngines).each(places)('when a client on $name is killed', ({ name, level, engine, lacks }) => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await Bench.at(engine);
  });
  afterEach(() => bench[Symbol.asyncDispose]());

  it('its sandbox is gone within a second', { timeout: 300_000 }, async () => {
    const p95 = await rounds(`killed client to sandbox gone, ${name}`, async at => {
      const { child, id } = await sleeping(bench, engine, `kill-${at}`);
      const before = performance.now();
      child.kill('SIGKILL');
      await gone(engine, id, 10_000);
      return performance.now() - before;
    });
    expect(p95).toBeLessThan(1000);
  });

  it('its persistent sandbox and three commands in it are gone within a second', { timeout: 300_000 }, async () => {
    const p95 = await rounds(`killed client to persistent sandbox gone, ${name}`, async () => {
      const seconds = oddSeconds();
      const commands = [
        `sleep ${seconds}`,
        `trap "" TERM HUP INT; sleep ${seconds} & sleep ${seconds}`,
        `sh -c "sleep ${seconds} & wait" & wait`,
      ];
      const { child, said, ended } = await client(bench, { what: 'hold', commands });
      const seen = lacks['kernel walls'] === undefined;
      // The control: they run, and whoever looks for them finds them.
      if (seen) await until(() => processesOf(`sleep ${seconds}`).length === 4, 5000);
      expect(await exists(engine, said.containerId)).toBe(true);
      const before = performance.now();
      child.kill('SIGKILL');
      if (seen) await until(() => processesOf(`sleep ${seconds}`).length === 0, 10_000);
      await gone(engine, said.containerId, 10_000);
      const took = performance.now() - before;
      await ended;
      return took;
    });
    expect(p95).toBeLessThan(level === 'gvisor' ? 2000 : 1000);
    await until(() => reapersOf(bench).length === 0, 20_000);
    expect(sockets(bench)).toEqual([]);
  });

  it('by a signal that it hears, it ends its persistent sandbox itself', async () => {
    const { child, said, ended } = await client(bench, { what: 'hold', commands: ['sleep 600'] });
    child.kill('SIGTERM');
    await ended;
    await gone(engine, said.containerId, 10_000);
    expect(await exists(engine, said.containerId)).toBe(false);
  });
});
