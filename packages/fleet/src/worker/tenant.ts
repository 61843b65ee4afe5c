// One tenant on a worker: a process with directories of its own. Warm pool, forks, caches, images it built, credentials and audit log
// of a tenant are in these directories, so that nothing of one tenant has a name for another.

import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { hashOf } from '../tasks/signature.ts';
import type { FromHost, HostOutcome, HostSetup, HostTask, ToHost } from './messages.ts';

const HASH = 12;
const END_MS = 5000;
// Tests load the sources; a process of its own needs what was built.
const PROGRAM = fileURLToPath(
  new URL(import.meta.url.endsWith('.ts') ? '../../dist/worker/tenant-host.js' : './tenant-host.js', import.meta.url),
);
// What a program of Node.js and the engine’s client need; nothing of the operator’s own.
const INHERITED = ['PATH', 'LANG', 'LC_ALL', 'TZ', 'HOME', 'USER', 'DOCKER_HOST', 'NODE_EXTRA_CA_CERTS'];

/** A task as a worker runs it, and who hears its output. */
export interface TenantTask extends Omit<HostTask, 'number'> {
  /** Hears what the command prints: 1 is standard output, 2 standard error. */
  readonly onOutput: (stream: 1 | 2, bytes: Uint8Array) => void;
  /** Ends it. */
  readonly signal: AbortSignal;
}

/** Runs the tasks of one tenant. */
export interface TenantRunner {
  /** Runs one task. Resolves with its outcome, whatever that is. */
  run(task: TenantTask): Promise<HostOutcome>;
  /** The worker’s lease holds for so many milliseconds from now on. */
  alive(ms: number): void;
  /** Ends everything that runs. */
  end(): Promise<void>;
}

/** Where a tenant’s process keeps what. */
export interface TenantPlace {
  /** The worker’s own directory. */
  readonly root: string;
  /** A directory for sockets, whose path is short. */
  readonly runtime: string;
}

interface Pending {
  readonly task: TenantTask;
  readonly settle: (outcome: HostOutcome) => void;
}

/** The process of one tenant, started when it is first needed and again after it died. */
export class TenantProcess implements TenantRunner {
  readonly #tenant: string;
  readonly #place: TenantPlace;
  readonly #setup: Omit<HostSetup, 'workspace'>;
  readonly #pending = new Map<number, Pending>();
  #child: ChildProcess | null = null;
  #number = 0;
  #aliveMs = 0;

  constructor(tenant: string, place: TenantPlace, setup: Omit<HostSetup, 'workspace'>) {
    this.#tenant = tenant;
    this.#place = place;
    this.#setup = setup;
  }

  /** Runs one task. Resolves with its outcome, whatever that is; also when the process dies. */
  run(task: TenantTask): Promise<HostOutcome> {
    this.#number += 1;
    const number = this.#number;
    const { onOutput: _, signal, ...fields } = task;
    return new Promise(resolve => {
      const cancel = (): void => this.#send({ is: 'cancel', number });
      const settle = (outcome: HostOutcome): void => {
        signal.removeEventListener('abort', cancel);
        this.#pending.delete(number);
        resolve(outcome);
      };
      this.#pending.set(number, { task, settle });
      signal.addEventListener('abort', cancel, { once: true });
      this.#start();
      this.#send({ is: 'run', task: { ...fields, number } });
      if (signal.aborted) cancel();
    });
  }

  /** The worker’s lease holds for so long: the process ends itself if it hears nothing more. */
  alive(ms: number): void {
    this.#aliveMs = ms;
    this.#send({ is: 'alive', ms });
  }

  /** Ends the process and its sandboxes. */
  async end(): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise(resolve => void child.once('exit', resolve));
    if (child.connected) child.disconnect();
    const late = setTimeout(() => child.kill('SIGKILL'), END_MS);
    await ended;
    clearTimeout(late);
  }

  #start(): void {
    if (this.#child?.connected === true) return;
    const { root, runtime } = this.#place;
    const short = hashOf(this.#tenant).slice(0, HASH);
    const directory = (...names: string[]): string => {
      const path = join(...names);
      mkdirSync(path, { recursive: true, mode: 0o700 });
      return path;
    };
    const home = join(root, 'tenants', this.#tenant);
    const env: NodeJS.ProcessEnv = {
      XDG_CONFIG_HOME: directory(home, 'config'),
      XDG_STATE_HOME: directory(home, 'state'),
      XDG_RUNTIME_DIR: directory(runtime, short),
    };
    for (const name of INHERITED) if (process.env[name] !== undefined) env[name] = process.env[name];
    const child = fork(PROGRAM, [], {
      env,
      execArgv: [],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    this.#child = child;
    child.on('message', (message: FromHost) => this.#heard(message));
    const died = (): void => {
      if (this.#child === child) this.#child = null;
      this.#failAll('ACODE-SBX-018', 'the process of the tenant ended');
    };
    child.on('exit', died);
    child.on('error', died);
    if (this.#aliveMs > 0) this.#send({ is: 'alive', ms: this.#aliveMs });
    this.#send({ is: 'open', setup: { ...this.#setup, workspace: directory(home, 'workspace') } });
  }

  #heard(message: FromHost): void {
    if (message.is === 'output') this.#pending.get(message.number)?.task.onOutput(message.stream, message.bytes);
    else if (message.is === 'ended') this.#pending.get(message.number)?.settle(message.outcome);
    else if (message.is === 'failed') {
      for (const { settle } of this.#pending.values()) settle({ error: message.error });
      // Opened again with the next task: what was wrong with the engine may be over.
      this.#child?.disconnect();
    }
  }

  #failAll(code: string, reason: string): void {
    const error = {
      code,
      message: `The sandbox host failed: ${reason}.`,
      hint: '',
      exitStatus: 125,
      context: { operation: 'run a task', reason },
    };
    for (const { settle } of this.#pending.values()) settle({ error });
  }

  #send(message: ToHost): void {
    // A process that is about to end takes no message; its exit settles what it had.
    if (this.#child?.connected === true) this.#child.send(message, () => undefined);
  }
}
