// What a reaper becomes when its session is gone: removes everything on the engine that the session owned, lists again
// until nothing more appears, and ends. Stands alone: its text is given to Node when there is nobody left to load a library,
// so that nothing of an installation is read which a sandbox could have changed by then.
// @ts-check

import { appendFile, readdir, rm, stat } from 'node:fs/promises';
import { request } from 'node:http';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';

const CALL_MS = 10_000;
const CONNECT_MS = 1000;
// A create that was under way when the session died can still appear. An engine that takes its time for a list takes it
// for a create too, so how long is long enough depends on how fast it answers.
const QUIET_MS = 1000;
const MAX_QUIET_MS = 10_000;
const QUIET_PER_ANSWER = 8;
// An engine that is down may come back.
const GIVE_UP_MS = 15 * 60 * 1000;
const SLOWEST_MS = 500;
// What the engine does not remove is asked for ever less often.
const STUCK_MS = 2000;

/** @typedef {{ engineSocket: string, owner: string, uid: number, host: string, ownerSocket: string, journal: string, createMs: number }} Task */
/** @typedef {{ Id?: string, Name?: string, Names?: string[], Labels?: Record<string, string> | null }} Thing */
/** @typedef {{ kind: 'container' | 'network' | 'volume', id: string, name: string, sandboxId: string }} Removed */

/** @type {Task} */
const task = JSON.parse(process.argv[2] ?? '');
/** The nonces of what was being made when the session died, until it appears. */
const making = new Set((process.argv[3] ?? '').split(',').filter(Boolean));
/** How the names begin under which the session may have offered commands of its sandboxes: the first half of their ids. */
const offered = new Set();
const HALF_ID = 16;
const MAX_JOURNAL_BYTES = 1024 * 1024;

/**
 * Whether nobody listens on a socket.
 *
 * @param {string} path
 * @returns {Promise<boolean>}
 */
function isDead(path) {
  return new Promise(resolve => {
    const socket = connect(path);
    const end = (/** @type {boolean} */ dead) => {
      socket.destroy();
      resolve(dead);
    };
    socket.setTimeout(CONNECT_MS, () => end(false));
    socket.once('connect', () => end(false));
    socket.once('error', error => end('code' in error && error.code === 'ECONNREFUSED'));
  });
}

/** @type {Removed['kind'][]} */
const KINDS = ['container', 'network', 'volume'];
const LISTS = { container: '/containers/json?all=true&', network: '/networks?', volume: '/volumes?' };
/** @type {Record<Removed['kind'], (id: string) => string>} */
const REMOVALS = {
  container: id => `/containers/${encodeURIComponent(id)}?force=true&v=true`,
  network: id => `/networks/${encodeURIComponent(id)}`,
  volume: id => `/volumes/${encodeURIComponent(id)}`,
};

/**
 * What the engine did not answer about in time, and when it is asked again: later each time, since what it was asked before it still
 * has, and a connection for each.
 *
 * @type {Map<string, { at: number, waitMs: number }>}
 */
const unanswered = new Map();

/** How long the slowest list of this round took. */
let slowest = 0;

/**
 * One call of the engine’s API.
 *
 * @param {'GET' | 'DELETE'} method
 * @param {string} path
 * @returns {Promise<{ status: number, body: string }>}
 */
function call(method, path) {
  return new Promise((resolve, reject) => {
    const options = { socketPath: task.engineSocket, method, path, signal: AbortSignal.timeout(CALL_MS) };
    const sent = request(options, response => {
      let body = '';
      response.setEncoding('utf8').on('data', chunk => (body += chunk));
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
      response.on('error', reject);
    });
    sent.on('error', reject);
    sent.end();
  });
}

/**
 * What of a kind the session owns. The engine filters; the labels are compared again before anything is removed.
 *
 * @param {Removed['kind']} kind
 * @returns {Promise<Removed[]>}
 */
async function owned(kind) {
  const filters = encodeURIComponent(JSON.stringify({ label: [`acode.owner=${task.owner}`] }));
  const before = Date.now();
  const { status, body } = await call('GET', `${LISTS[kind]}filters=${filters}`);
  slowest = Math.max(slowest, Date.now() - before);
  if (status !== 200) throw new Error(`the engine answered ${status}`);
  const reply = JSON.parse(body);
  /** @type {Thing[]} */
  const things = (kind === 'volume' ? reply.Volumes : reply) ?? [];
  for (const { Labels: labels } of things) making.delete(labels?.['acode.nonce'] ?? '');
  const mine = things.filter(thing => isMine(kind, thing)).map(thing => described(kind, thing));
  for (const { sandboxId } of mine) offered.add(sandboxId.replaceAll('-', '').slice(0, HALF_ID));
  return mine;
}

/**
 * @param {Removed['kind']} kind
 * @param {Thing} thing
 * @returns {Removed}
 */
function described(kind, thing) {
  const name = nameOf(thing);
  return { kind, id: thing.Id ?? name, name, sandboxId: thing.Labels?.['acode.sandbox'] ?? '' };
}

/**
 * Containers have a list of names, networks and volumes one name. Podman gives a container an empty one besides.
 *
 * @param {Thing} thing
 */
