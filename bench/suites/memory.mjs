// What this process pays for sandboxes that run and that wait, and whether a run takes longer beside many others.
// @ts-check

import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { EngineClient } from '../engine/client.mjs';
import { sandboxesLeft } from '../engine/labels.mjs';
import { percentile } from '../figures.mjs';
import { NAMES } from '../names.mjs';

/** @typedef {import('../context.mjs').Context} Context */
/** @typedef {import('../places.mjs').Place} Place */
/** @typedef {import('../tracking-client.mjs').Step} Step */
/** @typedef {import('../tracking-client.mjs').Waiting} Waiting */
/** @typedef {import('../tracking-client.mjs').Order} Order */

const CLIENT = fileURLToPath(new URL('../tracking-client.mjs', import.meta.url));
const MAX_MS = 1_800_000;
const MANY = 200;
const MB = 1e6;
// For a thousand sandboxes whose process is gone to be removed by its reaper.
const GONE_MS = 300_000;

/**
 * @param {Context} context
 * @param {Place} place
 */
export async function memory(context, place) {
  // Without an engine a sandbox is a process of this host; what one costs is not this process’s.
  if (!place.engine) return;
  const rounds = context.asked.quick && !context.asked.growth ? 5 : 15;
  const order = { options: context.optionsAt(place), rounds, run: context.run };
  const tracked = /** @type {Step[]} */ (await client(context, { ...order, steps: stepsOf(context, place) }));
  await gone(context, place.engine.socket);
  addTracked(context, place, tracked);
  const waiting = /** @type {Waiting[]} */ (await client(context, { ...order, steps: [], pool: { min: 16, max: 16 } }));
  await gone(context, place.engine.socket);
  addWaiting(context, place, waiting);
}

/**
 * A hundred kernels of their own keep a small machine busy by themselves: then it is that which is measured.
 *
 * @param {Context} context
 * @param {Place} place
 */
function stepsOf({ asked: { quick, growth } }, { level }) {
  if (level === 'gvisor' || (quick && !growth)) return [0, 1, 10, 32];
  return [0, 1, 10, 100, MANY, ...(growth && !quick ? [1000] : [])];
}

/**
 * A process of its own for each: what is measured is its memory.
 *
 * @param {Context} context
 * @param {Order} order
 * @returns {Promise<(Step | Waiting)[]>}
 */
async function client({ signal, top }, order) {
  /** @type {(Step | Waiting)[]} */
  const reports = [];
  const child = fork(CLIENT, [JSON.stringify(order)], {
    execArgv: ['--expose-gc'],
    cwd: top,
    signal: AbortSignal.any([signal, AbortSignal.timeout(MAX_MS)]),
    killSignal: 'SIGTERM',
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  let complaint = '';
  child.stderr?.on('data', chunk => (complaint = (complaint + String(chunk)).slice(-500)));
  child.on('message', message => void reports.push(/** @type {Step | Waiting} */ (message)));
  const code = await new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  if (code !== 0 && reports.length === 0) throw new Error(`ended with ${code}: ${complaint.trim().split('\n')[0]}`);
  return reports;
}

/**
 * What is measured next must not share the engine with what goes.
 *
 * @param {Context} context
 * @param {string} socket
 */
async function gone({ signal, complaints }, socket) {
  const engine = new EngineClient(socket);
  try {
    const left = await sandboxesLeft(engine, GONE_MS, signal);
    if (left > 0) complaints.push(`${left} sandboxes were left on ${socket}`);
  } finally {
    engine.close();
  }
}

/**
 * @param {Context} context
 * @param {Place} place
 * @param {readonly Step[]} steps
 */
function addTracked(context, place, steps) {
  const [none] = steps;
  const most = steps.at(-1);
  if (!none || !most) return;
  // The first sandbox loads what all of them use.
  const first = steps.find(({ tracked }) => tracked > 0) ?? none;
  for (const [name, of] of /** @type {const} */ ([
    [NAMES.resident, 'rss'],
    [NAMES.heap, 'heap'],
  ])) {
    const perSandbox = (most[of] - first[of]) / Math.max(1, most.tracked - first.tracked) / MB;
    context.add({ group: 'memory.tracked', place: place.name, name, unit: 'MB', better: 'less' }, [perSandbox]);
  }
  for (const step of steps) addStep(context, place, step, step === none ? NAMES.noneTracked : `beside ${step.tracked}`);
  const key = { group: 'growth.tracked', place: place.name, name: NAMES.mostTracked };
  if (most.tracked >= MANY) context.add({ ...key, unit: 'ms', better: 'less' }, withoutTheEngine(most, none));
  else context.miss(key, `${most.tracked} tracked: ${most.stopped ?? 'no more were asked for'}`);
}

/**
 * An engine with many containers is slower for everybody: what it became slower by for a plain client at the same moments
 * is not what tracking them costs.
 *
 * @param {Step} step
 * @param {Step} none
 */
function withoutTheEngine({ acode, bare }, none) {
  const slower = percentile(bare, 0.5) / percentile(none.bare, 0.5);
  return acode.map(ms => ms / slower);
}

/**
 * Beside the bare engine at the same moment.
 *
 * @param {Context} context
 * @param {Place} place
 * @param {Step} step
 * @param {string} name
 */
function addStep(context, place, { acode, bare }, name) {
  const of = { group: 'growth.tracked', place: place.name, unit: 'ms', better: /** @type {const} */ ('less') };
  context.add({ ...of, name, reference: name === NAMES.noneTracked }, acode);
  context.add({ ...of, name: `  the bare engine ${name}` }, bare);
}

/**
 * @param {Context} context
 * @param {Place} place
 * @param {readonly Waiting[]} reports
 */
function addWaiting(context, place, reports) {
  const key = { group: 'memory.waiting', place: place.name };
  const [report] = reports;
  if (!report || 'unavailable' in report)
    return context.miss({ ...key, name: NAMES.resident }, report?.unavailable ?? 'no value');
  const of = { ...key, unit: 'MB', better: /** @type {const} */ ('less') };
  context.add({ ...of, name: NAMES.resident }, [report.rss / report.waiting / MB]);
  context.add({ ...of, name: NAMES.heap }, [report.heap / report.waiting / MB]);
}
