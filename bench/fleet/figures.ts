// `npm run bench:fleet`: what a fleet costs: latency and rate of tasks that do nothing, durable writes, warm and real runs beside the
// same runs without a fleet, and logs with slow readers.
// Usage: [loop] [rate] [postgres] [warm] [real] [logs] [--tasks N] [--logs N] [--seconds N] [--socket PATH --image REFERENCE] [--write]

import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { packWorkspace } from '@acode/fleet';
import type { Fleet, FleetTask } from '@acode/fleet';
import { Acode } from '@acode/sandbox';
import type { RunResult } from '@acode/sandbox';
import { TestFleet } from './cluster.ts';
import { pause } from './hosts.ts';
import { Load } from './load.ts';
import { engineOf, fail, optionsOf, print } from './told.ts';

const LOOP = 400;
const ROUNDS = 8;
const WRITES = 25;
const RATE = 3000;
const IN_FLIGHT = 64;
const DEADLINE_MS = 10 * 60_000;
const WARM_ROUNDS = 30;
const REAL_ROUNDS = 7;
const FILL_MS = 1500;
const LOG_TASKS = 200;
const LOG_SECONDS = 20;
const LOG_RATE = 100_000;
const SLOW_READERS = 5;
const SLOW_MS = 250;
const OUTPUT = 10 * 1024 ** 2;

const { values, positionals } = optionsOf({
  tasks: { type: 'string' },
  logs: { type: 'string' },
  seconds: { type: 'string' },
});

/** A part of the bench: its name, what it came to, and whether that is what was asked for. */
interface Figure {
  readonly name: string;
  readonly text: string;
  readonly isOk: boolean;
}

const percentile = (figures: readonly number[], share: number): number =>
  figures.toSorted((one, other) => one - other)[Math.min(figures.length - 1, Math.floor(figures.length * share))] ?? 0;
const ms = (figure: number): string => `${figure.toFixed(1)} ms`;

async function within<Value>(
  settings: Parameters<typeof TestFleet.start>[0],
  work: (fleet: TestFleet, client: Fleet) => Promise<Value>,
): Promise<Value> {
  const fleet = await TestFleet.start(settings);
  try {
    return await work(fleet, await fleet.client());
  } finally {
    await fleet[Symbol.asyncDispose]();
  }
}

const plain = { real: null, label: 'none', canCut: false } as const;
const nothing = (fleet: Fleet, prefix: string, count: number, inFlight: number): Load =>
  new Load({
    fleet,
    prefix,
    pool: 'nothing',
    count,
    inFlight,
    commandOf: () => ['nothing', '0'],
    hasOwnIds: true,
    deadlineMs: DEADLINE_MS,
  });

async function loop(): Promise<Figure> {
  return within({ ...plain, engine: 'nats' }, async (fleet, client) => {
    await using engine = await fleet.engine();
    await nothing(client, 'before', 20, 1).done;
    const [times, writes]: [number[], number[]] = [[], []];
    for (let round = 0; round < ROUNDS; round += 1) {
      const load = nothing(client, `round-${round}`, Math.ceil(Number(values.tasks ?? LOOP) / ROUNDS), 1);
      await load.done;
      times.push(...load.ended.map(({ submittedAt, endedAt }) => endedAt - submittedAt));
      for (let at = 0; at < WRITES; at += 1) {
        const began = performance.now();
        await engine.write({ tenant: 'bench', id: `${round}-${at}` }, 0, 'nothing');
        writes.push(performance.now() - began);
      }
    }
    const [p50, p99, write] = [percentile(times, 0.5), percentile(times, 0.99), percentile(writes, 0.5)];
    return {
      name: 'a task that does nothing, one after another, from submit to result',
      text: `p50 ${ms(p50)}, p99 ${ms(p99)} over ${times.length} (asked: 10 and 50 ms); one durable write alone ${ms(write)}, of which a task waits for three`,
      isOk: p50 <= 10 && p99 <= 50,
    };
  });
}

