// `npm run fleet:faults`: faults of servers and workers under load. No task may be lost, none may end twice, no sandbox may be left.
// Usage: [--only NAME[,NAME]] [--tasks N] [--real N] [--rounds N] [--socket PATH --image REFERENCE] [--no-real] [--write] [--list]

import { randomBytes } from 'node:crypto';
import { STREAMS, TestFleet, flipBit, truncate } from './cluster.ts';
import type { FleetSettings, RealEngine } from './cluster.ts';
import { containersWith, pause } from './hosts.ts';
import { Load, verdictOf } from './load.ts';
import type { Verdict } from './load.ts';
import { engineOf, fail, optionsOf, print } from './told.ts';

const FEW = { tasks: 2000, real: 50 };
const MANY = { tasks: 10_000, real: 300 };
const DEADLINE_MS = 15 * 60_000;
const AWAY_MS = 3000;
const IN_FLIGHT = 36;
const REAL_IN_FLIGHT = 6;
const GONE_MS = 30_000;
const MEDIAN_MS = 10_000;
const MAX_MS = 30_000;
// Every so often a task takes a while, so that there are some in the middle of their work.
const EVERY = 20;
const LONG_MS = 1000;
// Longer than a worker’s lease.
const PAST_LEASE_MS = 20_000;
const TASKS_STREAM = STREAMS[0];
const STATES_STREAM = STREAMS[1];

const { values } = optionsOf({
  only: { type: 'string' },
  tasks: { type: 'string' },
  real: { type: 'string' },
  rounds: { type: 'string' },
  'no-real': { type: 'boolean' },
  list: { type: 'boolean' },
  verbose: { type: 'boolean' },
});

/** One fault: what is done to the fleet, once or a few times in the middle of a load. */
interface Fault {
  readonly name: string;
  readonly engine: FleetSettings['engine'];
  readonly servers?: 3 | 4;
  readonly rounds?: number;
  readonly many?: boolean;
  readonly diskBytes?: number;
  readonly act: (fleet: TestFleet, round: number) => Promise<void>;
}

const serverOf = (fleet: TestFleet, at: number) => fleet.nats?.processes[at] ?? fail(`there is no server ${at}`);
const hostOf = (fleet: TestFleet, at: number) => fleet.hosts[at % fleet.hosts.length] ?? fail('there is no host');
const streamOf = (round: number): string => (round % 2 === 0 ? TASKS_STREAM : STATES_STREAM);

async function killed(fleet: TestFleet, at: number, awayMs = AWAY_MS): Promise<void> {
  await serverOf(fleet, at).end('SIGKILL');
  await pause(awayMs);
  await serverOf(fleet, at).start();
  await fleet.whole();
}

async function damaged(fleet: TestFleet, round: number, damage: (path: string) => void): Promise<void> {
  // The leader of a stream once, else one that follows.
  const stream = streamOf(round);
  const [follower = 0] = await fleet.followersOf(stream);
  const at = round === 2 ? await fleet.leaderOf(stream) : follower;
  await serverOf(fleet, at).end('SIGKILL');
  damage(fleet.blockOf(at, stream));
  await serverOf(fleet, at).start();
  await fleet.whole();
}

async function everyServer(fleet: TestFleet, work: (at: number) => Promise<void> | void): Promise<void> {
  await Promise.all((fleet.nats?.processes ?? []).map(async (_, at) => work(at)));
}

