// `npm run chaos`: three sessions at once on an engine in trouble, their clients killed at random moments. Afterwards nothing of
// theirs may be left, nothing of a live one may have been removed, and every run that completed must have been right.
// Usage: node chaos.mjs [--runs N] [--seed S] [--socket PATH] [--control PATH]
// @ts-check

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { WatchedEngine, pause } from './chaos/engine.mjs';
import { live } from './chaos/life.mjs';
import { planOf } from './chaos/plan.mjs';

/** @typedef {import('./chaos/life.mjs').Lived} Lived */
/** @typedef {import('./chaos/life.mjs').Outcome} Outcome */

const ENGINES = '/run/acode-engines/engines.json';
const IMAGE = 'acode-test/busybox:1';
const GONE_MS = 2000;
// A run that began just before the engine was well can have met it while it was not.
const NEAR_MS = 500;
// However long others have the machine.
const MAX_WAIT_MS = 120_000;
// How long a reaper waits for what its client may have asked the engine to make just before it died.
const CREATE_MS = 30_000;
const NONCE = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '100' },
    seed: { type: 'string', default: String(Math.floor(Math.random() * 1e9)) },
    socket: { type: 'string' },
    control: { type: 'string' },
  },
});
const runs = Number(values.runs);
const seed = Number(values.seed);
const { socket, control } = engineOf();
const replay = `npm run chaos -- --runs ${runs} --seed ${seed}`;
console.log(`chaos: ${runs} runs, seed ${seed} (again: ${replay})`);

const top = mkdtempSync('/var/tmp/acode-chaos-');
const runtime = join(top, 'runtime');
const workspace = join(top, 'workspace');
const config = {
  sandbox: {
    images: { default: IMAGE },
    network: { allow_bridge: true },
    containers: { create_timeout_seconds: CREATE_MS / 1000 },
  },
};
mkdirSync(join(top, 'config', 'acode'), { recursive: true });
mkdirSync(join(workspace, '.git'), { recursive: true });
writeFileSync(join(top, 'config', 'acode', 'config.yml'), JSON.stringify(config));
const env = {
  CI: 'true',
  PATH: process.env['PATH'],
  HOME: join(top, 'home'),
  XDG_CONFIG_HOME: join(top, 'config'),
  XDG_STATE_HOME: join(top, 'state'),
  XDG_RUNTIME_DIR: runtime,
  DOCKER_HOST: `unix://${socket}`,
};

const engine = new WatchedEngine(socket, control);
const before = total(await engine.remains());
if (before > 0) fail([`${before} things of acode are on the engine already`]);

const began = Date.now();
engine.watch();
const { lives, troubles } = planOf(seed, runs);
// Counts the runs that are over; when all sessions are, there is nothing left to make trouble for.
const progress = { finished: 0, over: false };
/** @type {string[]} */
const complaints = [];
const place = { socket, workspace, config, env };
const sessions = lives.map(async own => {
  /** @type {Lived[]} */
  const lived = [];
  for (const life of own) lived.push(await live(life, place, () => (progress.finished += 1)));
  return lived;
});
const trouble = makeTrouble();
const lived = (await Promise.all(sessions)).flat();
progress.over = true;
await trouble;
await nextCommand();
const cleaned = await untilGone();
await engine.stop();
const tookMs = Date.now() - began;
rmSync(top, { recursive: true, force: true });
report();

function engineOf() {
  if (process.getuid?.() === 0) fail(['acode never runs as root; use `.ci/engines/as-user -- npm run chaos`']);
  const { socket: named, control: by } = values;
  const found = named && by ? { socket: named, control: by } : JSON.parse(readFileSync(ENGINES, 'utf8')).trouble;
  return found ?? fail(['the engine for trouble is not up; `npm run engines:up` starts it']);
}

async function makeTrouble() {
  for (const one of troubles) {
    while (progress.finished < one.after && !progress.over) await pause(20);
    if (progress.over) return;
    await engine.trouble(one).catch(error => complaints.push(`the engine could not be troubled: ${error}`));
  }
}

