// The bare engine: the same container made with the same request, by nobody but a plain client.
// @ts-check

import { EngineClient } from '../engine/client.mjs';
import { labelsOf } from '../engine/labels.mjs';
import { NAMES } from '../names.mjs';
import { echoed, lineTimes } from './candidate.mjs';

/** @typedef {import('./candidate.mjs').Candidate} Candidate */
/** @typedef {import('./candidate.mjs').Sample} Sample */
/** @typedef {import('node:stream').Duplex} Duplex */

const REMOVAL_MS = 60_000;
const HEADER_BYTES = 8;

/**
 * A container as it was started, and what it prints.
 *
 * @typedef {{ id: string, stream: Duplex, ended: Promise<void> }} Started
 */

/** @implements {Candidate} */
export class BareEngine {
  name = NAMES.bareEngine;
  /** @type {import('./candidate.mjs').Parts} */
  parts = { create: [], remove: [] };
  #client;
  #template;
  #run;
  /** @type {Set<Promise<void>>} */
  #removals = new Set();
  /** @type {string[]} */
  #notRemoved = [];

  /**
   * @param {EngineClient} client
   * @param {Record<string, unknown>} template What acode would ask of the engine, as `explain` says it.
   * @param {string} run
   */
  constructor(client, template, run) {
    this.#client = client;
    this.#template = template;
    this.#run = run;
  }

  /**
   * @param {string} socket
   * @param {Record<string, unknown>} template
   * @param {string} run
   * @param {AbortSignal} signal
   */
  static async open(socket, template, run, signal) {
    const client = new EngineClient(socket);
    await client.negotiate(signal);
    return new BareEngine(client, template, run);
  }

  /**
   * @param {AbortSignal} signal
   * @returns {Promise<Sample>}
   */
  async echo(signal) {
    const began = performance.now();
    let firstByteMs = Number.NaN;
    /** @type {Buffer[]} */
    const chunks = [];
    const { id, ended } = await this.#start(['echo', 'hi'], signal, chunk => {
      if (chunks.length === 0) firstByteMs = performance.now() - began;
      chunks.push(chunk);
    });
    await this.#exit(id, ended, signal);
    const resultMs = performance.now() - began;
    echoed(this.name, Buffer.concat(chunks).subarray(HEADER_BYTES).toString());
    return { firstByteMs, resultMs };
  }

  /**
   * @param {number} bytes
   * @param {AbortSignal} signal
   */
  async print(bytes, signal) {
    let first = 0;
    let seen = 0;
    const { id, ended } = await this.#start(['head', '-c', String(bytes), '/dev/zero'], signal, chunk => {
      if (seen === 0) first = performance.now();
      seen += chunk.length;
    });
    await this.#exit(id, ended, signal);
    if (seen < bytes) throw new Error(`${this.name}: ${seen} of ${bytes} bytes`);
    return performance.now() - first;
  }

  /**
   * @param {number} count
   * @param {AbortSignal} signal
   */
  async lines(count, signal) {
    /** @type {(chunk: Uint8Array) => void} */
    let listener = () => undefined;
    const { id, stream, ended } = await this.#start(['cat'], signal, chunk => listener(chunk));
    try {
      return await lineTimes(count, signal, {
        write: line => void stream.write(line),
        onChunk: heard => (listener = heard),
      });
    } finally {
      stream.end();
      await this.#exit(id, ended, signal);
    }
  }

  async settled() {
    while (this.#removals.size > 0) await Promise.all(this.#removals);
    if (this.#notRemoved.length > 0) throw new Error(`not removed: ${this.#notRemoved.join('; ')}`);
  }

  /** @param {number} most */
  async caughtUp(most) {
    while (this.#removals.size > most) await Promise.race(this.#removals);
  }

  async close() {
    try {
      await this.settled();
    } finally {
      this.#client.close();
    }
  }

  /**
   * @param {readonly string[]} words
   * @param {AbortSignal} signal
   * @param {(chunk: Buffer) => void} onData
   * @returns {Promise<Started>}
   */
  async #start(words, signal, onData) {
    const stdin = words[0] === 'cat';
    const body = {
      ...this.#template,
      ...(stdin ? {} : { AttachStdin: false, OpenStdin: false, StdinOnce: false }),
      Entrypoint: words.slice(0, 1),
      Cmd: words.slice(1),
      Labels: labelsOf(this.#run),
    };
    const began = performance.now();
    const { Id: id } = await this.#client.call('POST', '/containers/create', signal, body);
    this.parts.create.push(performance.now() - began);
    try {
      const stream = await this.#client.attach(id, stdin, signal);
      const ended = endOf(stream, signal);
      stream.on('data', onData);
      await this.#client.call('POST', `/containers/${id}/start`, signal);
      return { id, stream, ended };
    } catch (error) {
      this.#remove(id);
      throw error;
    }
  }

  /**
   * @param {string} id
   * @param {Promise<void>} ended
   * @param {AbortSignal} signal
   */
  async #exit(id, ended, signal) {
    try {
      const [{ StatusCode: status }] = await Promise.all([
        this.#client.call('POST', `/containers/${id}/wait`, signal),
        ended,
      ]);
      if (status !== 0) throw new Error(`${this.name}: ended with ${status}`);
    } finally {
      this.#remove(id);
    }
  }

  // Off the path, as acode’s own is.
  /** @param {string} id */
  #remove(id) {
    const began = performance.now();
    const removal = this.#client
      .remove(id, AbortSignal.timeout(REMOVAL_MS))
      .then(() => void this.parts.remove.push(performance.now() - began))
      .catch(error => void this.#notRemoved.push(String(error)))
      .then(() => void this.#removals.delete(removal));
    this.#removals.add(removal);
  }
}

/**
 * @param {Duplex} stream
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function endOf(stream, signal) {
  const ended = new Promise((resolve, reject) => {
    const giveUp = () => void stream.destroy(new Error('took too long'));
    signal.addEventListener('abort', giveUp, { once: true });
    stream.on('error', reject);
    stream.on('close', () => {
      signal.removeEventListener('abort', giveUp);
      resolve(undefined);
    });
    stream.on('end', () => void stream.destroy());
  });
  // Whoever awaits it gets the error; until then it must not end the process.
  ended.catch(() => undefined);
  return /** @type {Promise<void>} */ (ended);
}
