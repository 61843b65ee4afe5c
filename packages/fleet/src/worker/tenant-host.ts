// Process of one tenant: opens the library with directories of the tenant’s own, and runs what the worker sends. It ends with the
// worker, and with the worker’s lease: then its sandboxes end too.

import { Acode, AcodeError } from '@acode/sandbox';
import type { ErrorJson, RunRequest, RunResult, Sandbox } from '@acode/sandbox';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { gunzip, gzip } from 'node:zlib';
import { FLEET_ERRORS } from '../errors.ts';
import { MAX_BLOB_BYTES } from '../engine/engine.ts';
import { paused } from '../engine/retry.ts';
import { SandboxCalls } from '../exec/calls.ts';
import { MAX_OUTPUT } from '../tasks/spec.ts';
import type { FromHost, HostOutcome, HostSandbox, HostSetup, HostTask, ToHost } from './messages.ts';
import { fitted } from './outcome-of.ts';

// The worker ends a sandbox in time; this is for a worker that cannot.
const LATE_MS = 60_000;
const DAY_MS = 86_400_000;
const DISCARD_TRIES = 10;
const DISCARD_PAUSE_MS = 500;
const MAX_UNPACKED = 256 * 1024 ** 2;
const unpacked = promisify(gunzip);
const packed = promisify(gzip);

const running = new Map<number, AbortController>();
const kept = new Map<number, SandboxCalls>();
let opened: Promise<Acode> | null = null;
let fence: NodeJS.Timeout | undefined;

function send(message: FromHost): void {
  if (process.connected) process.send?.(message);
}

function jsonOf(error: unknown): ErrorJson {
  if (error instanceof AcodeError) return error.toJSON();
  const reason = error instanceof Error ? error.message : String(error);
  return new AcodeError('ACODE-SBX-018', { operation: 'run a task', reason }).toJSON();
}

function open({ workspace, config, socket, slots, warm }: HostSetup): Promise<Acode> {
  return Acode.open({
    workspace,
    config,
    maxConcurrent: slots,
    profile: 'dev',
    ...(socket === null ? {} : { engine: { socket } }),
    pool: warm === 0 ? false : { min: warm, max: slots },
    sweepEveryMs: 600_000,
  });
}

async function run(acode: Acode, task: HostTask, signal: AbortSignal): Promise<HostOutcome> {
  const fork = task.workspace === null ? null : await imported(acode, task.workspace);
  let used = fork;
  try {
    const result = await acode.run(task.command, requestOf(task, fork ?? 'new', signal));
    used ??= result.fork?.id ?? null;
    const files = task.files && used !== null ? await exported(acode, used) : null;
    return { result: withoutBytes(result), ...(files === null ? {} : { files }) };
  } finally {
    if (used !== null) await acode.forks.discard(used).catch(() => undefined);
  }
}

/** Creates a sandbox, and keeps it until it ends or is to end. Its files are those of a fork that is removed with it. */
async function keep(acode: Acode, asked: HostSandbox, signal: AbortSignal): Promise<HostOutcome> {
  const { number, id, policy, env, risk, expiresInMs, workspace } = asked;
  const fork = workspace === null ? `fleet-${randomBytes(8).toString('hex')}` : await imported(acode, workspace);
  try {
    await using sandbox = await acode.create({
      policy: { ...policy, fork },
      expiresInMs: Math.min(DAY_MS, expiresInMs + LATE_MS),
      taskId: id,
      signal,
      ...(env === undefined ? {} : { env: { ...env } }),
      ...(risk === undefined ? {} : { risk }),
    });
    const target = { spawn: sandbox.spawn.bind(sandbox), files: sandbox.files };
    kept.set(number, new SandboxCalls(id, target, result => fitted(withoutBytes(result), MAX_OUTPUT)));
    send({ is: 'kept', number, facts: { level: sandbox.level, image: sandbox.image.reference } });
    return { error: new AcodeError('ACODE-SBX-025', { sandbox: id, reason: await over(sandbox, signal) }).toJSON() };
  } finally {
    kept.delete(number);
    await discarded(acode, fork);
  }
}

async function over({ ended }: Sandbox, signal: AbortSignal): Promise<string> {
  const asked = new Promise<string>(resolve => {
    if (signal.aborted) resolve('it was killed');
    signal.addEventListener('abort', () => resolve('it was killed'), { once: true });
  });
  return Promise.race([ended, asked]);
}

