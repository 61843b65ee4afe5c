// Services of sandboxes: each is a sandbox of its own in the network namespace of the one that it belongs to. Started when that one was
// verified and waits for its command, removed with it.

import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { AcodeError } from '../../../contract/errors.ts';
import type { Clock } from '../../../contract/ports.ts';
import type { UserId } from '../../../contract/policy.ts';
import { redact } from '../../../contract/redact.ts';
import type { SandboxSpec, ServiceSpec } from '../../../contract/spec.ts';
import type { CommandIo, Ending, WaitingSandbox } from '../../backend.ts';
import { readKernelView } from '../../kernel.ts';
import { unlessCancelled } from '../../../lifecycle/clock.ts';
import type { Engine } from '../engine/index.ts';
import { demultiplex } from '../engine/streams.ts';
import { asked } from '../failure.ts';
import type { EngineFacts } from '../request.ts';
import { joinedNetwork } from '../request.ts';
import type { Attachment, Left } from './owned.ts';

/** What services need of the backend. */
export interface ServicesOptions {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly keep: (work: Promise<unknown>) => void;
  /** Makes a sandbox that joins a network namespace: created, started, waiting. */
  readonly prepare: (spec: SandboxSpec, network: string, signal: AbortSignal) => Promise<WaitingSandbox>;
}

interface Beside {
  readonly stop: AbortController;
  /** The services, as far as they are made. */
  readonly made: Promise<WaitingSandbox>[];
}

const CALL_MS = 10_000;
const PAUSE_MS = 50;
// Each question is a process in the sandbox.
const ASKING_PAUSE_MS = 500;

/** The services of the sandboxes of one backend. */
export class SandboxServices implements Attachment {
  readonly #options: ServicesOptions;
  /** By the sandbox that they belong to. */
  readonly #beside = new Map<string, Beside>();

  constructor(options: ServicesOptions) {
    this.#options = options;
  }

  // The container comes first: it is its network namespace that they join.
  async acquire(): Promise<Partial<EngineFacts>> {
    return {};
  }

  // Each is verified by itself.
  verify(): [] {
    return [];
  }

  /** Starts every service of a sandbox; resolves when all of them listen. */
  async accompany(
    { services = [], identity: { sandboxId }, user }: SandboxSpec,
    containerId: string,
    signal: AbortSignal,
  ): Promise<void> {
    if (services.length === 0) return;
    const stop = new AbortController();
    const beside: Beside = { stop, made: [] };
    this.#beside.set(sandboxId, beside);
    const ports = new ListeningPorts(this.#options, containerId, user);
    const until = AbortSignal.any([signal, stop.signal]);
    // The first that fails is the error; the others end with the sandbox.
    await Promise.all(services.map(service => this.#start(service, { containerId, beside, ports, until })));
  }

  /** The sandbox is gone: so are its services. */
  release({ identity: { sandboxId } }: SandboxSpec): void {
    const beside = this.#beside.get(sandboxId);
    if (!beside) return;
    this.#beside.delete(sandboxId);
    beside.stop.abort(new AcodeError('ACODE-SBX-014', {}));
    for (const making of beside.made) this.#options.keep(making.then(made => made[Symbol.asyncDispose](), ignore));
  }

  async close(): Promise<readonly Left[]> {
    return [];
  }

  async #start(
    service: ServiceSpec,
    {
      containerId,
      beside,
      ports,
      until,
    }: {
      readonly containerId: string;
      readonly beside: Beside;
      readonly ports: ListeningPorts;
      readonly until: AbortSignal;
    },
  ): Promise<void> {
    const { spec, argv, environment: env } = service;
    const { clock } = this.#options;
    const began = clock.monotonic();
    const making = this.#options.prepare(spec, joinedNetwork(containerId), until);
    making.catch(ignore);
    beside.made.push(making);
    const sandbox = await making;
    await sandbox.verify(until);
    const output = new OutputEnd();
    const handover = { command: argv, cwd: spec.workdir, env, nonce: randomBytes(16).toString('hex') };
    const execution = await sandbox.execute(handover, output.io, beside.stop.signal);
    await execution.closeStdin().catch(ignore);
    const ended = execution.ended.then(endText, (error: unknown) => `it failed: ${String(error)}`);
    const failure = await this.#untilReady(service, ports, ended, until);
    if (failure === null) return;
    until.throwIfAborted();
    throw new AcodeError('ACODE-SBX-028', {
      service: service.name,
      image: spec.image.reference,
      reason: failure,
      waitedMs: Math.round(clock.monotonic() - began),
      output: output.text(),
    });
  }

  // Null when it listens; otherwise why it never will.
  async #untilReady(
    { port, readyMs }: ServiceSpec,
    ports: ListeningPorts,
    ended: Promise<string>,
    signal: AbortSignal,
  ): Promise<string | null> {
    const { clock } = this.#options;
    const deadline = clock.monotonic() + readyMs;
    let end: string | null = null;
    const noticed = ended.then(reason => void (end = reason));
    for (;;) {
      const isReady = await unlessCancelled(ports.has(port, signal), signal);
      // One that ended was not the one that listened.
      if (end !== null) return end;
      if (isReady) return null;
      if (clock.monotonic() >= deadline) return `it does not listen on port ${port}`;
      await unlessCancelled(Promise.race([noticed, pause(clock, ports.pauseMs)]), signal);
    }
  }
}

function endText({ exitCode, neverStarted, oomKilled }: Ending): string {
  if (neverStarted === 'missing') return 'its image does not have the program that it names';
  if (neverStarted === 'forbidden') return 'the program that its image names cannot be executed';
  if (neverStarted === 'cwd') return 'its user cannot enter the working directory of its image';
  return `it ended with status ${exitCode}${oomKilled ? ', since its memory ran out' : ''}`;
}

// Which ports are listened on in a network namespace, as its own kernel says. Nothing of this host connects to anything in it.

const LISTENING = '0A';
// As the kernel prints addresses: every one, and 127.0.0.1, of IPv4 and as IPv6.
const REACHED = new Set(['00000000', '0100007F', '7F000001', '0'.repeat(32), '0000000000000000FFFF00000100007F']);
const TABLES = ['tcp', 'tcp6'];
const MAX_TABLE = 1024 * 1024;
const ASKING = TABLES.map(table => `while read -r l; do echo "$l"; done 2>/dev/null </proc/net/${table}`).join('; ');

class ListeningPorts {
  readonly #options: Pick<ServicesOptions, 'engine'>;
  readonly #containerId: string;
  readonly #user: UserId;
  /** Its first process; null where the kernel of this host does not show it. */
  #pid: Promise<number | null> | null = null;
  #isAsked = false;

