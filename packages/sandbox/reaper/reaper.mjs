// What a reaper becomes when its session is gone: removes everything on the engine that the session owned, lists again
// until nothing more appears, and ends. Stands alone: it is started when there is nobody left to load a library.
// @ts-check

import { rm } from 'node:fs/promises';
import { request } from 'node:http';

const CALL_MS = 10_000;
// A create that was under way when the session died can still appear; an engine that is down may come back.
const QUIET_MS = 3000;
const GIVE_UP_MS = 15 * 60 * 1000;
const SLOWEST_MS = 2000;

/** @typedef {{ engineSocket: string, owner: string, uid: number, host: string, ownerSocket: string }} Task */
/** @typedef {{ Id: string, Labels?: Record<string, string> | null }} Thing */

/** @type {Task} */
const task = JSON.parse(process.argv[2] ?? '');

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
 * @param {string} path
 * @returns {Promise<Thing[]>}
 */
async function owned(path) {
  const filters = encodeURIComponent(JSON.stringify({ label: [`acode.owner=${task.owner}`] }));
  const { status, body } = await call('GET', `${path}${path.includes('?') ? '&' : '?'}filters=${filters}`);
  if (status !== 200) throw new Error(`the engine answered ${status}`);
  /** @type {Thing[]} */
  const things = JSON.parse(body);
  return things.filter(({ Labels: labels }) => isMine(labels ?? {}));
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

/** @param {string} path */
async function remove(path) {
  const { status, body } = await call('DELETE', path);
  if (status >= 300 && status !== 404 && status !== 409) throw new Error(`${status} ${body}`);
}

/** Removes what there is; says how much that was. */
async function round() {
  const containers = await owned('/containers/json?all=true');
  await Promise.all(containers.map(({ Id: id }) => remove(`/containers/${id}?force=true&v=true`)));
  const networks = await owned('/networks');
  await Promise.all(networks.map(({ Id: id }) => remove(`/networks/${id}`)));
  return containers.length + networks.length;
}

/** @param {number} ms */
const pause = ms => new Promise(resolve => void setTimeout(resolve, ms));

const began = Date.now();
let last = began;
let wait = 50;
while (Date.now() - last < QUIET_MS && Date.now() - began < GIVE_UP_MS) {
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