function nameOf({ Name: name, Names: names }) {
  return names?.[0]?.replace(/^\//, '') ?? name ?? '';
}

/**
 * A container that runs from an image of a sandbox has its labels too, but not its name.
 *
 * @param {Removed['kind']} kind
 * @param {Thing} thing
 */
function isMine(kind, thing) {
  const labels = thing.Labels ?? {};
  return (
    labels['acode.managed'] === 'true' &&
    (kind !== 'container' || labels['acode.name'] === nameOf(thing)) &&
    labels['acode.owner'] === task.owner &&
    labels['acode.uid'] === String(task.uid) &&
    labels['acode.host'] === task.host &&
    labels['acode.keep'] !== 'true'
  );
}

/**
 * Removes one thing; says whether it is gone by that.
 *
 * @param {Removed} thing
 */
async function remove(thing) {
  const { status, body } = await call('DELETE', REMOVALS[thing.kind](thing.id));
  // Somebody else removes it already, or a container that is being removed still uses it: the next round will tell.
  if (status === 404 || status === 409 || (thing.kind === 'network' && status === 403)) return false;
  if (status >= 300) throw new Error(`${status} ${body}`);
  return true;
}

/**
 * Removes things of one kind, each on its own: one that cannot be removed must not keep the others.
 *
 * @param {Removed['kind']} kind
 */
async function removeAll(kind) {
  const things = await owned(kind);
  const due = things.filter(({ id }) => (unanswered.get(id)?.at ?? 0) <= Date.now());
  const outcomes = await Promise.allSettled(due.map(removeInTime));
  const removed = due.filter((_, at) => outcomes[at]?.status === 'fulfilled' && outcomes[at].value);
  await writeDown(removed);
  return { found: things.length, removed: removed.length };
}

/** @param {Removed} thing */
async function removeInTime(thing) {
  try {
    return await remove(thing);
  } catch (error) {
    if (error instanceof Error && error.name === 'AbortError') {
      const waitMs = 2 * (unanswered.get(thing.id)?.waitMs ?? CALL_MS);
      unanswered.set(thing.id, { at: Date.now() + waitMs, waitMs });
    }
    throw error;
  }
}

/** Removes what there is; says how much that was, and how much of it is gone. */
async function round() {
  const all = { found: 0, removed: 0 };
  /** @type {unknown[]} */
  const failures = [];
  slowest = 0;
  // Containers go first: the engine keeps what one of them still uses.
  for (const kind of KINDS) {
    try {
      const { found, removed } = await removeAll(kind);
      all.found += found;
      all.removed += removed;
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
  return all;
}

/**
 * Leaves word of what was removed for the next session, which tells whoever listens. Never in the way of removing.
 *
 * @param {Removed[]} removed
 */
async function writeDown(removed) {
  if (removed.length === 0) return;
  try {
    const { size } = await stat(task.journal).catch(() => ({ size: 0 }));
    if (size > MAX_JOURNAL_BYTES) return;
    await appendFile(task.journal, removed.map(thing => `${JSON.stringify(thing)}\n`).join(''), { mode: 0o600 });
  } catch {
    // A full disk must not keep a sandbox alive, and a directory that was removed meanwhile stays removed.
  }
}

/** @param {number} ms */
const pause = ms => new Promise(resolve => void setTimeout(resolve, ms));

/**
 * Whether the engine was gone in between: what it was making then has ended with it.
 *
 * @param {unknown} error
 */
function wasGone(error) {
  const { code } = /** @type {{ code?: unknown }} */ (error);
  return code === 'ECONNREFUSED' || code === 'ECONNRESET' || code === 'ENOENT';
}

const began = Date.now();
/** Since when the engine says that there is nothing; null while there is something, or it does not say. @type {number | null} */
let quietSince = null;
let wait = 50;
const quiet = () => Math.min(Math.max(QUIET_MS, QUIET_PER_ANSWER * slowest), MAX_QUIET_MS);
const isExpecting = () => making.size > 0 && Date.now() - began < task.createMs;
const isQuiet = () => quietSince !== null && Date.now() - quietSince >= quiet() && !isExpecting();
while (!isQuiet() && Date.now() - began < GIVE_UP_MS) {
  try {
    const { found, removed } = await round();
    quietSince = found > 0 ? null : (quietSince ?? Date.now());
    if (found > 0) wait = removed > 0 ? 50 : Math.min(wait * 2, STUCK_MS);
    else wait = Date.now() - (quietSince ?? 0) < 500 ? 50 : 250;
  } catch (error) {
    // The engine does not answer: quiet is only what it says itself.
    quietSince = null;
    wait = Math.min(wait * 2, SLOWEST_MS);
    if (wasGone(error)) making.clear();
  }
  await pause(wait);
}
// Where the session offered its commands to other processes, nobody listens any more.
const offers = join(dirname(dirname(task.ownerSocket)), 'commands');
const names = await readdir(offers).catch(() => []);
for (const name of names.filter(one => /^[0-9a-f]{16}-[0-9a-f]{8}~?$/.test(one))) {
  // With `~`, a socket has not answered yet: those of other sessions look dead for a moment.
  const isOver = name.endsWith('~') ? offered.has(name.slice(0, HALF_ID)) : await isDead(join(offers, name));
  if (isOver) await rm(join(offers, name), { force: true });
}
// The second is the name it has until it answers.
for (const path of [task.ownerSocket, `${task.ownerSocket}~`]) await rm(path, { force: true });
