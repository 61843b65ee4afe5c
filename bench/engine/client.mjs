// The plain client the bare engine is measured with: node:http over the unix socket, connections kept, nothing checked that need not be.
// @ts-check

import { Agent, request } from 'node:http';

/** @typedef {import('node:stream').Duplex} Duplex */

/** One engine, without anything of acode’s in between. */
export class EngineClient {
  #socketPath;
  #prefix = '';
  #agent = new Agent({ keepAlive: true });

  /** @param {string} socketPath */
  constructor(socketPath) {
    this.#socketPath = socketPath;
  }

  /**
   * Speaks the version of the API that the engine likes best, from now on.
   *
   * @param {AbortSignal} signal
   * @returns {Promise<{ version: string, api: string }>}
   */
  async negotiate(signal) {
    const { Version: version, ApiVersion: api } = await this.call('GET', '/version', signal);
    this.#prefix = `/v${api}`;
    return { version, api };
  }

  /**
   * @param {'GET' | 'POST' | 'DELETE'} method
   * @param {string} path
   * @param {AbortSignal} signal
   * @param {object} [body]
   * @returns {Promise<any>} The answer from JSON; null where there is none.
   */
  call(method, path, signal, body) {
    const text = body === undefined ? '' : JSON.stringify(body);
    const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) };
    return new Promise((resolve, reject) => {
      const outgoing = request(
        { socketPath: this.#socketPath, agent: this.#agent, method, path: this.#prefix + path, headers, signal },
        incoming => {
          /** @type {Buffer[]} */
          const chunks = [];
          incoming.on('data', chunk => chunks.push(chunk));
          incoming.on('error', reject);
          incoming.on('end', () => {
            const answer = Buffer.concat(chunks).toString();
            const { statusCode = 0 } = incoming;
            if (statusCode >= 400) reject(new Error(`${method} ${path.split('?')[0]}: ${statusCode} ${answer.trim()}`));
            else resolve(answer === '' ? null : JSON.parse(answer));
          });
        },
      );
      outgoing.on('error', reject);
      outgoing.end(text);
    });
  }

  /**
   * The two-way stream of a container that was not started yet. What is printed comes in frames with a header of eight bytes.
   *
   * @param {string} id
   * @param {boolean} stdin
   * @param {AbortSignal} signal
   * @returns {Promise<Duplex>}
   */
  attach(id, stdin, signal) {
    const path = `${this.#prefix}/containers/${id}/attach?stream=1&stdin=${Number(stdin)}&stdout=1&stderr=1`;
    const headers = { Connection: 'Upgrade', Upgrade: 'tcp', 'Content-Length': 0 };
    return new Promise((resolve, reject) => {
      const outgoing = request({ socketPath: this.#socketPath, agent: false, method: 'POST', path, headers });
      const giveUp = () => void outgoing.destroy(new Error('attach took too long'));
      signal.addEventListener('abort', giveUp, { once: true });
      outgoing.on('upgrade', (_, socket, head) => {
        signal.removeEventListener('abort', giveUp);
        if (head.length > 0) socket.unshift(head);
        resolve(socket);
      });
      outgoing.on('response', incoming => {
        incoming.resume();
        reject(new Error(`attach: ${incoming.statusCode}`));
      });
      outgoing.on('error', reject);
      outgoing.end();
    });
  }

  /**
   * @param {readonly string[]} labels All of which they carry.
   * @param {AbortSignal} signal
   * @returns {Promise<{ Id: string, State: string, Created: number, Labels: Record<string, string> }[]>}
   */
  list(labels, signal) {
    const filters = encodeURIComponent(JSON.stringify({ label: labels }));
    return this.call('GET', `/containers/json?all=true&filters=${filters}`, signal);
  }

  /**
   * @param {string} id
   * @param {AbortSignal} signal
   */
  async remove(id, signal) {
    try {
      await this.call('DELETE', `/containers/${id}?force=true&v=true`, signal);
    } catch (error) {
      // Gone, or going, is what was asked for.
      if (!/: (404|409) /.test(String(error))) throw error;
    }
  }

  close() {
    this.#agent.destroy();
  }
}
