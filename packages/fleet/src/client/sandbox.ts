// Persistent sandbox of a fleet: commands and files in it, by signed calls straight to the worker that has it.

import { randomUUID } from 'node:crypto';
import { AcodeError, errorOfOtherTable } from '@acode/sandbox';
import type { Command, CommandRequest, CommandRunner, RunResult, RunningCommand } from '@acode/sandbox';
import * as z from 'zod';
import { MAX_BLOB_BYTES } from '../engine/engine.ts';
import type { SandboxLease } from '../engine/engine.ts';
import type { Failure } from '../engine/frame.ts';
import type { TaskKey } from '../engine/names.ts';
import { paused } from '../engine/retry.ts';
import { FLEET_ERRORS } from '../errors.ts';
import { PART_BYTES, execAnswers, signedCall, verifiedAnswer } from '../exec/protocol.ts';
import type { ExecCall } from '../exec/protocol.ts';
import { parseOutcome } from '../tasks/outcome.ts';
import { unverified } from '../tasks/signature.ts';
import type { KeyPair } from '../tasks/signature.ts';
import { isFinal } from '../tasks/state.ts';
import type { TaskState } from '../tasks/state.ts';
import type { TaskAccess } from './access.ts';
import { ExecCommand } from './exec-command.ts';
import type { Ask } from './exec-command.ts';

/** How long a sandbox may give no answer while its lease holds. */
const SILENT_MS = 60_000;
const AGAIN_MS = 250;
const CANCEL_MS = 30_000;
const END_MS = 30_000;
const LOOK_MS = 250;

const bodySchema = z.object({
  level: z.string(),
  image: z.string(),
  worker: z.string(),
  since: z.iso.datetime(),
  expiresAt: z.iso.datetime(),
});

/** A persistent sandbox of the fleet, as its lease describes it. */
export interface FleetSandboxInfo {
  /** Its id. */
  readonly id: string;
  /** The worker that has it. */
  readonly worker: string;
  /** How strongly it is isolated. */
  readonly level: string;
  /** The image that it was made of. */
  readonly image: string;
  /** When it was created, in ISO 8601. */
  readonly since: string;
  /** When it is removed at the latest, in ISO 8601. */
  readonly expiresAt: string;
}

/** What a lease says of its sandbox. */
export function sandboxInfo({ id, body }: SandboxLease): FleetSandboxInfo {
  try {
    return { id, ...bodySchema.parse(JSON.parse(body)) };
  } catch (cause) {
    const about = { name: 'The lease of a sandbox', setting: 'form', found: 'another', needed: 'that of this version' };
    throw FLEET_ERRORS.create('ACODE-FLT-003', about, { cause });
  }
}

/** The files of a sandbox, with the shape and the errors of `node:fs/promises`. Paths are those inside. */
export interface FleetFiles {
  /** Reads a whole file of at most 8 MiB; as text, if an encoding is given. */
  readFile(path: string): Promise<Buffer>;
  readFile(path: string, encoding: BufferEncoding): Promise<string>;
  /** Writes a whole file of at most 8 MiB, and creates it if it is missing. */
  writeFile(path: string, data: string | Uint8Array): Promise<void>;
}

/** What a sandbox is used with. */
export interface SandboxParts {
  readonly access: TaskAccess;
  readonly key: TaskKey;
  /** The tenant’s keys, which sign each call. */
  readonly keys: KeyPair;
  /** Public keys of workers whose answers are taken; absent: those of all. */
  readonly workers: readonly string[] | undefined;
}

/**
 * A persistent sandbox on a worker of the fleet. Commands reach it directly, and never through the queue; what one of them leaves, the
 * next one finds. It is a `CommandRunner`, as `Sandbox` is.
 *
 * @example
 * import { Fleet } from '@acode/fleet';
 *
 * await using fleet = await Fleet.open('fleet.yml');
 * await using sandbox = await fleet.create();
 * await sandbox.files.writeFile('hello.mjs', 'console.log(1 + 1)');
 * const { stdout } = await sandbox.run(['node', 'hello.mjs']);
 */
export class FleetSandbox implements CommandRunner, AsyncDisposable {
  /** Its id, for {@link Fleet.connect}. */
  readonly id: string;
  /** What its lease said of it. */
  readonly info: FleetSandboxInfo;
  /** Its files. */
  readonly files: FleetFiles;
  readonly #parts: SandboxParts;
  readonly #onDispose: 'kill' | 'leave';

