// The engine of a chaos run, seen from outside: what is on it at any time, when it answered, and the trouble made with it.
// @ts-check

import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import { createConnection } from 'node:net';

/** @typedef {{ id: string, session: string, firstSeen: number, lastSeen: number }} Seen */
/** @typedef {{ from: number, until: number, what: string }} Window */

const POLL_MS = 60;
// What others took of the machine's CPU time, in a second, for which nobody can be late.
const SAMPLE_MS = 1000;
const ROBBED = 0.5;
const AROUND_MS = 15_000;
const CALL_MS = 60_000;
const OURS = encodeURIComponent(JSON.stringify({ label: ['acode.managed=true'] }));

/** @param {number} ms */
export const pause = ms => new Promise(resolve => void setTimeout(resolve, ms));

/** Watches an engine from `watch` to `stop`. */
export class WatchedEngine {
  #socket;
  #control;
  #watching = true;
  #done = Promise.resolve();
  /** Every container of ours that was ever there. @type {Map<string, Seen>} */
  containers = new Map();
  /** When the engine was in trouble; what is not over ends at infinity. @type {Window[]} */
  windows = [];

  /**
   * @param {string} socket
   * @param {string} control
   */
  constructor(socket, control) {
    this.#socket = socket;
    this.#control = control;
  }

  /** Begins to look. */
  watch() {
    this.#done = Promise.all([this.#look(), this.#feel()]).then(() => undefined);
  }

  async stop() {
    this.#watching = false;
    await this.#done;
  }

  /** What of ours is on it now. */
  async remains() {
    const [containers, networks, volumes] = await Promise.all([
      this.#get(`/containers/json?all=1&filters=${OURS}`),
      this.#get(`/networks?filters=${OURS}`),
      this.#get(`/volumes?filters=${OURS}`),
    ]);
    return { containers: containers.length, networks: networks.length, volumes: (volumes.Volumes ?? []).length };
  }

  /**
   * Makes trouble, and resolves when the engine answers again.
   *
   * @param {import('./plan.mjs').Trouble} trouble
   */
  async trouble({ what, live, ms }) {
    if (what !== 'pause') await this.#order(`live-restore ${live ? 'on' : 'off'}`);
    const window = { from: Date.now(), until: Infinity, what };
    this.windows.push(window);
    if (what === 'pause') {
      await this.#order('pause');
      await pause(ms);
      await this.#order('resume');
    } else {
      await this.#order(what);
    }
    window.until = Date.now();
  }

  /**
   * The end of the last trouble that touches a span of time; its beginning where there was none.
   *
   * @param {number} from
   * @param {number} until
   */
  wellSince(from, until) {
    const touching = this.windows.filter(window => window.from <= until && window.until >= from);
    return Math.max(from, ...touching.map(window => Math.min(window.until, until)));
  }

  /**
   * Whether a span of time touches trouble.
   *
   * @param {number} from
   * @param {number} until
   * @param {number} graceMs
   */
  inTrouble(from, until, graceMs) {
    return this.windows.some(window => window.from <= until && window.until + graceMs >= from);
  }

  /**
   * What was wrong with the engine around a moment, for people.
   *
   * @param {number} at
   */
  troubleAround(at) {
    const near = this.windows.filter(window => Math.abs(window.from - at) < AROUND_MS);
    const told = near.map(({ what, from, until }) => `${what} from ${from - at} to ${until - at} ms after it`);
    return told.join(', ') || 'no trouble with the engine around it';
  }

  async #look() {
    while (this.#watching) {
      const found = await this.#get(`/containers/json?all=1&filters=${OURS}`).catch(() => []);
      const at = Date.now();
      for (const { Id: id, Labels: labels } of found) {
        const seen = this.containers.get(id);
        if (seen) seen.lastSeen = at;
        else this.containers.set(id, { id, session: labels['acode.session'], firstSeen: at, lastSeen: at });
      }
      await pause(POLL_MS);
    }
  }

  /** Times in which the machine's own host gave its CPUs to others count as trouble: no process of ours ran then either. */
  async #feel() {
    let before = cpuTime();
    let since = Date.now();
    while (this.#watching) {
      await pause(SAMPLE_MS);
      const [now, at] = [cpuTime(), Date.now()];
      const robbed = (now.stolen - before.stolen) / Math.max(1, now.all - before.all) > ROBBED;
      const last = this.windows.at(-1);
      if (robbed && last?.what === 'robbed' && last.until >= since) last.until = at;
      else if (robbed) this.windows.push({ from: since, until: at, what: 'robbed' });
      [before, since] = [now, at];
    }
  }

  /** @param {string} path */
  #get(path) {
    return new Promise((resolve, reject) => {
      const options = { socketPath: this.#socket, path, signal: AbortSignal.timeout(CALL_MS) };
      const call = request(options, response => {
        let body = '';
        response.setEncoding('utf8').on('data', chunk => (body += chunk));
        response.on('error', reject);
        response.on('end', () => {
          if (response.statusCode === 200) resolve(JSON.parse(body));
          else reject(new Error(`${path}: ${response.statusCode} ${body}`));
        });
      });
      call.on('error', reject);
      call.end();
    });
  }

  /** @param {string} line */
  async #order(line) {
    const answer = await new Promise((resolve, reject) => {
      let text = '';
      const connection = createConnection(this.#control, () => connection.write(`${line}\n`));
      connection.setTimeout(CALL_MS, () => connection.destroy(new Error(`${line}: no answer`)));
      connection.setEncoding('utf8').on('data', chunk => (text += chunk));
      connection.once('end', () => resolve(text.trim()));
      connection.once('error', reject);
    });
    if (answer !== 'ok') throw new Error(`${line}: ${answer}`);
  }
}

/** The CPU time of this machine so far, and what of it its own host gave to others. */
function cpuTime() {
  const [line = ''] = readFileSync('/proc/stat', 'utf8').split('\n', 1);
  const ticks = line.split(/\s+/).slice(1, 9).map(Number);
  return { all: ticks.reduce((sum, one) => sum + one, 0), stolen: ticks[7] ?? 0 };
}