  constructor(options: Pick<ServicesOptions, 'engine'>, containerId: string, user: UserId) {
    this.#options = options;
    this.#containerId = containerId;
    this.#user = user;
  }

  get pauseMs(): number {
    return this.#isAsked ? ASKING_PAUSE_MS : PAUSE_MS;
  }

  async has(port: number, signal: AbortSignal): Promise<boolean> {
    this.#pid ??= this.#find(signal);
    const pid = await this.#pid;
    const tables = pid === null ? await this.#ask(signal) : await Promise.all(TABLES.map(name => tableOf(pid, name)));
    return tables.some(table => listeningPorts(table).has(port));
  }

  async #find(signal: AbortSignal): Promise<number | null> {
    const { containers } = this.#options.engine;
    const details = await asked(() => containers.inspect(this.#containerId, { signal, deadlineMs: CALL_MS }), signal);
    const { Pid: pid } = details.State;
    const view = pid === 0 ? null : await readKernelView(pid, this.#containerId, { mounts: [] });
    this.#isAsked = view === null;
    return view && pid;
  }

  // An engine in a virtual machine: the shell that waits for the command is asked, or another one beside it.
  async #ask(signal: AbortSignal): Promise<readonly string[]> {
    const { exec } = this.#options.engine;
    const { uid, gid } = this.#user;
    // An engine would take root otherwise.
    const process = { argv: ['/bin/sh', '-c', ASKING], user: `${uid}:${gid}` };
    const terms = { signal, deadlineMs: CALL_MS };
    let said = '';
    const stdout = (data: Buffer): void => void (said.length < MAX_TABLE && (said += data.toString('latin1')));
    await asked(async () => {
      const execId = await exec.create(this.#containerId, process, terms);
      await demultiplex(await exec.start(execId, terms), { stdout, stderr: () => undefined });
    }, signal);
    return [said];
  }
}

async function tableOf(pid: number, name: string): Promise<string> {
  try {
    return await readFile(`/proc/${pid}/net/${name}`, 'latin1');
  } catch {
    // A kernel without IPv6, or a process that has ended.
    return '';
  }
}

/** The ports that a table of the kernel says are listened on, where 127.0.0.1 reaches them. */
export function listeningPorts(table: string): ReadonlySet<number> {
  const ports = new Set<number>();
  for (const line of table.split('\n')) {
    const [, local = '', , state] = line.trim().split(/\s+/);
    const [address = '', port = ''] = local.split(':');
    if (state === LISTENING && REACHED.has(address)) ports.add(Number.parseInt(port, 16));
  }
  return ports;
}

// The end of what a service prints, to say why it is not ready.

const MAX_BYTES = 16 * 1024;
const MAX_LINES = 20;
const MAX_LINE = 300;

class OutputEnd {
  #bytes = Buffer.alloc(0);

  get io(): CommandIo {
    const add = (data: Buffer): void => {
      this.#bytes = Buffer.concat([this.#bytes, data.subarray(-MAX_BYTES)]).subarray(-MAX_BYTES);
    };
    return { stdout: add, stderr: add };
  }

  text(): string {
    const lines = this.#bytes.toString('utf8').trimEnd().split('\n').slice(-MAX_LINES);
    return redact(lines.map(line => line.slice(0, MAX_LINE)).join('\n'));
  }
}

async function pause(clock: Clock, ms: number): Promise<void> {
  await new Promise<void>(resolve => void clock.after(ms, resolve));
}

function ignore(): void {}