  /** Made by `Fleet.create` and `Fleet.connect`. */
  constructor(parts: SandboxParts, info: FleetSandboxInfo, onDispose: 'kill' | 'leave') {
    this.id = info.id;
    this.info = info;
    this.#parts = parts;
    this.#onDispose = onDispose;
    this.files = filesOf((call, options) => this.#ask(call, options));
  }

  /**
   * Runs a command in it to its end. Rejects with ACODE-SBX-014 if `signal` cancelled it, and with ACODE-SBX-025 if the sandbox has ended.
   * The result has 32 KiB of each output stream; `onStdout` and `onStderr` get all of it.
   */
  async run(command: Command, request: CommandRequest = {}): Promise<RunResult> {
    const { stdin = '' } = request;
    return (await this.spawn(command, { ...request, stdin })).result;
  }

  /** Starts a command in it and returns a handle. Without `stdin`, its input stays open for `write`. */
  spawn(command: Command, request: CommandRequest = {}): Promise<RunningCommand> {
    return ExecCommand.begin(command, request, (call, options) => this.#ask(call, options));
  }

  /** Ends everything in it and removes it. Resolves when its lease is over. */
  async kill(): Promise<void> {
    const { access, key } = this.#parts;
    const signal = AbortSignal.timeout(CANCEL_MS);
    await access.cancel(key, signal);
    const end = performance.now() + END_MS;
    while ((await this.#exists(signal)) && performance.now() < end) await paused(LOOK_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#onDispose === 'kill') await this.kill();
  }

  async #exists(signal?: AbortSignal): Promise<boolean> {
    const { access, key } = this.#parts;
    return (await access.sandboxes(key.tenant, signal)).some(({ id }) => id === key.id);
  }

  // A sandbox that gives no answer is asked again for as long as its lease holds: its worker may be connecting again.
  async #ask<Verb extends ExecCall['verb']>(
    call: Extract<ExecCall, { verb: Verb }>,
    { bytes, signal }: { readonly bytes?: Uint8Array | undefined; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<{ readonly value: (typeof execAnswers)[Verb]['_output']; readonly bytes: Uint8Array }> {
    const { access, key, keys, workers } = this.#parts;
    const end = performance.now() + SILENT_MS;
    for (;;) {
      signal?.throwIfAborted();
      const message = signedCall(key, call, { keys, bytes });
      try {
        const answer = await access.ask(key, message, signal ?? AbortSignal.timeout(SILENT_MS));
        const found = verifiedAnswer(key.id, message, { answer, workers });
        if ('failure' in found.answer) throw failureOf(found.answer.failure);
        return { value: execAnswers[call.verb].parse(found.answer.value), bytes: found.bytes };
      } catch (error) {
        if (!isSilent(error)) throw error;
        if (!(await this.#exists(signal))) throw await this.#ended();
        if (performance.now() >= end) throw error;
        await paused(AGAIN_MS, signal);
      }
    }
  }

  // Why it ended, if its worker could say so; a worker that died says nothing.
  async #ended(): Promise<Error> {
    const { access, key } = this.#parts;
    const state = await access.state(key).catch(() => null);
    const reason = reasonIn(state);
    return new AcodeError('ACODE-SBX-025', {
      sandbox: key.id,
      reason,
      remedy: 'Create another one (`acode fleet create`). What was in its workspace is lost with it.',
    });
  }
}

function reasonIn(state: TaskState | null): string {
  if (!state) return 'the fleet knows nothing of it any more';
  if (!isFinal(state) || state.state === 'lost') return 'its worker died, left the fleet or lost its connection';
  if (state.state === 'cancelled') return 'it was killed';
  const body = state.outcome === undefined ? null : unverified(state.outcome);
  return (body === null ? undefined : parseOutcome(body)?.error?.reason) ?? 'it ended';
}

function isSilent(error: unknown): boolean {
  return error instanceof AcodeError && (error.code === 'ACODE-FLT-050' || error.code === 'ACODE-FLT-006');
}

function filesOf(ask: Ask): FleetFiles {
  function readFile(path: string): Promise<Buffer>;
  function readFile(path: string, encoding: BufferEncoding): Promise<string>;
  async function readFile(path: string, encoding?: BufferEncoding): Promise<Buffer | string> {
    const number = randomUUID();
    const parts: Uint8Array[] = [];
    for (let at = 0; ;) {
      const { value, bytes } = await ask({ verb: 'get', number, path, at });
      parts.push(bytes);
      at += bytes.length;
      if (at < value.size && bytes.length > 0) continue;
      const whole = Buffer.concat(parts);
      return encoding === undefined ? whole : whole.toString(encoding);
    }
  }
  async function writeFile(path: string, data: string | Uint8Array): Promise<void> {
    const whole = Buffer.from(data);
    const size = whole.length;
    if (size > MAX_BLOB_BYTES)
      throw FLEET_ERRORS.create('ACODE-FLT-007', { what: 'The file', bytes: size, maxBytes: MAX_BLOB_BYTES });
    const number = randomUUID();
    for (let at = 0; ;) {
      const bytes = whole.subarray(at, at + PART_BYTES);
      at = (await ask({ verb: 'put', number, path, size, at }, { bytes })).value.have;
      if (at >= size) return;
    }
  }
  return { readFile, writeFile };
}

// An error of a file has the code of the system call, as in `node:fs`.
function failureOf(failure: Failure): Error {
  const { code, message } = failure;
  if (code === 'ACODE-SBX-014') return new AcodeError('ACODE-SBX-014', {});
  return code.startsWith('ACODE-') ? errorOfOtherTable(failure) : Object.assign(new Error(message), { code });
}
