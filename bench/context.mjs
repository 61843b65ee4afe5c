// What every measurement works with: directories of its own, the rows so far, and the duty to leave nothing behind.
// @ts-check

import { randomUUID } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { AcodeCandidate } from './candidates/acode.mjs';
import { EngineClient } from './engine/client.mjs';
import { sandboxesLeft, sweep } from './engine/labels.mjs';
import { summarise } from './figures.mjs';
import { reasonOf } from './rounds.mjs';

/** @typedef {import('./figures.mjs').Row} Row */
/** @typedef {import('./figures.mjs').Key} Key */
/** @typedef {import('./figures.mjs').Details} Details */
/** @typedef {import('./places.mjs').Place} Place */
/** @typedef {import('./arguments.mjs').Asked} Asked */
/** @typedef {import('./candidates/acode.mjs').Pool} Pool */
/** @typedef {import('@acode/sandbox').AcodeOptions} AcodeOptions */

const SWEEP_MS = 60_000;
// For sandboxes whose process was ended to be removed by its reaper.
const GONE_MS = 20_000;

/** One bench, from the first measurement to the last. */
export class Context {
  /** @type {Row[]} */
  rows = [];
  /** Why nothing waits at a place, once it was found out. @type {Map<string, string>} */
  coldPlaces = new Map();
  /** What must not be and was. @type {string[]} */
  complaints = [];
  /** Of the bench’s own containers. */
  run = randomUUID();
  asked;
  signal;
  top;
  workspace;
  #deadline;
  #users = 0;

  /**
   * @param {Asked} asked
   * @param {AbortSignal} interrupted
   * @param {number} deadlineMs
   */
  constructor(asked, interrupted, deadlineMs) {
    this.asked = asked;
    this.#deadline = performance.now() + deadlineMs;
    this.signal = AbortSignal.any([interrupted, AbortSignal.timeout(deadlineMs)]);
    this.top = mkdtempSync('/var/tmp/acode-bench-');
    this.workspace = this.directory('workspace');
    // Those of the libraries in this process: figures must not depend on the user’s configuration, nor their log on them.
    Object.assign(process.env, this.environment());
  }

  /** @param {{ asked: Asked, signal: AbortSignal, deadlineMs: number }} of */
  static async open({ asked, signal, deadlineMs }) {
    return new Context(asked, signal, deadlineMs);
  }

  /** How long there is until nothing more is measured. */
  get leftMs() {
    return this.#deadline - performance.now();
  }

  /** @param {string} name */
  directory(name) {
    const path = join(this.top, name);
    mkdirSync(path, { recursive: true, mode: 0o700 });
    return path;
  }

  /** The variables of another user of the bench’s own. */
  environment() {
    // Short, because the path of a socket below it may have hardly more than a hundred characters.
    const name = `u${(this.#users += 1)}`;
    return {
      HOME: this.directory(`${name}/home`),
      XDG_CONFIG_HOME: this.directory(`${name}/config`),
      XDG_STATE_HOME: this.directory(`${name}/state`),
      XDG_RUNTIME_DIR: this.directory(`${name}/run`),
    };
  }

  /**
   * @param {string} name
   * @param {string} text
   */
  file(name, text) {
    const path = join(this.top, name);
    writeFileSync(path, text);
    return path;
  }

  /** @param {string} text */
  say(text) {
    process.stderr.write(`${text}\n`);
  }

  /**
   * @param {Key & Details} of
   * @param {readonly number[]} values
   */
  add(of, values) {
    if (values.length === 0) this.miss(of, 'no value');
    else this.rows.push({ ...of, ...summarise(values, of.better) });
  }

  /**
   * @param {Key} key
   * @param {string} unavailable
   */
  miss({ group, place, name }, unavailable) {
    this.rows.push({ group, place, name, unavailable });
  }

  /**
   * How a host is opened at a place.
   *
   * @param {Place} place
   * @returns {AcodeOptions}
   */
  optionsAt({ level, engine }) {
    const sandbox = engine
      ? { level, images: { default: engine.image } }
      : { level, bubblewrap: { accept_process_limits: true } };
    // A level without an engine must not find the user’s.
    const socket = engine?.socket ?? join(this.top, 'no-engine.sock');
    return { workspace: this.workspace, config: { sandbox }, engine: { socket } };
  }

  /**
   * @param {Place} place
   * @param {{ pool?: Pool | null, options?: AcodeOptions }} [of]
   */
  async acode(place, { pool = null, options = {} } = {}) {
    return AcodeCandidate.open({ ...this.optionsAt(place), ...options }, { pool, signal: this.signal });
  }

  /**
   * Removes what this bench made. What is found on an engine after all was closed is a defect of the bench’s, or of acode’s.
   *
   * @param {readonly Place[]} places
   */
  async close(places) {
    const sockets = new Set(places.flatMap(({ engine }) => (engine ? [engine.socket] : [])));
    for (const socket of sockets) await this.#sweep(socket);
    rmSync(this.top, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }

  /** @param {string} socket */
  async #sweep(socket) {
    const client = new EngineClient(socket);
    try {
      const removed = await sweep(client, this.run, AbortSignal.timeout(SWEEP_MS));
      if (removed > 0 && !this.signal.aborted)
        this.complaints.push(`${removed} containers of the bench were left on ${socket}`);
      const left = await sandboxesLeft(client, GONE_MS, AbortSignal.timeout(SWEEP_MS));
      if (left > 0) this.complaints.push(`${left} sandboxes of the bench were left on ${socket}`);
    } catch (error) {
      this.complaints.push(`${socket} could not be swept: ${reasonOf(error)}`);
    } finally {
      client.close();
    }
  }
}
