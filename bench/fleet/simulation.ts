// `npm run fleet:sim`: a day of a large fleet in virtual time: the real client, gates and worker’s side of grants on the engine in memory;
// hosts that only wait in place of sandboxes. Its faults: hosts die, a gate is cut off, a tenant dumps tasks, everybody asks ten times more.
// Usage: [--tasks N] [--hosts N] [--tenants N] [--slots N] [--calm] [--scale] [--svg FILE] [--write]

import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { Fleet } from '../../packages/fleet/src/client/fleet.ts';
import type { FleetEngine } from '../../packages/fleet/src/engine/engine.ts';
import type { Delivery } from '../../packages/fleet/src/engine/engine.ts';
import { MemoryEngine } from '../../packages/fleet/src/engine/memory.ts';
import { Dispatcher } from '../../packages/fleet/src/gate/dispatcher.ts';
import type { GateTenant } from '../../packages/fleet/src/gate/file.ts';
import type { GateLink } from '../../packages/fleet/src/engine/link.ts';
import { GateService } from '../../packages/fleet/src/gate/service.ts';
import { makeKeys, signed } from '../../packages/fleet/src/tasks/signature.ts';
import { FleetTasks } from '../../packages/fleet/src/tasks/tasks.ts';
import { GrantedTasks } from '../../packages/fleet/src/worker/granted.ts';
import { LeaseKeeper } from '../../packages/fleet/src/worker/lease-keeper.ts';
import { chart } from './chart.ts';
import { optionsOf, print } from './told.ts';
import { VirtualTime } from './virtual-time.ts';

const { values } = optionsOf({
  tasks: { type: 'string' },
  hosts: { type: 'string' },
  tenants: { type: 'string' },
  slots: { type: 'string' },
  calm: { type: 'boolean' },
  scale: { type: 'boolean' },
  figures: { type: 'boolean' },
  svg: { type: 'string' },
});
const number = (value: string | boolean | undefined, usual: number): number => Number(value ?? usual);
/** Ten million tasks a day. */
const RATE = 10_000_000 / 86_400;
const BUSY = 0.6;
const POOL = 'default';
/** The most at once: in a short simulation, a tenth of its tasks. */
const DUMP = 4000;
const MINUTE_MS = 60_000;
/** States are kept for a week; a simulation of a day would hold them all. */
const KEEP_MS = 600_000;
const BINS = 144;

const time = new VirtualTime();
const began = { at: process.hrtime.bigint() };

let seed = 42;
const random = (): number => {
  seed = (seed * 48_271) % 2_147_483_647;
  return seed / 2_147_483_647;
};
const exponential = (mean: number): number => -mean * Math.log(1 - random());

/** How often a value was seen, in steps of 5 %. */
class Spread {
  readonly #counts = new Map<number, number>();
  #all = 0;
  max = 0;

  add(value: number): void {
    const step = value < 1 ? 0 : Math.ceil(Math.log(value) / Math.log(1.05)) + 1;
    this.#counts.set(step, (this.#counts.get(step) ?? 0) + 1);
    this.#all += 1;
    this.max = Math.max(this.max, value);
  }

  at(share: number): number {
    let left = this.#all * share;
    for (const [step, count] of [...this.#counts].sort(([one], [other]) => one - other)) {
      left -= count;
      if (left <= 0) return step === 0 ? 0 : Math.min(this.max, 1.05 ** (step - 1));
    }
    return this.max;
  }

  toString(): string {
    const [p50, p99] = [this.at(0.5), this.at(0.99)].map(Math.round);
    return `p50 ${p50} ms, p99 ${p99} ms, max ${Math.round(this.max)} ms`;
  }
}

/** The engine as one party reaches it: it counts, and can be cut off. */
class Reach {
  static readonly calls = new Map<string, number>();
  readonly engine: FleetEngine;
  isCut = false;

