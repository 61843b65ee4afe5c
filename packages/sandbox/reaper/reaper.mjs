// What a reaper becomes when its session is gone: removes everything on the engine that the session owned, lists again
// until nothing more appears, and ends. Stands alone: it is started when there is nobody left to load a library.
// @ts-check

import { appendFile, rm, stat } from 'node:fs/promises';
import { request } from 'node:http';

const CALL_MS = 10_000;
// A create that was under way when the session died can still appear. An engine that takes its time for a list takes it
// for a create too, so how long is long enough depends on how fast it answers.
const QUIET_MS = 1000;
const LONGEST_QUIET_MS = 10_000;
const QUIET_PER_ANSWER = 8;
// An engine that is down may come back.
const GIVE_UP_MS = 15 * 60 * 1000;
const SLOWEST_MS = 500;

/** @typedef {{ engineSocket: string, owner: string, uid: number, host: string, ownerSocket: string, journal: string }} Task */
/** @typedef {{ Id?: string, Name?: string, Names?: string[], Labels?: Record<string, string> | null }} Thing */
/** @typedef {{ kind: 'container' | 'network' | 'volume', id: string, name: string, sandboxId: string }} Removed */

/** @type {Task} */
const task = JSON.parse(process.argv[2] ?? '');
const MOST_JOURNAL_BYTES = 1024 * 1024;

/** @type {Removed['kind'][]} */
const KINDS = ['container', 'network', 'volume'];
const LISTS = { container: '/containers/json?all=true&', network: '/networks?', volume: '/volumes?' };
/** @type {Record<Removed['kind'], (id: string) => string>} */
const REMOVALS = {
  container: id => `/containers/${encodeURIComponent(id)}?force=true&v=true`,
  network: id => `/networks/${encodeURIComponent(id)}`,
  volume: id => `/volumes/${encodeURIComponent(id)}`,
};

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
  return things.filter(({ Labels: labels }) => isMine(labels ?? {})).map(thing => described(kind, thing));
}

/**
 * @param {Removed['kind']} kind
 * @param {Thing} thing
 * @returns {Removed}
 */
function described(kind, { Id: id, Name: name, Names: names, Labels: labels }) {
  const called = name ?? names?.[0]?.replace(/^\//, '') ?? '';
  return { kind, id: id ?? called, name: called, sandboxId: labels?.['acode.sandbox'] ?? '' };
}

/** @param {Record<string, string>} labels */
function isMine(labels) {
  return (
    labels['acode.managed'] === 'true' &&
    labels['acode.owner'] === task.owner &&
    labels['acode.uid'] === String(task.uid) &&
    labels['acode.host'] === task.host &&
    labels['acode.keep'] !== 'true'
  );
}

/**
 * Removes things of one kind; says which of them are gone by it.
 *
 * @param {Removed['kind']} kind
 */
async function removeAll(kind) {
  const things = await owned(kind);
  const removed = await Promise.all(
    things.map(async thing => {
      const { status, body } = await call('DELETE', REMOVALS[kind](thing.id));
      // Somebody else removes it already, or a container that is being removed still uses it: the next round will tell.
      if (status === 404 || status === 409 || (kind === 'network' && status === 403)) return null;
      if (status >= 300) throw new Error(`${status} ${body}`);
      return thing;
    }),
  );
  return { found: things.length, removed: removed.filter(thing => thing !== null) };
}

/** Removes what there is; says how much that was. */
async function round() {
  let found = 0;
  slowest = 0;
  // Containers go first: the engine keeps what one of them still uses.
  for (const kind of KINDS) {
    const done = await removeAll(kind);
    found += done.found;
    await writeDown(done.removed);
  }
  return found;
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
    if (size > MOST_JOURNAL_BYTES) return;
    await appendFile(task.journal, removed.map(thing => `${JSON.stringify(thing)}\n`).join(''), { mode: 0o600 });
  } catch {
    // A full disk must not keep a sandbox alive, and a directory that was removed meanwhile stays removed.
  }
}

/** @param {number} ms */
const pause = ms => new Promise(resolve => void setTimeout(resolve, ms));

const began = Date.now();
let last = began;
let wait = 50;
const quiet = () => Math.min(Math.max(QUIET_MS, QUIET_PER_ANSWER * slowest), LONGEST_QUIET_MS);
while (Date.now() - last < quiet() && Date.now() - began < GIVE_UP_MS) {
  try {
    if ((await round()) > 0) last = Date.now();
    wait = Date.now() - last < 500 ? 50 : 250;
  } catch {
    // The engine does not answer: quiet is only what it says itself.
    last = Date.now();
    wait = Math.min(wait * 2, SLOWEST_MS);
  }
  await pause(wait);
}
await rm(task.ownerSocket, { force: true });
