// A swarm whose engine is restarted in the middle: what was committed stays, and the result is the same.

import { existsSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { Bench } from '../cli/bench.ts';
import { images } from '../support/engines.ts';
import { heal, make, trouble, withoutTrouble } from '../support/trouble.ts';
import { gitIn, makeRepository, writeTasks } from './swarms.ts';

const RESTARTS = Number(process.env['ACODE_SWARM_RESTARTS'] ?? 1);
const STORY = 'sleep 2; echo "$ACODE_SWARM_TASK $ACODE_STORY_ID" >> log-$ACODE_SWARM_TASK.txt';
const stories = [1, 2, 3].map(number => ({
  title: `step ${number}`,
  acceptance: [`grep -c . log-$ACODE_SWARM_TASK.txt | grep -qx ${number}`],
}));

const stateSchema = z.looseObject({
  id: z.string(),
  state: z.string(),
  tasks: z.array(z.looseObject({ id: z.string(), status: z.string(), branch: z.string() })),
});

describe.skipIf(withoutTrouble)('a swarm whose engine is restarted', { timeout: 120_000 * (RESTARTS + 1) }, () => {
  it('ends with the same trees and messages', async () => {
    await heal();
    await using bench = await Bench.at(trouble);
    rmSync(join(bench.workspace, '.git'), { recursive: true });
    makeRepository(bench.workspace, { submodule: false });
    const task = (id: string): object => ({ title: id, command: STORY, stories });
    writeTasks(bench.workspace, { one: task('one'), two: task('two') });
    const RUN = [
      'swarm',
      'run',
      '--yes',
      '--image',
      images.debian,
      '--memory',
      '256m',
      '--cpus',
      '0.5',
      '--parallel',
      '2',
    ];
    const status = async (): Promise<z.infer<typeof stateSchema>> =>
      stateSchema.parse(JSON.parse((await bench.call(['swarm', 'status', '--json'])).stdout.toString()));
    const result = async (): Promise<string[]> => {
      const { tasks, state } = await status();
      const log = (branch: string): string => gitIn(bench.workspace, 'log', '--format=%T %s', `main..${branch}`);
      return [state, ...tasks.map(({ id, branch, status: of }) => `${id} ${of} ${log(branch)}`)];
    };
    const events = async (): Promise<string> => {
      const file = join(bench.env['XDG_STATE_HOME'] ?? '', 'acode/swarms', (await status()).id, 'events.ndjson');
      return existsSync(file) ? readFileSync(file, 'utf8') : '';
    };
    expect((await bench.call(RUN)).status).toBe(0);
    const expected = await result();
    for (let restart = 0; restart < RESTARTS; restart += 1) {
      const swarms = join(bench.env['XDG_STATE_HOME'] ?? '', 'acode/swarms');
      const before = readdirSync(swarms).length;
      const { ended } = bench.start(RUN);
      await expect.poll(() => readdirSync(swarms).length, { timeout: 30_000 }).toBe(before + 1);
      await expect.poll(events, { timeout: 60_000 }).toMatch(/"status":"completed","commit"/);
      await setTimeout(Math.random() * 3000);
      await make('restart');
      const { status: first, stderr } = await ended;
      expect(await events(), stderr).toMatch(/"event":"fault"|"event":"swarm-finished"/);
      // Faults of the engine are tried again; a task that met too many of them is continued by a person.
      if (first !== 0) expect((await bench.call(['swarm', 'resume'])).status).toBe(0);
      expect(await result(), `restart ${restart}`).toEqual(expected);
      const done = (await events()).match(/"event":"story".*"status":"completed"/g) ?? [];
      expect(new Set(done.map(line => /"commit":"([0-9a-f]+)"/.exec(line)?.[1])).size).toBe(6);
    }
    await expect.poll(() => bench.left()).toEqual([]);
  });
});