  constructor(engine: FleetEngine) {
    this.engine = new Proxy(engine, {
      get: (target, name) => {
        const found: unknown = Reflect.get(target, name);
        if (typeof found !== 'function' || typeof name !== 'string') return found;
        return (...given: unknown[]): unknown => {
          Reach.calls.set(name, (Reach.calls.get(name) ?? 0) + 1);
          if (this.isCut) return Promise.reject(new Error('cut off'));
          if (name === 'write' && given[3] !== undefined) given[3] = shortened(given[3]);
          const result: unknown = Reflect.apply(found, target, given);
          return result;
        };
      },
    });
  }
}

function shortened(options: unknown): unknown {
  const isKept = typeof options === 'object' && options !== null && 'keepMs' in options;
  return isKept ? { ...options, keepMs: KEEP_MS } : options;
}

/** A task that was submitted and whose end was not read. */
interface Open {
  readonly tenant: string;
  readonly submittedAt: number;
  readonly kind: Kind;
  begun: number;
}
/** Of which tasks a wait is: those of a hundred tenants that ask most, and of all others by the time of day. */
type Kind =
  | 'others, usually'
  | 'others, beside the dump'
  | 'others, in the burst'
  | 'a hundred that ask most'
  | 'dump'
  | 'contended';
const MOST = 100;

interface Host {
  readonly worker: string;
  die(): void;
}

class Simulation {
  readonly engine = new MemoryEngine({ maxQueued: 50_000_000 });
  readonly tenants = new Map<string, GateTenant>();
  readonly clients: Fleet[] = [];
  readonly gates: { readonly reach: Reach; readonly service: GateService; readonly dispatcher: Dispatcher }[] = [];
  readonly hosts: Host[] = [];
  readonly open = new Map<string, Open>();
  readonly waits = new Map<Kind, Spread>();
  readonly begins = new Map<string, number>();
  readonly bins = Array.from({ length: BINS }, () => ({ begun: 0, waiting: 0, running: 0, wait: new Spread() }));
  readonly tasks: number;
  readonly slots: number;
  readonly hostCount: number;
  readonly untilMs: number;
  readonly taskMs: number;
  submitted = 0;
  ended = 0;
  failed = 0;
  begunAgain = 0;
  begunAfterEnd = 0;
  running = 0;
  kind: Kind = 'others, usually';
  burst = 1;
  contendedUntil = 0;

  constructor() {
    this.tasks = number(values.tasks, 20_000);
    this.hostCount = number(values.hosts, 650);
    this.slots = number(values.slots, 16);
    this.untilMs = (this.tasks / RATE) * 1000;
    this.taskMs = (BUSY * this.hostCount * this.slots * 1000) / RATE;
    for (let gate = 0; gate < 2; gate += 1) this.#openGate(gate);
  }

  async addTenants(): Promise<void> {
    const keys = makeKeys();
    for (let at = 0; at < number(values.tenants, 1000); at += 1) {
      const tenant = `t${at}`;
      this.tenants.set(tenant, { keys: [keys.publicKey], weight: 1, queue: 100_000 });
      this.clients.push(await Fleet.open({ tenant, keys, gate: new InProcess(this, tenant, at) }));
    }
  }

  #openGate(at: number): void {
    const reach = new Reach(this.engine);
    const shares = (): ReadonlyMap<string, GateTenant> => this.tenants;
    this.gates.push({
      reach,
      service: new GateService({ engine: reach.engine, gate: `gate_${at}`, pools: [POOL], tenants: shares }),
      dispatcher: new Dispatcher({ engine: reach.engine, pools: [POOL], shares, affinityMs: 200 }),
    });
  }