/** What a client left whose reaper was killed too is for the next command, so there is one after the last. */
async function nextCommand() {
  if (!lived.some(({ reaperKilled }) => reaperKilled)) return;
  const run = { id: -1, command: 'true', stdout: '', exitCode: 0, network: /** @type {const} */ ('none') };
  const life = { session: `chaos-${seed}-next`, client: /** @type {const} */ ('command'), runs: [run], kill: null };
  lived.push(await live(life, place, () => undefined));
}

/** Waits until everything is gone; says how long that took, by kind, from the last kill, end or answer on. */
async function untilGone() {
  const last = Math.max(...lived.map(({ killedAt, endedAt }) => killedAt ?? endedAt));
  /** @type {Record<string, number>} */
  const goneAfter = {};
  /** @type {Record<string, number>} */
  let left = {};
  for (;;) {
    const ms = Date.now() - engine.wellSince(last, Date.now());
    const found = await remaining(ms);
    left = found.left;
    note(left, ms, goneAfter);
    // A little longer than allowed, to say by how much; and never less, since a create under way may still appear.
    const isLate = (ms > 5 * GONE_MS && total(left) > 0) || Date.now() - last > MAX_WAIT_MS;
    const isOver = ms > GONE_MS && !found.isExpected && total(left) === 0;
    if (isOver || isLate) return { ...found, goneAfter };
    await pause(20);
  }
}

/** @type {(left: Record<string, number>, ms: number, goneAfter: Record<string, number>) => void} */
function note(left, ms, goneAfter) {
  for (const [kind, count] of Object.entries(left)) {
    if (count > 0) delete goneAfter[kind];
    else goneAfter[kind] ??= ms;
  }
}

/**
 * What is there. A client that died between saying that it makes something and asking for it leaves a reaper that cannot know:
 * so long as that waits it is expected.
 *
 * @param {number} ms since everything should be gone
 */
async function remaining(ms) {
  const all = processes();
  const expected = all.filter(({ expects }) => expects && ms < CREATE_MS + GONE_MS);
  const there = all.filter(one => !expected.includes(one));
  const known = Math.max(0, sockets().length - expected.length);
  const left = { ...(await engine.remains()), processes: there.length, sockets: known };
  return { left, there, isExpected: expected.length > 0 };
}

/** The clients and reapers that are there: a reaper knows the runtime directory, a client its session. */
function processes() {
  return readdirSync('/proc').flatMap(name => {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) return [];
    try {
      const words = readFileSync(`/proc/${name}/cmdline`, 'utf8');
      return words.includes(`${top}/`) || words.includes(`chaos-${seed}-`) ? [described(name, words.split('\0'))] : [];
    } catch {
      return [];
    }
  });
}

/**
 * A process, without the text of a whole program among its words.
 *
 * @param {string} pid
 * @param {string[]} words
 */
function described(pid, words) {
  const expects = (words.at(-2) ?? '').split(',').every(word => NONCE.test(word));
  return { pid, expects, words: words.map(word => word.slice(-300)).join(' ') };
}

function sockets() {
  return execFileSync('find', [top, '-type', 's'], { encoding: 'utf8' }).split('\n').filter(Boolean);
}

