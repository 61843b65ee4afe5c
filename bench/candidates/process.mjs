// What acode is held beside where there is no engine: a plain process, and plain bubblewrap; and the engine’s own command.
// @ts-check

import { spawn } from 'node:child_process';
import { echoed, lineTimes } from './candidate.mjs';

/** @typedef {import('./candidate.mjs').Candidate} Candidate */
/** @typedef {import('./candidate.mjs').Sample} Sample */

/** A program in front of the command, or none. @implements {Candidate} */
export class ProcessCandidate {
  name;
  #before;
  #env;

  /**
   * @param {string} name
   * @param {readonly string[]} before What stands before the command.
   * @param {NodeJS.ProcessEnv} [env]
   */
  constructor(name, before, env = { PATH: process.env['PATH'] }) {
    this.name = name;
    this.#before = before;
    this.#env = env;
  }

  /**
   * @param {AbortSignal} signal
   * @returns {Promise<Sample>}
   */
  async echo(signal) {
    const began = performance.now();
    let firstByteMs = Number.NaN;
    let text = '';
    await this.#run(['echo', 'hi'], signal, chunk => {
      if (text === '') firstByteMs = performance.now() - began;
      text += chunk.toString();
    });
    const resultMs = performance.now() - began;
    echoed(this.name, text);
    return { firstByteMs, resultMs };
  }

  /**
   * @param {number} bytes
   * @param {AbortSignal} signal
   */
  async print(bytes, signal) {
    let first = Number.NaN;
    let seen = 0;
    await this.#run(['head', '-c', String(bytes), '/dev/zero'], signal, chunk => {
      if (seen === 0) first = performance.now();
      seen += chunk.length;
    });
    if (seen !== bytes) throw new Error(`${this.name}: ${seen} of ${bytes} bytes`);
    return performance.now() - first;
  }

  /**
   * @param {number} count
   * @param {AbortSignal} signal
   */
  async lines(count, signal) {
    /** @type {(chunk: Uint8Array) => void} */
    let listener = () => undefined;
    const { child, ended } = this.#start(['cat'], signal, chunk => listener(chunk));
    const times = await lineTimes(count, signal, {
      write: line => void child.stdin.write(line),
      onChunk: heard => (listener = heard),
    });
    child.stdin.end();
    await ended;
    return times;
  }

  /**
   * From start to end of a command that prints nothing.
   *
   * @param {readonly string[]} words
   * @param {AbortSignal} signal
   */
  async wall(words, signal) {
    const began = performance.now();
    await this.#run(words, signal, () => undefined);
    return performance.now() - began;
  }

  async settled() {}

  async caughtUp() {}

  async close() {}

  /**
   * @param {readonly string[]} words
   * @param {AbortSignal} signal
   * @param {(chunk: Buffer) => void} onData
   */
  async #run(words, signal, onData) {
    const { child, ended } = this.#start(words, signal, onData);
    child.stdin.end();
    await ended;
  }

  /**
   * @param {readonly string[]} words
   * @param {AbortSignal} signal
   * @param {(chunk: Buffer) => void} onData
   */
  #start(words, signal, onData) {
    const [program = '', ...rest] = [...this.#before, ...words];
    const child = spawn(program, rest, { env: this.#env, stdio: 'pipe', signal, killSignal: 'SIGKILL' });
    let complaint = '';
    child.stdout.on('data', onData);
    child.stderr.on('data', chunk => (complaint = (complaint + String(chunk)).slice(-500)));
    // One that ends early closes its input; what became of it, its exit says.
    child.stdin.on('error', () => undefined);
    const ended = new Promise((resolve, reject) => {
      child.on('error', reject);
      child.on('close', code => {
        if (code === 0) resolve(undefined);
        else reject(new Error(`${this.name}: ended with ${code}: ${complaint.trim()}`));
      });
    });
    ended.catch(() => undefined);
    return { child, ended };
  }
}

/**
 * bubblewrap as one would use it by hand for the same purpose: namespaces of its own, programs read-only, a writable workspace.
 *
 * @param {string} workspace
 */
export function plainBubblewrap(workspace) {
  return [
    ...'bwrap --unshare-all --die-with-parent --new-session --cap-drop ALL'.split(' '),
    ...'--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64'.split(' '),
    ...'--proc /proc --dev /dev --tmpfs /tmp'.split(' '),
    '--bind',
    workspace,
    '/workspace',
    '--chdir',
    '/workspace',
    '--',
  ];
}