  /** One host; what it has is lost when it dies. */
  async addHost(): Promise<void> {
    const reach = new Reach(this.engine);
    const { engine } = reach;
    const worker = `host_${randomBytes(6).toString('hex')}`;
    const tasks = new FleetTasks(engine);
    const keys = makeKeys();
    const hot = new Set<string>();
    let isDead = false;
    const perform = async (delivery: Delivery): Promise<void> => {
      const { tenant, id } = delivery.task;
      const claiming = await tasks.claim(delivery, { worker, maxAttempts: 10, holds: () => false });
      if (claiming.is !== 'claimed') {
        if (claiming.is === 'busy') await delivery.release(100);
        return;
      }
      hot.delete(tenant);
      hot.add(tenant);
      if (hot.size > 40) for (const oldest of hot) if (hot.size > 40) hot.delete(oldest);
      this.begin(tenant, id);
      this.running += 1;
      await pause(exponential(this.taskMs));
      this.running -= 1;
      if (isDead) return new Promise(() => undefined);
      const { attempt, claim } = claiming.claim;
      const outcome = { tenant, id, attempt, claim, worker, logPieces: 0, result: { exitCode: 0 } };
      await tasks.finish(claiming.claim, 'succeeded', signed('result', JSON.stringify(outcome), keys));
      await delivery.done();
    };
    const lease = new LeaseKeeper(engine, worker, {
      body: () => JSON.stringify({ granted: true }),
      renewed: () => undefined,
      lost: () => undefined,
    });
    await lease.begin();
    const slots = (): number => this.slots;
    const granted = new GrantedTasks({
      engine,
      worker,
      pool: POOL,
      slots,
      hasSlot: () => true,
      hot: () => [...hot],
      perform,
    });
    const listening = await engine.listen({ worker }, text => void (isDead || granted.noticed(text)));
    this.hosts.push({
      worker,
      die: () => {
        isDead = true;
        granted.stop();
        void listening[Symbol.asyncDispose]();
        void lease.stop(false);
        reach.isCut = true;
      },
    });
  }

  begin(tenant: string, id: string): void {
    const open = this.open.get(id);
    if (!open) {
      this.begunAfterEnd += 1;
      return;
    }
    open.begun += 1;
    if (open.begun > 1) this.begunAgain += 1;
    const wait = time.now - open.submittedAt;
    const spread = this.waits.get(open.kind) ?? new Spread();
    this.waits.set(open.kind, spread);
    spread.add(wait);
    if (open.kind === 'contended' && time.now < this.contendedUntil)
      this.begins.set(tenant, (this.begins.get(tenant) ?? 0) + 1);
    const bin = this.bins[Math.min(BINS - 1, Math.floor((time.now / this.untilMs) * BINS))];
    if (!bin) return;
    bin.begun += 1;
    if (open.kind !== 'dump' && open.kind !== 'contended') bin.wait.add(wait);
  }

  async submit(at: number, kind: Kind): Promise<void> {
    this.submitted += 1;
    const id = `s${this.submitted}`;
    const tenant = `t${at}`;
    this.open.set(id, { tenant, submittedAt: time.now, kind, begun: 0 });
    try {
      const task = await this.clients[at]?.submit('true', { id });
      const end = await task?.end();
      if (end?.state === 'succeeded') this.ended += 1;
      else this.failed += 1;
      this.open.delete(id);
    } catch {
      this.failed += 1;
    }
  }

  /** Submits all day long: few tenants much, many a little. */
  async arrive(): Promise<void> {
    const { size } = this.tenants;
    const shares = Array.from({ length: size }, (_, at) => 1 / (at + 1) ** 0.8);
    const all = shares.reduce((sum, share) => sum + share, 0);
    const cumulated: number[] = [];
    for (const share of shares) cumulated.push((cumulated.at(-1) ?? 0) + share / all);
    const tenantOf = (part: number): number =>
      Math.max(
        0,
        cumulated.findIndex(sum => sum >= part),
      );
    let nextAt = time.now;
    while (time.now < this.untilMs) {
      nextAt += exponential(1000 / (RATE * this.burst));
      if (nextAt > time.now) await pause(nextAt - time.now);
      const tenant = tenantOf(random());
      void this.submit(tenant, tenant < MOST ? 'a hundred that ask most' : this.kind);
    }
  }