async function rate(engine: 'nats' | 'postgres'): Promise<Figure> {
  return within({ ...plain, engine }, async (fleet, client) => {
    await nothing(client, 'before', 50, IN_FLIGHT).done;
    await pause(1000);
    const before = await fleet.writes();
    const count = Number(values.tasks ?? RATE);
    const began = performance.now();
    const load = nothing(client, 'many', count, IN_FLIGHT);
    await load.done;
    const perSecond = (load.ended.length / (performance.now() - began)) * 1000;
    await pause(1000);
    const writes = ((await fleet.writes()) - before) / count;
    const told = engine === 'nats' ? `, ${writes.toFixed(2)} durable writes each (asked: 4)` : '';
    return {
      name: `tasks that do nothing, ${IN_FLIGHT} at once, signed, ${engine}`,
      text: `${perSecond.toFixed(0)} tasks/s over ${load.ended.length} (asked: 110)${told}`,
      isOk: load.ended.length === count && perSecond >= 110 && writes <= 4,
    };
  });
}

interface Pair {
  readonly here: number[];
  readonly there: number[];
  warm: number;
}

// One round here, one in the fleet, in changing order.
async function interleaved(
  rounds: number,
  here: () => Promise<RunResult>,
  there: () => Promise<RunResult>,
): Promise<Pair> {
  const pair: Pair = { here: [], there: [], warm: 0 };
  for (let round = 0; round < rounds; round += 1)
    for (const isHere of round % 2 === 0 ? [true, false] : [false, true]) {
      await pause(FILL_MS);
      const began = performance.now();
      const { exitCode, warm } = await (isHere ? here() : there());
      if (exitCode !== 0) fail(`a command ended with ${exitCode}`);
      (isHere ? pair.here : pair.there).push(performance.now() - began);
      pair.warm += warm ? 1 : 0;
    }
  return pair;
}

async function beside(command: string, rounds: number, files: number, figure: (pair: Pair) => Figure): Promise<Figure> {
  const engine = engineOf(values) ?? fail('this needs a container engine');
  const label = randomBytes(6).toString('hex');
  const workspace = mkdtempSync('/var/tmp/acode-fleet-project-');
  for (let at = 0; at < files; at += 1) writeFileSync(join(workspace, `file-${at}.txt`), `${at}\n`.repeat(500));
  try {
    return await within({ engine: 'nats', real: engine, label, warm: 2 }, async (_, client) => {
      await using acode = await Acode.open({
        workspace,
        engine: { socket: engine.socket },
        config: { sandbox: { images: { default: engine.image } } },
        pool: { min: 2, max: 2 },
        profile: 'dev',
      });
      const policy = { image: engine.image, network: 'none', level: 'docker', workspace: 'fork', fork: 'new' } as const;
      const here = (): Promise<RunResult> =>
        acode.run(command, { policy: { ...policy, limits: { outputBytes: OUTPUT } } });
      const there = async (): Promise<RunResult> =>
        client.run(command, { pool: 'real', ...(files > 0 ? { workspace: await packWorkspace(workspace) } : {}) });
      // Every host has to have opened once.
      await Promise.all(Array.from({ length: 6 }, there));
      await here();
      return figure(await interleaved(rounds, here, there));
    });
  } finally {
    rmSync(workspace, { recursive: true, force: true });
  }
}

const warm = (): Promise<Figure> =>
  beside('true', WARM_ROUNDS, 0, ({ here, there, warm: count }) => {
    const more = percentile(there, 0.5) - percentile(here, 0.5);
    return {
      name: 'a warm sandbox of a fleet beside one of this host',
      text: `p50 ${ms(percentile(there, 0.5))} against ${ms(percentile(here, 0.5))}: ${ms(more)} more (asked: 10); ${count} of ${2 * WARM_ROUNDS} were warm`,
      isOk: more <= 10,
    };
  });