// It may be busy for a moment after its sandbox has ended. One without changes is gone by then.
async function discarded({ forks }: Acode, fork: string): Promise<void> {
  for (let tries = 0; tries < DISCARD_TRIES; tries += 1) {
    try {
      const found = (await forks.list()).find(({ name, id }) => name === fork || id === fork);
      if (found) await forks.discard(found.id);
      return;
    } catch {
      await paused(DISCARD_PAUSE_MS);
    }
  }
}

function requestOf(
  { policy, cwd, env, stdin, risk, id, number }: HostTask,
  fork: string,
  signal: AbortSignal,
): RunRequest {
  return {
    policy: { ...policy, fork },
    taskId: id,
    signal,
    ...(cwd === undefined ? {} : { cwd }),
    ...(env === undefined ? {} : { env: { ...env } }),
    ...(stdin === undefined ? {} : { stdin }),
    ...(risk === undefined ? {} : { risk }),
    onStdout: bytes => send({ is: 'output', number, stream: 1, bytes }),
    onStderr: bytes => send({ is: 'output', number, stream: 2, bytes }),
  };
}

async function imported(acode: Acode, workspace: Uint8Array): Promise<string> {
  const archive = await unpacked(workspace, { maxOutputLength: MAX_UNPACKED }).catch((cause: unknown) => {
    throw FLEET_ERRORS.create(
      'ACODE-FLT-012',
      { hash: '', reason: 'it is not compressed as it should be, or too large' },
      { cause },
    );
  });
  const source = (async function* pieces(): AsyncGenerator<Uint8Array> {
    yield archive;
  })();
  return (await acode.forks.import({ source })).id;
}

async function exported(acode: Acode, fork: string): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  await acode.forks.export({
    fork,
    write: piece => {
      bytes += piece.length;
      if (bytes > MAX_UNPACKED)
        throw FLEET_ERRORS.create('ACODE-FLT-007', { what: 'The workspace', bytes, maxBytes: MAX_UNPACKED });
      pieces.push(piece.slice());
    },
  });
  const files = await packed(Buffer.concat(pieces));
  if (files.length > MAX_BLOB_BYTES)
    throw FLEET_ERRORS.create('ACODE-FLT-007', {
      what: 'The workspace',
      bytes: files.length,
      maxBytes: MAX_BLOB_BYTES,
    });
  return files;
}

// The log has the bytes.
function withoutBytes({ stdoutBytes: _one, stderrBytes: _other, ...result }: RunResult): RunResult {
  return result;
}

async function perform(
  number: number,
  work: (acode: Acode, signal: AbortSignal) => Promise<HostOutcome>,
): Promise<void> {
  const cancel = new AbortController();
  running.set(number, cancel);
  try {
    if (!opened) throw new Error('the host is not open');
    const outcome = await work(await opened, cancel.signal);
    send({ is: 'ended', number, outcome });
  } catch (error) {
    send({ is: 'ended', number, outcome: { error: jsonOf(error) } });
  } finally {
    running.delete(number);
  }
}

// A sandbox that has ended answers nothing: the worker tells its callers.
async function answer({ number, sandbox, call, bytes }: Extract<ToHost, { is: 'call' }>): Promise<void> {
  const found = await kept.get(sandbox)?.answer(call, bytes);
  if (found) send({ is: 'answered', number, answer: found });
}

/** Ends every command and the process. The reaper of the session removes what a stuck engine call leaves. */
async function end(): Promise<void> {
  clearTimeout(fence);
  for (const cancel of running.values()) cancel.abort();
  const hurry = setTimeout(() => process.exit(1), 2000);
  await opened?.then(acode => acode.close()).catch(() => undefined);
  clearTimeout(hurry);
  process.exit(0);
}

function keepFor(ms: number): void {
  clearTimeout(fence);
  fence = setTimeout(() => void end(), ms);
}

process.on('message', (message: ToHost) => {
  if (message.is === 'alive') keepFor(message.ms);
  else if (message.is === 'cancel') running.get(message.number)?.abort();
  else if (message.is === 'run') void perform(message.task.number, (acode, signal) => run(acode, message.task, signal));
  else if (message.is === 'keep')
    void perform(message.sandbox.number, (acode, signal) => keep(acode, message.sandbox, signal));
  else if (message.is === 'call') void answer(message);
  else {
    opened = open(message.setup);
    opened.then(
      () => send({ is: 'opened' }),
      (error: unknown) => send({ is: 'failed', error: jsonOf(error) }),
    );
  }
});
process.on('disconnect', () => void end());
// The worker decides when its tasks end: a terminal sends its signals to both.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);