  /** What goes wrong, each a while after the other. */
  async faults(): Promise<void> {
    const step = this.untilMs / 8;
    await pause(step);
    const dying = this.hosts.splice(0, Math.ceil(this.hosts.length / 20));
    for (const host of dying) host.die();
    await pause(step / 2);
    await Promise.all(dying.map(() => this.addHost()));
    await pause(step / 2);
    const leader = this.gates.find(({ dispatcher }) => dispatcher.isLeading);
    if (leader) leader.reach.isCut = true;
    await pause(Math.min(20_000, step));
    if (leader) leader.reach.isCut = false;
    await pause(step);
    this.kind = 'others, beside the dump';
    for (let one = 0; one < Math.min(DUMP, this.tasks / 10); one += 1) void this.submit(0, 'dump');
    await pause(step);
    this.kind = 'others, usually';
    // A hundred tenants want twice what there is.
    const all = this.slots * this.hostCount;
    this.contendedUntil = time.now + Math.max(100, Math.min(MINUTE_MS, this.taskMs));
    for (let tenant = 0; tenant < MOST; tenant += 1)
      for (let one = 0; one < Math.min(all / 25, this.tasks / 500); one += 1) void this.submit(tenant, 'contended');
    await pause(step);
    this.kind = 'others, in the burst';
    this.burst = 10;
    await pause(Math.min(MINUTE_MS, this.untilMs / 50));
    this.burst = 1;
    await pause(step);
    this.kind = 'others, usually';
  }

  async watch(): Promise<void> {
    for (const [at, bin] of this.bins.entries()) {
      await pause(Math.max(0, ((at + 1) * this.untilMs) / BINS - time.now));
      bin.running = this.running;
      bin.waiting = this.open.size - this.running;
    }
  }

  /** 1: all tenants got the same in the contended minute. */
  get jain(): number {
    const got = Array.from({ length: MOST }, (_, at) => this.begins.get(`t${at}`) ?? 0);
    const sum = got.reduce((all, one) => all + one, 0);
    return sum === 0 ? 1 : sum ** 2 / (got.length * got.reduce((all, one) => all + one ** 2, 0));
  }
}

/** A client whose gates are in this process: each stays with one for as long as that answers. */
class InProcess implements GateLink {
  readonly #simulation: Simulation;
  readonly #tenant: string;
  #at: number;

  constructor(simulation: Simulation, tenant: string, at: number) {
    this.#simulation = simulation;
    this.#tenant = tenant;
    this.#at = at;
  }