const FAULTS: readonly Fault[] = [
  { name: 'none', engine: 'nats', rounds: 0, act: () => Promise.resolve() },
  {
    name: 'leader killed',
    engine: 'nats',
    rounds: 12,
    many: true,
    act: async (fleet, round) => killed(fleet, await fleet.leaderOf(streamOf(round))),
  },
  {
    name: 'follower killed',
    engine: 'nats',
    rounds: 3,
    act: async (fleet, round) => killed(fleet, (await fleet.followersOf(streamOf(round)))[0] ?? 0),
  },
  {
    name: 'all servers killed',
    engine: 'nats',
    rounds: 2,
    act: async fleet => {
      await everyServer(fleet, at => serverOf(fleet, at).end('SIGKILL'));
      await pause(1000);
      await everyServer(fleet, at => serverOf(fleet, at).start());
      await fleet.whole();
    },
  },
  {
    name: 'two of three stopped around a kill',
    engine: 'nats',
    rounds: 2,
    act: async (fleet, round) => {
      const leader = await fleet.leaderOf(streamOf(round));
      const others = await fleet.followersOf(streamOf(round));
      for (const at of others) serverOf(fleet, at).signal('SIGSTOP');
      await pause(2000);
      await serverOf(fleet, leader).end('SIGKILL');
      await pause(1000);
      serverOf(fleet, leader).begin();
      for (const at of others) serverOf(fleet, at).signal('SIGCONT');
      await serverOf(fleet, leader).ready();
      await fleet.whole();
    },
  },
  {
    name: 'a server hangs',
    engine: 'nats',
    rounds: 2,
    act: async (fleet, round) => {
      const leader = await fleet.leaderOf(streamOf(round));
      serverOf(fleet, leader).signal('SIGSTOP');
      await pause(PAST_LEASE_MS);
      serverOf(fleet, leader).signal('SIGCONT');
      await fleet.whole();
    },
  },
  {
    name: 'a flipped bit in a block',
    engine: 'nats',
    rounds: 3,
    act: (fleet, round) => damaged(fleet, round, flipBit),
  },
  { name: 'a truncated block', engine: 'nats', rounds: 3, act: (fleet, round) => damaged(fleet, round, truncate) },
  {
    name: 'a peer removed under load',
    engine: 'nats',
    servers: 4,
    rounds: 2,
    act: async (fleet, round) => {
      const stream = streamOf(round);
      const [peer = 0] = await fleet.followersOf(stream);
      const answer = await fleet.ask(`$JS.API.STREAM.PEER.REMOVE.${stream}`, JSON.stringify({ peer: `n${peer}` }));
      if (!answer.includes('"success":true')) throw new Error(`the peer was not removed: ${answer}`);
      await pause(AWAY_MS);
      await fleet.whole();
    },
  },
  {
    name: 'the stream of tasks deleted',
    engine: 'nats',
    act: async fleet => void (await fleet.ask(`$JS.API.STREAM.DELETE.${TASKS_STREAM}`)),
  },
  {
    name: 'the stream of states deleted',
    engine: 'nats',
    act: async fleet => void (await fleet.ask(`$JS.API.STREAM.DELETE.${STATES_STREAM}`)),
  },
  {
    name: 'disk of one server full',
    engine: 'nats',
    diskBytes: 96 * 1024 ** 2,
    rounds: 2,
    act: async (fleet, round) => {
      const at = await fleet.leaderOf(streamOf(round));
      fleet.fillDisk(at);
      await pause(5000);
      await serverOf(fleet, at).end('SIGTERM');
      fleet.emptyDisk(at);
      await serverOf(fleet, at).start();
      await fleet.whole();
    },
  },
  {
    name: 'disks of all servers full',
    engine: 'nats',
    diskBytes: 96 * 1024 ** 2,
    act: async fleet => {
      await everyServer(fleet, at => fleet.fillDisk(at));
      await pause(5000);
      await everyServer(fleet, at => serverOf(fleet, at).end('SIGTERM'));
      await everyServer(fleet, at => fleet.emptyDisk(at));
      await everyServer(fleet, at => serverOf(fleet, at).start());
      await fleet.whole();
    },
  },
  ...(['nats', 'postgres'] as const).flatMap((engine): Fault[] => [
    {
      name: 'a worker killed',
      engine,
      rounds: 3,
      many: engine === 'nats',
      act: async (fleet, round) => {
        hostOf(fleet, round).signal('SIGKILL');
        await pause(AWAY_MS);
        await hostOf(fleet, round).restart();
      },
    },
    {
      name: 'a worker stopped past its lease',
      engine,
      act: async (fleet, round) => {
        hostOf(fleet, round).signal('SIGSTOP');
        await pause(PAST_LEASE_MS);
        hostOf(fleet, round).signal('SIGCONT');
      },
    },
    {
      name: 'a worker cut off',
      engine,
      act: async (fleet, round) => {
        hostOf(fleet, round).cut();
        await pause(PAST_LEASE_MS);
        hostOf(fleet, round).heal();
      },
    },
  ]),
  {
    name: 'the server killed',
    engine: 'postgres',
    rounds: 3,
    act: async fleet => {
      await fleet.postgres?.process.end('SIGKILL');
      await pause(AWAY_MS);
      await fleet.postgres?.process.start();
    },
  },
  {
    name: 'the server restarted',
    engine: 'postgres',
    rounds: 3,
    act: async fleet => {
      await fleet.postgres?.process.end('SIGINT');
      await fleet.postgres?.process.start();
    },
  },
  {
    name: 'the disk full',
    engine: 'postgres',
    diskBytes: 256 * 1024 ** 2,
    act: async fleet => {
      fleet.fillDisk(0);
      await pause(5000);
      fleet.emptyDisk(0);
      // It ends itself where it cannot write its log.
      await fleet.postgres?.process.end('SIGINT');
      await fleet.postgres?.process.start();
    },
  },
];

