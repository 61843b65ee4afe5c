// A process that holds more and more sandboxes, or a pool of them, and tells its parent what that costs it at each step.
// Started by suites/memory.mjs with its order as JSON.
// @ts-check

import { readFileSync } from 'node:fs';
import { AcodeCandidate } from './candidates/acode.mjs';
import { BareEngine } from './candidates/bare-engine.mjs';
import { interleave, pause, reasonOf } from './rounds.mjs';

/**
 * @typedef {object} Order
 * @property {import('@acode/sandbox').AcodeOptions} options
 * @property {readonly number[]} steps
 * @property {number} rounds
 * @property {string} run
 * @property {{ min: number, max: number }} [pool]
 */

/** @typedef {{ tracked: number, rss: number, heap: number, acode: number[], bare: number[], stopped?: string }} Step */
/** @typedef {{ waiting: number, rss: number, heap: number } | { unavailable: string }} Waiting */
/** @typedef {import('@acode/sandbox').RunningCommand} RunningCommand */

// As many as one host runs at once.
const EACH = 16;
const AT_ONCE = 4;
const TURN_MS = 60_000;
const MAX_MS = 1_700_000;
// The machine needs some of it for itself.
const LEAST_FREE_KB = 3 * 1024 ** 2;

/** @type {Order} */
const order = JSON.parse(process.argv[2] ?? '{}');
const { socket } = order.options.engine ?? { socket: '' };
const signal = AbortSignal.timeout(MAX_MS);
/** @type {AcodeCandidate[]} */
const hosts = [];
/** @type {RunningCommand[]} */
const running = [];

const measured = await open(null);
const { engineRequest } = await measured.acode.explain(['echo', 'hi']);
const bare = await BareEngine.open(socket, /** @type {Record<string, unknown>} */ (engineRequest), order.run, signal);
try {
  if (order.pool) await waiting(order.pool);
  else await tracking();
} finally {
  // One after the other: told to remove a thousand sandboxes at once, an engine may never answer again.
  for (const host of hosts) await host.close().catch(() => undefined);
  await Promise.allSettled([measured.close(), bare.close()]);
}
process.disconnect?.();

/** @param {{ min: number, max: number } | null} pool */
function open(pool) {
  const options = { ...order.options, maxConcurrent: EACH };
  return AcodeCandidate.open(options, { pool, signal });
}

async function tracking() {
  // Loads and compiles what every run uses, so that no step pays for it.
  await times(Math.max(10, order.rounds));
  for (const step of order.steps) {
    const stopped = await holdSandboxes(step);
    const sample = await memory();
    const { acode, bare: bareTimes } = await times(order.rounds);
    tell({ tracked: running.length, ...sample, acode, bare: bareTimes, ...(stopped === null ? {} : { stopped }) });
    if (stopped !== null) break;
  }
}

/**
 * @param {number} count
 * @returns {Promise<string | null>} Why there are not so many.
 */
async function holdSandboxes(count) {
  while (running.length < count) {
    if (freeKb() < LEAST_FREE_KB) return 'the machine has no more memory';
    if (running.length >= hosts.length * EACH) hosts.push(await open(null));
    const host = hosts.at(-1);
    const more = Math.min(AT_ONCE, count - running.length, hosts.length * EACH - running.length);
    const started = await Promise.allSettled(
      // It waits for its input to end, for as long as it is held.
      Array.from({ length: more }, async () => host?.acode.spawn(['cat'], { signal, policy: { timeoutMs: MAX_MS } })),
    );
    for (const one of started) {
      if (one.status === 'rejected') return reasonOf(one.reason);
      if (!one.value) continue;
      one.value.result.catch(() => undefined);
      running.push(one.value);
    }
  }
  return null;
}

/** @param {{ min: number, max: number }} pool */
async function waiting(pool) {
  await times(Math.max(10, order.rounds));
  const before = await memory();
  try {
    const host = await open(pool);
    hosts.push(host);
    const after = await memory();
    tell({ waiting: host.waiting, rss: after.rss - before.rss, heap: after.heap - before.heap });
  } catch (error) {
    tell({ unavailable: reasonOf(error) });
  }
}

/** @param {number} rounds */
async function times(rounds) {
  const turns = await interleave(
    [measured, bare].map(candidate => ({
      name: candidate.name,
      settled: () => candidate.settled(),
      turn: async (/** @type {AbortSignal} */ until) => (await candidate.echo(until)).resultMs,
    })),
    { rounds, signal, turnMs: TURN_MS },
  );
  return { acode: turns.get(measured.name)?.values ?? [], bare: turns.get(bare.name)?.values ?? [] };
}

async function memory() {
  // What was just let go of is only free after it was looked at twice, and what was sent is gone a moment later.
  for (let again = 0; again < 3; again += 1) {
    globalThis.gc?.();
    await pause(100);
  }
  const { rss, heapUsed, external } = process.memoryUsage();
  return { rss, heap: heapUsed + external };
}

function freeKb() {
  return Number(/^MemAvailable:\s+(\d+)/m.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1] ?? 0);
}

/** @param {Step | Waiting} report */
function tell(report) {
  process.send?.(report);
}
