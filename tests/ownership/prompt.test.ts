// A client that is killed: everything of it is gone, with no other acode process running.

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { oddSeconds, processesOf } from '../levels/host-processes.ts';
import { client } from '../sessions/clients.ts';
import { places } from '../sessions/places.ts';
import { withoutEngines } from '../support/engines.ts';
import { figure, until } from '../support/waiting.ts';
import { exists, gone, reapersOf, sleeping, sockets } from './victims.ts';

const ROUNDS = Number(process.env['ACODE_KILL_ROUNDS'] ?? 5);

async function rounds(what: string, maxMs: number, round: (at: number) => Promise<number>): Promise<void> {
  const times: number[] = [];
  for (let at = 0; at < ROUNDS; at += 1) times.push(await round(at));
  times.sort((one, other) => one - other);
  const nth = (share: number): number => times[Math.ceil(times.length * share) - 1] ?? Infinity;
  figure(`${what}, p50 of ${ROUNDS}`, nth(0.5), maxMs);
  figure(`${what}, p95 of ${ROUNDS}`, nth(0.95), maxMs);
}

describe.skipIf(withoutEngines).each(places)('when a client on $name is killed', ({ name, level, engine, lacks }) => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await Bench.at(engine);
  });
  afterEach(() => bench[Symbol.asyncDispose]());

  it('its sandbox is gone', { timeout: 300_000 }, async () => {
    await rounds(`killed client to sandbox gone, ${name}`, 1000, async at => {
      const { child, id } = await sleeping(bench, engine, `kill-${at}`);
      const before = performance.now();
      child.kill('SIGKILL');
      await gone(engine, id);
      const took = performance.now() - before;
      expect(await exists(engine, id)).toBe(false);
      return took;
    });
  });

  it('its persistent sandbox and three commands in it are gone', { timeout: 300_000 }, async () => {
    const maxMs = level === 'gvisor' ? 2000 : 1000;
    await rounds(`killed client to persistent sandbox gone, ${name}`, maxMs, async () => {
      const seconds = oddSeconds();
      const commands = [
        `sleep ${seconds}`,
        `trap "" TERM HUP INT; sleep ${seconds} & sleep ${seconds}`,
        `sh -c "sleep ${seconds} & wait" & wait`,
      ];
      const { child, said, ended } = await client(bench, { what: 'hold', commands });
      const seen = lacks['kernel walls'] === undefined;
      // The control: they run, and whoever looks for them finds them.
      if (seen) await until(() => processesOf(`sleep ${seconds}`).length === 4);
      expect(await exists(engine, said.containerId)).toBe(true);
      const before = performance.now();
      child.kill('SIGKILL');
      if (seen) await until(() => processesOf(`sleep ${seconds}`).length === 0);
      await gone(engine, said.containerId);
      const took = performance.now() - before;
      await ended;
      return took;
    });
    await until(() => reapersOf(bench).length === 0);
    expect(sockets(bench)).toEqual([]);
  });

  it('by a signal that it hears, it ends its persistent sandbox itself', async () => {
    const { child, said, ended } = await client(bench, { what: 'hold', commands: ['sleep 600'] });
    child.kill('SIGTERM');
    await ended;
    await gone(engine, said.containerId);
    expect(await exists(engine, said.containerId)).toBe(false);
  });
});