/** What a fault came to. */
interface Row {
  readonly name: string;
  readonly tasks: number;
  readonly real: number;
  readonly verdict: Verdict;
  readonly stalls: readonly number[];
  readonly slowestMs: number;
  readonly left: number | null;
  /** Whether there are limits for its stalls: for others than kills of leaders, the fault itself says how long it is. */
  readonly isLimited: boolean;
  readonly perSecond: number;
  readonly problems: readonly string[];
  readonly tookMs: number;
}

/** How much is done under a fault. */
interface Amount {
  readonly tasks: number;
  readonly real: number;
  readonly rounds: number;
}

async function shown(fault: Fault, amount: Amount, engine: RealEngine | null): Promise<Row> {
  const { engine: kind, servers, diskBytes } = fault;
  const label = randomBytes(6).toString('hex');
  const more = {
    ...(servers === undefined ? {} : { servers }),
    ...(diskBytes === undefined ? {} : { diskBytes }),
  };
  const fleet = await TestFleet.start({ engine: kind, real: engine, label, ...more });
  try {
    return await rowOf(fleet, fault, { ...amount, real: engine ? amount.real : 0 }, engine, label);
  } finally {
    await fleet[Symbol.asyncDispose]();
  }
}

async function rowOf(
  fleet: TestFleet,
  { act, engine: kind, name }: Fault,
  { tasks, real, rounds }: Amount,
  engine: RealEngine | null,
  label: string,
): Promise<Row> {
  const began = performance.now();
  const common = { fleet: await fleet.client(), deadlineMs: DEADLINE_MS };
  const load = new Load({
    ...common,
    prefix: `n-${label}`,
    pool: 'nothing',
    count: tasks,
    inFlight: IN_FLIGHT,
    commandOf: (_, at) => ['nothing', at % EVERY === 0 ? String(LONG_MS) : '0'],
  });
  const realLoad = new Load({
    ...common,
    prefix: `r-${label}`,
    pool: 'real',
    count: real,
    inFlight: REAL_IN_FLIGHT,
    commandOf: id => `sleep 0.2; echo ${id}`,
  });
  const telling = setInterval(() => {
    if (!values.verbose) return;
    console.error(`${load.ended.length} of ${tasks}, ${realLoad.ended.length} of ${real}`);
    for (const id of [...load.running, ...realLoad.running].slice(0, 3))
      void common.fleet
        .task(id)
        .state()
        .then(
          state => console.error(id, JSON.stringify(state)),
          error => console.error(id, String(error)),
        );
  }, 5000);
  const moments = await faulted(fleet, load, rounds, act);
  await Promise.all([load.done, realLoad.done]);
  clearInterval(telling);
  const journal = fleet.journal();
  const verdict = sum(await verdictOf(load, journal), await verdictOf(realLoad, journal));
  await fleet.endHosts();
  const times = load.ended.map(({ endedAt }) => endedAt);
  return {
    name: `${kind}: ${name}`,
    tasks,
    real,
    verdict,
    stalls: load.stalls(moments),
    slowestMs: Math.max(...[...load.ended, ...realLoad.ended].map(({ submittedAt, endedAt }) => endedAt - submittedAt)),
    left: engine && (await leftOf(engine, label)),
    isLimited: name === 'leader killed',
    perSecond: (times.length / (Math.max(...times) - Math.min(...times))) * 1000,
    problems: [...load.failures, ...realLoad.failures].slice(0, 3),
    tookMs: performance.now() - began,
  };
}