const real = (): Promise<Figure> =>
  beside(
    'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; cat file-*.txt | wc -c',
    REAL_ROUNDS,
    100,
    ({ here, there }) => {
      const ratio = percentile(there, 0.5) / percentile(here, 0.5);
      return {
        name: 'a run of a fleet beside the same run here, with a workspace of 100 files',
        text: `p50 ${ms(percentile(there, 0.5))} against ${ms(percentile(here, 0.5))}: ${ratio.toFixed(2)} times (asked: 1.15)`,
        isOk: ratio <= 1.15,
      };
    },
  );

interface Reading {
  bytes: number;
  readonly isSlow: boolean;
  /** How long after the end of the task the reader had everything, in milliseconds. */
  lagMs: number;
}

async function read(task: FleetTask, isSlow: boolean): Promise<Reading> {
  const reading: Reading = { bytes: 0, isSlow, lagMs: 0 };
  const ended = task.end().then(() => performance.now());
  for await (const { bytes } of task.logs()) {
    reading.bytes += bytes.length;
    if (isSlow) await pause(SLOW_MS);
  }
  const at = performance.now();
  reading.lagMs = at - (await ended);
  return reading;
}

async function logs(): Promise<Figure> {
  const [count, seconds] = [Number(values.logs ?? LOG_TASKS), Number(values.seconds ?? LOG_SECONDS)];
  const settings = { ...plain, engine: 'nats', fakeWorkers: Math.ceil(count / 48), logBytes: 1024 ** 3 } as const;
  return within(settings, async (_, client) => {
    const command = ['prints', String(LOG_RATE), String(seconds)];
    const tasks = await Promise.all(
      Array.from({ length: count }, (__, at) => client.submit(command, { id: `log-${at}`, pool: 'nothing' })),
    );
    const began = performance.now();
    const readings = await Promise.all(tasks.map((task, at) => read(task, at < SLOW_READERS)));
    const tookMs = performance.now() - began;
    const expected = LOG_RATE * seconds;
    const fast = readings.filter(({ isSlow }) => !isSlow);
    const slow = readings.filter(({ isSlow }) => isSlow);
    const whole = (some: readonly Reading[]): string =>
      `${some.filter(({ bytes }) => bytes === expected).length} of ${some.length} whole`;
    const lags = (some: readonly Reading[]): string =>
      `${(
        percentile(
          some.map(({ lagMs }) => lagMs),
          0.5,
        ) / 1000
      ).toFixed(1)} s and at most ${(Math.max(...some.map(({ lagMs }) => lagMs)) / 1000).toFixed(1)} s after the end`;
    const late = await read(client.task(`log-${count - 1}`), false);
    const rateMb = readings.reduce((sum, { bytes }) => sum + bytes, 0) / tookMs / 1000;
    return {
      name: `logs of ${count} tasks, ${LOG_RATE / 1000} kB/s each, ${SLOW_READERS} slow readers`,
      text: `fast: ${whole(fast)}, ${lags(fast)}; slow: ${whole(slow)}, ${lags(slow)}; read ${rateMb.toFixed(1)} MB/s in all; a late reader got ${late.bytes} of ${expected} bytes`,
      isOk: readings.every(({ bytes }) => bytes === expected) && late.bytes === expected,
    };
  });
}

const PARTS = {
  loop,
  rate: () => rate('nats'),
  postgres: () => rate('postgres'),
  warm,
  real,
  logs,
} as const;

let isWell = true;
for (const [name, part] of Object.entries(PARTS)) {
  if (positionals.length > 0 && !positionals.includes(name)) continue;
  const began = performance.now();
  const { text, isOk, name: row } = await part();
  print({ name: row, figures: text, isOk, tookMs: performance.now() - began }, values);
  isWell &&= isOk;
}
process.exit(isWell ? 0 : 1);
