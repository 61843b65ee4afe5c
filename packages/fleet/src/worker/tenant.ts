// One tenant on a worker: a process with directories of its own. Warm pool, forks, caches, images it built, credentials and audit log
// of a tenant are in these directories, so that nothing of one tenant has a name for another.

import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ExecAnswer, ExecCall } from '../exec/protocol.ts';
import { hashOf } from '../tasks/signature.ts';
import type { FromHost, HostOutcome, HostSandbox, HostSetup, HostTask, SandboxFacts, ToHost } from './messages.ts';

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

/** Answers a call to a sandbox. Rejects if what has the sandbox has ended. */
export type CallSandbox = (call: ExecCall, bytes: Uint8Array) => Promise<ExecAnswer>;

/** A persistent sandbox as a worker keeps it, and who hears that it takes calls. */
export interface TenantSandbox extends Omit<HostSandbox, 'number'> {
  /** Told once, when it exists. */
  readonly onKept: (facts: SandboxFacts, call: CallSandbox) => void;
  /** Ends it. */
  readonly signal: AbortSignal;
}

/** Runs the tasks of one tenant. */
export interface TenantRunner {
  /** Runs one task. Resolves with its outcome, whatever that is. */
  run(task: TenantTask): Promise<HostOutcome>;
  /** Creates a persistent sandbox and keeps it. Resolves when it has ended, or was not created, with the reason. */
  keep(sandbox: TenantSandbox): Promise<HostOutcome>;
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
  readonly task: TenantTask | TenantSandbox;
  readonly settle: (outcome: HostOutcome) => void;
}

interface Asked {
  /** The number of its sandbox. */
  readonly sandbox: number;
  readonly resolve: (answer: ExecAnswer) => void;
  readonly reject: (error: Error) => void;
}

/** The process of one tenant, started when it is first needed and again after it died. */
export class TenantProcess implements TenantRunner {
  readonly #tenant: string;
  readonly #place: TenantPlace;
  readonly #setup: Omit<HostSetup, 'workspace'>;
  readonly #pending = new Map<number, Pending>();
  readonly #asked = new Map<number, Asked>();
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
    const { onOutput: _, signal: __, ...fields } = task;
    return this.#begin(task, number => ({ is: 'run', task: { ...fields, number } }));
  }

  /** Creates a persistent sandbox and keeps it. Resolves when it has ended; also when the process dies. */
  keep(sandbox: TenantSandbox): Promise<HostOutcome> {
    const { onKept: _, signal: __, ...fields } = sandbox;
    return this.#begin(sandbox, number => ({ is: 'keep', sandbox: { ...fields, number } }));
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

  #begin(task: TenantTask | TenantSandbox, messageOf: (number: number) => ToHost): Promise<HostOutcome> {
    this.#number += 1;
    const number = this.#number;
    const { signal } = task;
    return new Promise(resolve => {
      const cancel = (): void => this.#send({ is: 'cancel', number });
      const settle = (outcome: HostOutcome): void => {
        signal.removeEventListener('abort', cancel);
        this.#pending.delete(number);
        for (const [call, { sandbox, reject }] of this.#asked) {
          if (sandbox !== number) continue;
          this.#asked.delete(call);
          reject(new Error('the sandbox has ended'));
        }
        resolve(outcome);
      };
      this.#pending.set(number, { task, settle });
      signal.addEventListener('abort', cancel, { once: true });
      this.#start();
      this.#send(messageOf(number));
      if (signal.aborted) cancel();
    });
  }

  #call(sandbox: number, call: ExecCall, bytes: Uint8Array): Promise<ExecAnswer> {
    this.#number += 1;
    const number = this.#number;
    return new Promise((resolve, reject) => {
      if (!this.#pending.has(sandbox)) {
        reject(new Error('the sandbox has ended'));
        return;
      }
      this.#asked.set(number, { sandbox, resolve, reject });
      this.#send({ is: 'call', number, sandbox, call, bytes });
    });
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
    if (message.is === 'opened') return;
    if (message.is === 'failed') {
      for (const { settle } of this.#pending.values()) settle({ error: message.error });
      // Opened again with the next task: what was wrong with the engine may be over.
      this.#child?.disconnect();
    } else if (message.is === 'answered') {
      this.#asked.get(message.number)?.resolve(message.answer);
      this.#asked.delete(message.number);
    } else this.#told(message);
  }

  // About one task or sandbox.
  #told(message: Extract<FromHost, { is: 'output' | 'ended' | 'kept' }>): void {
    const { number } = message;
    const pending = this.#pending.get(number);
    if (!pending) return;
    const { task, settle } = pending;
    if (message.is === 'ended') settle(message.outcome);
    else if (message.is === 'output' && 'onOutput' in task) task.onOutput(message.stream, message.bytes);
    else if (message.is === 'kept' && 'onKept' in task)
      task.onKept(message.facts, (call, bytes) => this.#call(number, call, bytes));
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