// Spread over the load; the next one begins when the last is healed.
async function faulted(fleet: TestFleet, load: Load, rounds: number, act: Fault['act']): Promise<number[]> {
  const moments: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const after = (load.options.count * (round + 1)) / (rounds + 1);
    while (load.ended.length < after && !load.isOver) await pause(20);
    moments.push(performance.now());
    await act(fleet, round);
    if (values.verbose)
      console.error(
        `round ${round}: ${((performance.now() - (moments.at(-1) ?? 0)) / 1000).toFixed(1)} s, ${load.ended.length} ended`,
      );
  }
  return moments;
}

async function leftOf({ socket }: RealEngine, label: string): Promise<number> {
  const end = performance.now() + GONE_MS;
  for (;;) {
    const left = await containersWith(socket, `com.example.fleet=${label}`);
    if (left === 0 || performance.now() > end) return left;
    await pause(200);
  }
}

function sum(one: Verdict, other: Verdict): Verdict {
  return {
    lost: one.lost + other.lost,
    byNonHolders: one.byNonHolders + other.byNonHolders,
    changed: one.changed + other.changed,
    endedTwice: one.endedTwice + other.endedTwice,
    begunAgain: one.begunAgain + other.begunAgain,
  };
}

function median(figures: readonly number[]): number {
  return figures.toSorted((one, other) => one - other)[Math.floor(figures.length / 2)] ?? 0;
}

function isRight({ verdict, stalls, left, isLimited }: Row): boolean {
  const { lost, byNonHolders, changed, endedTwice } = verdict;
  const isWhole = lost + byNonHolders + changed + endedTwice + (left ?? 0) === 0;
  if (!isLimited) return isWhole;
  return isWhole && median(stalls) <= MEDIAN_MS && Math.max(0, ...stalls) <= MAX_MS;
}

function figuresOf({ tasks, real, verdict, stalls, slowestMs, left, perSecond }: Row): string {
  const { lost, byNonHolders, changed, endedTwice, begunAgain } = verdict;
  const s = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;
  return [
    `${tasks} tasks and ${real} with sandboxes: ${lost} lost`,
    `${byNonHolders} ends by a worker without the claim`,
    `${endedTwice + changed} ended twice`,
    `${begunAgain} begun again`,
    `${stalls.length} faults, stall p50 ${s(median(stalls))}, max ${s(Math.max(0, ...stalls))}`,
    `slowest task ${s(slowestMs)}`,
    `${perSecond.toFixed(0)} tasks/s`,
    left === null ? 'sandboxes not counted' : `${left} sandboxes left`,
  ].join(', ');
}

function amountOf({ many = false, rounds = 1 }: Fault): Amount {
  const { tasks, real } = many ? MANY : FEW;
  return {
    tasks: Number(values.tasks ?? tasks),
    real: Number(values.real ?? real),
    rounds: Number(values.rounds ?? rounds),
  };
}

function told(row: Row): boolean {
  const isOk = isRight(row);
  print({ name: row.name, figures: figuresOf(row), isOk, tookMs: row.tookMs }, values);
  for (const problem of row.problems) console.log(`  ${problem}`);
  return isOk;
}

async function main(): Promise<boolean> {
  const named = values.only?.split(',');
  const wanted = FAULTS.filter(({ name, engine }) => !named || named.some(one => `${engine}: ${name}`.includes(one)));
  if (wanted.length === 0) fail(`no fault is called ${values.only}; see --list`);
  if (values.list) {
    for (const { name, engine } of wanted) console.log(`${engine}: ${name}`);
    return true;
  }
  if (process.getuid?.() === 0) fail('acode never runs as root; use `.ci/engines/as-user -- npm run fleet:faults`');
  const engine = values['no-real'] ? null : engineOf(values);
  let isWell = true;
  for (const fault of wanted) isWell = told(await shown(fault, amountOf(fault), engine)) && isWell;
  return isWell;
}

process.exitCode = (await main()) ? 0 : 1;
// A connection that hangs in a server that was stopped keeps the process.
process.exit();