  async call(message: Uint8Array): Promise<Uint8Array> {
    for (;;) {
      const { gates } = this.#simulation;
      const gate = gates[this.#at % gates.length];
      const answer = gate && !gate.reach.isCut ? await gate.service.answer(this.#tenant, message) : null;
      if (answer) return answer;
      this.#at += 1;
      await pause(100);
    }
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

async function started(simulation: Simulation, hosts: number): Promise<void> {
  const starting = (async () => {
    for (let host = 0; host < hosts; host += 1) await simulation.addHost();
  })();
  await time.run(5000);
  await starting;
}

async function day(): Promise<void> {
  time.install();
  const simulation = new Simulation();
  const { tasks, hostCount, untilMs } = simulation;
  await simulation.addTenants();
  await started(simulation, hostCount);
  const cpu = process.cpuUsage();
  Reach.calls.clear();
  void simulation.arrive();
  void simulation.watch();
  if (!values.calm) void simulation.faults();
  await time.run(untilMs + 5000);
  // What is still under way may end.
  await time.run(untilMs * 3 + 600_000, () => simulation.open.size === 0);
  const used = process.cpuUsage(cpu);
  const { submitted, ended, failed, begunAgain, begunAfterEnd, jain } = simulation;
  const cpuUs = (used.user + used.system) / submitted;
  const calls = [...Reach.calls].sort(([one], [other]) => one.localeCompare(other));
  const durable = ['enqueue', 'write', 'putBlob', 'appendLog'];
  const each = (name: string): number => (Reach.calls.get(name) ?? 0) / submitted;
  const writes = durable.reduce((sum, name) => sum + each(name), 0);
  const told = {
    submitted,
    lost: submitted - ended,
    cpuUs,
    writes,
    reads: each('read') + each('queued') + each('pick'),
    rssMiB: process.memoryUsage.rss() / 2 ** 20,
  };
  if (values.figures) {
    process.stdout.write(`${JSON.stringify(told)}\n`);
    return;
  }
  const waits = [...simulation.waits].map(([kind, spread]) => `${kind}: ${String(spread)}`).join('; ');
  const isOk = ended + failed === submitted && failed + begunAfterEnd === 0 && (values.calm === true || jain > 0.9);
  const about = `${tasks} tasks of ${simulation.tenants.size} tenants on ${hostCount} hosts with ${simulation.slots} slots, ${(untilMs / 3_600_000).toFixed(2)} h`;
  const figures = `${about}: ${submitted} submitted, ${submitted - ended} lost, ${begunAgain} begun again, ${begunAfterEnd} begun after their end; waits: ${waits}${values.calm ? '' : `; Jain index of a contended minute ${jain.toFixed(3)}`}; ${writes.toFixed(2)} durable writes and ${cpuUs.toFixed(0)} µs of CPU a task, ${told.rssMiB.toFixed(0)} MiB`;
  const tookMs = Number(process.hrtime.bigint() - began.at) / 1e6;
  for (const [name, count] of calls) console.log(`  ${name}: ${(count / submitted).toFixed(2)} a task`);
  print({ name: `simulation of ${tasks} tasks`, figures, isOk, tookMs }, values);
  if (values.svg !== undefined) writeFileSync(values.svg, chart(simulation.bins, untilMs));
  process.exitCode = isOk ? 0 : 1;
}

/** The same in several sizes: what a task costs stays what it is. */
function scale(): void {
  const sizes = [
    [10_000, 10],
    [10_000, 650],
    [100_000, 10],
    [100_000, 650],
    ...(number(values.tasks, 0) > 100_000 ? [[number(values.tasks, 0), 650]] : []),
  ] as const;
  const rows = sizes.map(([tasks, hosts]) => {
    const words = [...process.execArgv, process.argv[1] ?? '', '--figures', '--calm', '--tasks', String(tasks)];
    const said = execFileSync(process.execPath, [...words, '--hosts', String(hosts)], { encoding: 'utf8' });
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const told = JSON.parse(said) as { cpuUs: number; writes: number; reads: number; lost: number };
    console.log(
      `  ${tasks} tasks, ${hosts} hosts: ${told.writes.toFixed(3)} writes, ${told.reads.toFixed(2)} reads, ${told.cpuUs.toFixed(0)} µs`,
    );
    return told;
  });
  const [most, least] = [Math.max, Math.min].map(of => of(...rows.map(({ cpuUs }) => cpuUs)));
  const writes = rows.map(row => row.writes.toFixed(3));
  const isOk = new Set(writes).size === 1 && (most ?? 0) <= 1.3 * (least ?? 0) && rows.every(({ lost }) => lost === 0);
  const ratio = ((most ?? 0) / (least ?? 1)).toFixed(2);
  const texts = sizes.map(([tasks, hosts], at) => `${tasks}/${hosts}: ${rows[at]?.cpuUs.toFixed(0)} µs`).join(', ');
  const figures = `tasks/hosts: ${texts}; ${[...new Set(writes)].join(' and ')} durable writes a task; CPU of the dearest ${ratio} times that of the cheapest (asked: 1.30)`;
  print(
    { name: 'simulation in several sizes', figures, isOk, tookMs: Number(process.hrtime.bigint() - began.at) / 1e6 },
    values,
  );
  process.exitCode = isOk ? 0 : 1;
}

if (values.scale) scale();
else await day();