/** @param {Record<string, number>} counts */
function total(counts) {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

/** @param {Lived} life */
function* violationsOf({ life, outcomes, killedAt, stuck, complaint }) {
  const { session, client } = life;
  const told = new Set(outcomes.map(({ run }) => run.id));
  if (stuck) yield `${session} (${client}) hung`;
  else if (killedAt === null)
    for (const { id } of life.runs)
      if (!told.has(id)) yield `${session} (${client}): nothing was told of run ${id}: ${complaint.slice(-600)}`;
  for (const outcome of outcomes) {
    const why = wrong(outcome);
    if (why !== null) yield `${session} (${client}), run ${outcome.run.id}: ${why}`;
  }
}

/** @param {Outcome} outcome */
function wrong({ run, from, until, stdout, exitCode, code, hint, message }) {
  if (code !== undefined) {
    if (!code.startsWith('ACODE-') || !hint) return `an error without a code or a hint: ${code} ${message}`;
    return engine.inTrouble(from, until, NEAR_MS) ? null : `${code} without any trouble: ${message}`;
  }
  if (exitCode !== run.exitCode) return `exit code ${exitCode}, not ${run.exitCode}`;
  return stdout === run.stdout ? null : `printed ${JSON.stringify(stdout?.slice(-200))}`;
}

/** How long after a kill each of its containers was last seen, the engine being well; and how late one appeared. */
function cleanups() {
  const reaped = lived.filter(({ reaperKilled }) => !reaperKilled);
  const killed = new Map(reaped.flatMap(({ life, killedAt }) => (killedAt === null ? [] : [[life.session, killedAt]])));
  return [...engine.containers.values()].flatMap(({ id, session, firstSeen, lastSeen }) => {
    const at = killed.get(session);
    if (at === undefined || lastSeen < at) return [];
    const ms = lastSeen - engine.wellSince(at, lastSeen);
    return [{ id, session, at, ms, lateMs: Math.max(0, firstSeen - at) }];
  });
}

/** Containers that somebody else removed while their session lived, whatever else was wrong at the time. */
function takenFromTheLiving() {
  const over = new Map(lived.map(({ life, killedAt, endedAt }) => [life.session, killedAt ?? endedAt]));
  return lived.flatMap(({ life, cleared }) =>
    cleared.flatMap(({ id, reason, at }) => {
      const session = engine.containers.get(id)?.session ?? '';
      const until = over.get(session) ?? 0;
      return at < until
        ? [`${life.session} removed ${id} (${reason}) ${until - at} ms before the end of ${session}`]
        : [];
    }),
  );
}

function countCleared() {
  return lived.reduce((sum, one) => sum + one.cleared.length, 0);
}

function robbedSeconds() {
  const robbed = engine.windows.filter(({ what }) => what === 'robbed');
  return Math.round(robbed.reduce((sum, { from, until }) => sum + until - from, 0) / 1000);
}

function report() {
  const cleaning = cleanups();
  const violations = [
    ...complaints,
    ...takenFromTheLiving(),
    ...lived.flatMap(one => [...violationsOf(one)]),
    ...cleaning
      .filter(({ ms }) => ms > GONE_MS)
      .map(
        ({ id, session, at, ms }) =>
          `${session}: ${id} was still there ${ms} ms after its client was killed (${engine.troubleAround(at)})`,
      ),
    ...Object.entries(cleaned.left).flatMap(([kind, count]) => (count > 0 ? [`${count} ${kind} left`] : [])),
    ...cleaned.there.map(({ pid, words }) => `process ${pid} is still there: ${words}`),
    ...Object.entries(cleaned.goneAfter).flatMap(([kind, ms]) =>
      ms > GONE_MS ? [`the last ${kind} went only after ${ms} ms`] : [],
    ),
  ];
  const outcomes = lived.flatMap(one => one.outcomes);
  const failed = outcomes.filter(({ code }) => code !== undefined);
  const times = cleaning.map(({ ms }) => ms).sort((a, b) => a - b);
  /** @param {string} what */
  const count = what => engine.windows.filter(window => window.what === what).length;
  console.log(
    `FIGURE ${runs} runs in ${Math.round(tookMs / 1000)} s: ${outcomes.length - failed.length} right, ` +
      `${failed.length} ended by trouble with a code, ${lived.filter(one => one.killedAt !== null).length} clients killed ` +
      `(${lived.filter(one => one.reaperKilled).length} with their reapers), ${countCleared()} containers cleared away by others, ` +
      `${count('restart')} restarts, ${count('kill')} engine kills, ${count('pause')} freezes, ` +
      `${robbedSeconds()} s without the CPU; ` +
      `slowest cleanup ${times.at(-1) ?? 0} ms (median ${times[Math.floor(times.length / 2)] ?? 0}), ` +
      `latest container ${Math.max(0, ...cleaning.map(({ lateMs }) => lateMs))} ms after its client’s death, ` +
      `last process gone after ${cleaned.goneAfter.processes} ms; ${violations.length} violations; seed ${seed}`,
  );
  if (violations.length > 0) fail(violations);
}

/**
 * @param {string[]} why
 * @returns {never}
 */
function fail(why) {
  for (const line of why) console.error(`violation (seed ${seed}): ${line}`);
  process.exit(1);
}
