// One life of a client in a chaos run: a process that does its runs one after the other, until its end or until it is killed.
// @ts-check

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readdirSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/**
 * @typedef {{ run: import('./plan.mjs').Run, from: number, until: number, stdout?: string, exitCode?: number | null,
 *   code?: string, hint?: string, message?: string }} Outcome of a run that told what became of it
 * @typedef {{ life: import('./plan.mjs').Life, outcomes: Outcome[], killedAt: number | null, endedAt: number,
 *   stuck: boolean, complaint: string, reaperKilled: boolean, cleared: Cleared[] }} Lived
 * @typedef {{ id: string, reason: string, at: number }} Cleared a container that was removed for another reason than its end
 * @typedef {{ socket: string, workspace: string, config: object, env: NodeJS.ProcessEnv }} Place
 */

const COMMAND = fileURLToPath(new URL('../../packages/cli/bin/acode.js', import.meta.url));
const LIBRARY = fileURLToPath(new URL('../chaos-client.mjs', import.meta.url));
// Longer than the longest trouble and everything that may have to be waited for after it.
const MAX_MS = 90_000;

/**
 * Lives one life.
 *
 * @param {import('./plan.mjs').Life} life
 * @param {Place} place
 * @param {() => void} finished called after each run
 * @returns {Promise<Lived>}
 */
export async function live(life, place, finished) {
  const client = new Client(life, place);
  const stuck = setTimeout(() => client.giveUp(), MAX_MS);
  await (life.client === 'command' ? client.command(finished) : client.library(finished));
  clearTimeout(stuck);
  return client.lived;
}

class Client {
  #place;
  #kill = () => false;
  #pid = 0;
  /** @type {Lived} */
  lived;

  /**
   * @param {import('./plan.mjs').Life} life
   * @param {Place} place
   */
  constructor(life, place) {
    this.#place = place;
    const untouched = { killedAt: null, endedAt: 0, stuck: false, complaint: '', reaperKilled: false };
    this.lived = { life, outcomes: [], cleared: [], ...untouched };
  }

  giveUp() {
    this.lived.stuck = true;
    this.#kill();
  }

  /**
   * One call of the built command.
   *
   * @param {() => void} finished
   */
  async command(finished) {
    const { session, runs } = this.lived.life;
    const [run] = runs;
    if (!run) return;
    const from = Date.now();
    const words = ['run', '--json', '--verbose', '--session', session, '--network', run.network];
    const { child, ended } = this.#start([COMMAND, ...words, '--', 'sh', '-c', run.command]);
    let printed = '';
    child.stdout.setEncoding('utf8').on('data', chunk => (printed += chunk));
    this.#killInTime();
    lines(child.stderr, line => {
      this.#heard(line.msg, line);
      this.#step(line.msg);
    });
    await ended;
    const [said] = printed.split('\n').filter(Boolean).flatMap(parsed);
    if (said) this.lived.outcomes.push({ run, from, until: Date.now(), ...said });
    finished();
  }

  /**
   * A process with the built library, and several runs.
   *
   * @param {() => void} finished
   */
  async library(finished) {
    const { session, runs } = this.lived.life;
    const { socket, workspace, config } = this.#place;
    const { child, ended } = this.#start([LIBRARY, JSON.stringify({ socket, workspace, session, config })]);
    let from = Date.now();
    const waiting = [...runs];
    const next = () => {
      const [run] = waiting;
      from = Date.now();
      if (run) child.stdin.write(`${JSON.stringify(run)}\n`);
      else child.stdin.end();
      if (waiting.length === 1) this.#killInTime();
    };
    lines(child.stdout, line => {
      this.#heard(line.step, line);
      if (waiting.length <= 1) this.#step(line.step);
      const [run] = waiting;
      if (!run || line.id !== run.id) return;
      this.lived.outcomes.push({ run, from, until: Date.now(), ...line });
      waiting.shift();
      finished();
      next();
    });
    next();
    await ended;
    for (const _ of waiting) finished();
  }

  /** @param {string[]} argv */
  #start(argv) {
    const { env, workspace } = this.#place;
    const child = spawn(process.execPath, argv, { env, cwd: workspace, stdio: ['pipe', 'pipe', 'pipe'] });
    this.#kill = () => child.kill('SIGKILL');
    this.#pid = child.pid ?? 0;
    child.stdin.on('error', () => undefined);
    child.stderr.on('data', chunk => (this.lived.complaint = `${this.lived.complaint}${chunk}`.slice(-4000)));
    const ended = once(child, 'close').then(() => void (this.lived.endedAt = Date.now()));
    return { child, ended };
  }

  #killInTime() {
    const { kill } = this.lived.life;
    if (kill?.step === null) this.#killAfter(kill.delayMs);
  }

  /** @param {unknown} step */
  #step(step) {
    const { kill } = this.lived.life;
    if (typeof step === 'string' && typeof kill?.step === 'string' && step.startsWith(kill.step))
      this.#killAfter(kill.delayMs);
  }

  /**
   * What a client says it cleared away of others: whether it might, the end of the run tells.
   *
   * @param {unknown} message
   * @param {{ containerId?: unknown, reason?: unknown }} fields
   */
  #heard(message, { containerId: id, reason }) {
    if (message !== 'container removed' || reason === 'finished') return;
    if (typeof id === 'string' && typeof reason === 'string') this.lived.cleared.push({ id, reason, at: Date.now() });
  }

  /** @param {number} ms */
  #killAfter(ms) {
    setTimeout(() => {
      if (this.lived.endedAt !== 0) return;
      // First, or it would begin its work in between.
      if (this.lived.life.kill?.reaper) this.lived.reaperKilled = killReapersOf(this.#pid);
      if (this.#kill()) this.lived.killedAt ??= Date.now();
    }, ms);
  }
}

/**
 * Kills whoever waits for the death of a client; says whether there was one.
 *
 * @param {number} client
 */
function killReapersOf(client) {
  const reapers = readdirSync('/proc').filter(name => {
    try {
      const isChild = /^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${name}/status`, 'utf8'))?.[1] === String(client);
      return isChild && readFileSync(`/proc/${name}/cmdline`, 'utf8').includes('acode-reaper');
    } catch {
      return false;
    }
  });
  return reapers.filter(pid => killed(Number(pid))).length > 0;
}

// One that has ended by itself meanwhile is none that was killed.
/** @param {number} pid */
function killed(pid) {
  try {
    return process.kill(pid, 'SIGKILL');
  } catch {
    return false;
  }
}

/**
 * @param {import('node:stream').Readable} stream
 * @param {(line: any) => void} take
 */
function lines(stream, take) {
  createInterface({ input: stream }).on('line', line => parsed(line).forEach(said => take(said)));
}

/**
 * What a line of JSON says; nothing where it is none, which half a line of a killed process is not.
 *
 * @param {string} line
 * @returns {any[]}
 */
function parsed(line) {
  try {
    return [JSON.parse(line)];
  } catch {
    return [];
  }
}
