// What a keeper becomes when the time of a kept sandbox is over: removes it from the engine, and what was written down about
// it. Stands alone, like the reaper: nothing of an installation is read which a sandbox could have changed by then.
// @ts-check

import { appendFile, readFile, rm } from 'node:fs/promises';
import { request } from 'node:http';

const CALL_MS = 10_000;
// An engine that is down may come back.
const GIVE_UP_MS = 15 * 60 * 1000;
const SOONEST_MS = 100;
const SLOWEST_MS = 5000;
const LOOK_MS = 1000;

/** @typedef {{ engineSocket: string, sandboxId: string, uid: number, host: string, lease: string, record: string, journal: string }} Task */
/** @typedef {{ Id: string, Names?: string[], Labels?: Record<string, string> | null }} Container */

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

/** @param {Container} container */
function nameOf({ Names: names }) {
  return names?.[0]?.replace(/^\//, '') ?? '';
}

/**
 * The engine filters; the labels are compared again before anything is removed.
 *
 * @param {Container} container
 */
function isIt(container) {
  const labels = container.Labels ?? {};
  return (
    labels['acode.managed'] === 'true' &&
    labels['acode.name'] === nameOf(container) &&
    labels['acode.sandbox'] === task.sandboxId &&
    labels['acode.uid'] === String(task.uid) &&
    labels['acode.host'] === task.host &&
    labels['acode.keep'] === 'true'
  );
}

/** When its time is over: it may have been extended since this was started. Null where it was removed, with its lease. */
async function leaseEnd() {
  const text = await readFile(task.lease, 'utf8').catch(() => null);
  if (text === null) return null;
  const until = Date.parse(text.trim().split(' ')[0] ?? '');
  return Number.isFinite(until) ? until : 0;
}

async function removeIt() {
  const filters = encodeURIComponent(JSON.stringify({ label: [`acode.sandbox=${task.sandboxId}`] }));
  const { status, body } = await call('GET', `/containers/json?all=true&filters=${filters}`);
  if (status !== 200) throw new Error(`the engine answered ${status}`);
  /** @type {Container[]} */
  const found = JSON.parse(body);
  for (const container of found.filter(isIt)) {
    const reply = await call('DELETE', `/containers/${encodeURIComponent(container.Id)}?force=true&v=true`);
    if (reply.status >= 300 && reply.status !== 404 && reply.status !== 409) throw new Error(reply.body);
    const gone = { kind: 'container', id: container.Id, name: nameOf(container), sandboxId: task.sandboxId };
    // A full disk must not keep a sandbox alive.
    await appendFile(task.journal, `${JSON.stringify(gone)}\n`, { mode: 0o600 }).catch(() => undefined);
  }
}

/** @param {number} ms */
const pause = ms => new Promise(resolve => void setTimeout(resolve, ms));

let [wait, triedSince] = [SOONEST_MS, Infinity];
for (let until = await leaseEnd(); until !== null; until = await leaseEnd()) {
  const now = Date.now();
  if (until > now) {
    // Extended in its last moment. Nobody else would remove it at its new time.
    [wait, triedSince] = [SOONEST_MS, Infinity];
    await pause(LOOK_MS);
    continue;
  }
  triedSince = Math.min(triedSince, now);
  if (now - triedSince > GIVE_UP_MS) break;
  try {
    await removeIt();
    await rm(task.record, { force: true });
    await rm(task.lease, { force: true });
  } catch {
    await pause(wait);
    wait = Math.min(wait * 2, SLOWEST_MS);
  }
}
