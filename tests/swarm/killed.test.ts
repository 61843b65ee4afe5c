// `acode swarm run`, whose client and whose orchestrator are killed with SIGKILL at random moments.

import { cpSync, existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { stateCopySchema } from '../../packages/swarm/src/record.ts';
import { Bench } from '../cli/bench.ts';
import { images, mainEngine, withoutEngines } from '../support/engines.ts';
import { heal, make, trouble } from '../support/trouble.ts';
import { gitIn, makeRepository, writeTasks } from './swarms.ts';

const KILLS = Number(process.env['ACODE_SWARM_KILLS'] ?? 1);
const CLIENT_KILLS = Number(process.env['ACODE_SWARM_CLIENT_KILLS'] ?? 1);
const MAX_WAIT_MS = 8000;
// The engine that may be restarted has the image of swarms only for the long test suite.
const RESTARTS = Number(process.env['ACODE_SWARM_RESTARTS'] ?? 0);

const STORY = 'sleep 0.7; echo "$ACODE_SWARM_TASK $ACODE_STORY_ID" >> log-$ACODE_SWARM_TASK.txt';
const stories = [1, 2].map(number => ({
  title: `step ${number}`,
  acceptance: [`grep -c . log-$ACODE_SWARM_TASK.txt | grep -qx ${number}`],
}));

const stateSchema = z.looseObject({
  id: z.string(),
  live: z.boolean(),
  state: z.string(),
  tasks: z.array(
    z.looseObject({ id: z.string(), status: z.string(), branch: z.string(), branchCommit: z.string().nullable() }),
  ),
});

describe.skipIf(withoutEngines)('a swarm', () => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await Bench.at(RESTARTS > 0 ? trouble : mainEngine);
    rmSync(join(bench.workspace, '.git'), { recursive: true });
    makeRepository(bench.workspace, { submodule: false });
    writeTasks(
      bench.workspace,
      Object.fromEntries(['one', 'two'].map(id => [id, { title: id, command: STORY, stories }])),
    );
  });
  afterEach(async () => {
    for (const pid of orchestrators(bench)) process.kill(pid, 'SIGKILL');
    await bench[Symbol.asyncDispose]();
  });
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
  const status = async (): Promise<z.infer<typeof stateSchema>> => {
    const { stdout } = await bench.call(['swarm', 'status', '--json']);
    return stateSchema.parse(JSON.parse(stdout.toString()));
  };
  // Trees and messages of both branches, without the name of the swarm.
  const result = async (): Promise<string> => {
    const { tasks, state } = await status();
    const branches = tasks.map(
      ({ id, branch, status: of }) =>
        `${id} ${of}\n${gitIn(bench.workspace, 'log', '--format=%T %s', `main..${branch}`)}`,
    );
    return [state, ...branches].join('\n');
  };

  it(
    `continues where it was: after ${KILLS} kills of its orchestrator and ${CLIENT_KILLS} of its client no story is lost or done twice`,
    { timeout: 60_000 * (KILLS + CLIENT_KILLS + 2) },
    async () => {
      const whole = await bench.call(RUN);
      expect(whole.status, whole.stderr).toBe(0);
      const expected = await result();
      expect(expected.match(/step/g)).toHaveLength(4);
      expect(expected).toContain('finished');

      for (let kill = 0; kill < KILLS; kill += 1) {
        const before = sockets(bench);
        const { ended } = bench.start(RUN);
        await untilListening(bench, before);
        await setTimeout(Math.random() * MAX_WAIT_MS);
        for (const pid of orchestrators(bench)) process.kill(pid, 'SIGKILL');
        await ended;
        await expect.poll(() => bench.left()).toEqual([]);
        // More than one resume: the second one may find nothing to do, and says so.
        const resumed = await bench.call(['swarm', 'resume']);
        expect([0, 125], `${resumed.stdout.toString()}${resumed.stderr}`).toContain(resumed.status);
        expect(await result(), `kill ${kill}`).toBe(expected);
      }

      for (let kill = 0; kill < CLIENT_KILLS; kill += 1) {
        const before = sockets(bench);
        const { child, ended } = bench.start(RUN);
        await untilListening(bench, before);
        await setTimeout(Math.random() * 2000);
        child.kill('SIGKILL');
        await ended;
        expect((await status()).live).toBe(true);
        await bench.call(['swarm', 'status', '--follow']);
        expect(await result(), `client kill ${kill}`).toBe(expected);
      }
      await expect.poll(() => bench.left()).toEqual([]);
    },
  );

  it.each(RESTARTS > 0 ? [RESTARTS] : [])(
    'continues where it was: after %i restarts and kills of its engine no story is lost or done twice',
    { timeout: 90_000 * (RESTARTS + 2) },
    async () => {
      const whole = await bench.call(RUN);
      expect(whole.status, whole.stderr).toBe(0);
      const expected = await result();
      for (let round = 0; round < RESTARTS; round += 1) {
        const before = sockets(bench);
        const { ended } = bench.start(RUN);
        await untilListening(bench, before);
        await setTimeout(Math.random() * MAX_WAIT_MS);
        await make(round % 2 === 0 ? 'restart' : 'kill');
        await heal();
        const first = await ended;
        const resumed = await bench.call(['swarm', 'resume']);
        const said = [first, resumed].map(({ stdout, stderr }) => `${stdout.toString()}${stderr}`).join('\n');
        const statuses = (await status()).tasks.map(task => task.status);
        expect(statuses, said).toEqual(['completed', 'completed']);
        expect(await result(), `round ${round}`).toBe(expected);
        await expect.poll(() => bench.left()).toEqual([]);
      }
    },
  );

  it('is stopped, listed and removed, and nothing of it is left but its branches', { timeout: 120_000 }, async () => {
    writeTasks(bench.workspace, { hangs: 'sleep 1000' });
    const before = sockets(bench);
    const { ended } = bench.start(RUN);
    await untilListening(bench, before);
    await expect.poll(async () => (await status()).tasks.find(({ id }) => id === 'one')?.status).toBe('running');
    expect((await bench.call(['swarm', 'run', '--yes'])).stderr).toContain('ACODE-SWM-008');

    // In a clone, the readable copy is another workspace’s: it is reported, and nothing is done because of it.
    const clone = `${bench.workspace}-clone`;
    cpSync(bench.workspace, clone, { recursive: true });
    const shown = await bench.call(['swarm', 'status', '--workspace', clone]);
    expect(shown.stderr).toContain('is of a swarm that you did not run on this machine');
    expect(shown.stderr).toContain('ACODE-SWM-007');
    for (const verb of [['stop'], ['resume'], ['retry', 'one'], ['discard', '--yes'], ['repair'], ['merge', '--yes']])
      expect((await bench.call(['swarm', ...verb, '--workspace', clone])).stderr, verb[0]).toContain('ACODE-SWM-007');
    const copy = join(bench.workspace, '.agent/swarm-state.json');
    writeFileSync(copy, '{"schema":"acode.swarm-state/1"');
    expect((await bench.call(['swarm', 'status'])).stderr).toContain('is not what acode writes');
    expect((await status()).live).toBe(true);
    expect((await bench.call(['swarm', 'repair'])).status).toBe(0);
    expect(stateCopySchema.parse(JSON.parse(readFileSync(copy, 'utf8'))).swarmId).toBe((await status()).id);
    expect((await bench.call(['swarm', 'stop'])).status).toBe(0);
    expect((await ended).status).toBe(1);
    const { tasks, id } = await status();
    expect(tasks.find(task => task.id === 'hangs')?.status).toBe('stopped');
    expect(tasks.map(task => task.status).filter(of => of !== 'stopped' && of !== 'completed')).toEqual([]);
    expect((await bench.call(['swarm', 'list'])).stdout.toString()).toContain(id.slice(0, 8));
    expect((await bench.call(['swarm', 'discard'])).status).toBe(2);
    expect((await bench.call(['swarm', 'discard', '--yes'])).status).toBe(0);
    expect((await bench.call(['swarm', 'list'])).stdout.toString()).toContain('There is no swarm');
    expect((await bench.call(['fork', 'list'])).stdout.toString()).not.toContain('sw-');
    expect((await bench.call(['swarm', '--help'])).stdout.toString()).not.toContain('orchestrate');
    await expect.poll(() => bench.left()).toEqual([]);
  });
});

function sockets({ env }: Bench): string[] {
  const runtime = join(env['XDG_RUNTIME_DIR'] ?? '', 'acode');
  return existsSync(runtime) ? readdirSync(runtime).filter(name => /^swarm-.*\.sock$/.test(name)) : [];
}

// An orchestrator that was killed leaves its socket.
async function untilListening(bench: Bench, before: readonly string[]): Promise<void> {
  await expect.poll(() => sockets(bench).some(name => !before.includes(name)), { timeout: 30_000 }).toBe(true);
}

// The orchestrators of this bench, and no other: the environment of a process names its directories.
function orchestrators({ env }: Bench): number[] {
  const own = `XDG_STATE_HOME=${env['XDG_STATE_HOME'] ?? ''}`;
  return readdirSync('/proc').flatMap(name => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const isOwn = readFileSync(`/proc/${name}/environ`, 'utf8').split('\0').includes(own);
      return isOwn && readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0').includes('orchestrate')
        ? [Number(name)]
        : [];
    } catch {
      return [];
    }
  });
}
