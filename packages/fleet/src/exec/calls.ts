// Calls of clients to one persistent sandbox: commands with their input and output, and files. A call that comes twice is done once.

import { AcodeError } from '@acode/sandbox';
import type { CommandRequest, Files, RunResult, RunningCommand } from '@acode/sandbox';
import { MAX_BLOB_BYTES } from '../engine/engine.ts';
import { FLEET_ERRORS } from '../errors.ts';
import { CalledCommand, WAIT_MS, told, within } from './called-command.ts';
import { MAX_AGE_MS, PART_BYTES } from './protocol.ts';
import type { CallOf, ExecAnswer, ExecCall } from './protocol.ts';

const MAX_COMMANDS = 64;
const MAX_TRANSFERS = 4;

/** What calls need of a sandbox. */
export interface CallTarget {
  /** Starts a command. */
  spawn(command: string | readonly string[], request: CommandRequest): Promise<RunningCommand>;
  /** Its files. */
  readonly files: Pick<Files, 'createReadStream' | 'writeFile'>;
}

/** The calls to one sandbox. */
export class SandboxCalls {
  readonly #id: string;
  readonly #target: CallTarget;
  readonly #fitted: (result: RunResult) => RunResult;
  readonly #commands = new Map<string, Promise<CalledCommand>>();
  readonly #transfers = new Map<string, Promise<Transfer>>();
  /** Numbers that were used, by when: a call that somebody has kept and sends again changes nothing. */
  readonly #used = new Map<string, number>();
  readonly #verbs: {
    readonly [Verb in ExecCall['verb']]: (call: CallOf<Verb>, bytes: Uint8Array) => Promise<ExecAnswer>;
  } = {
    begin: call => this.#begin(call),
    follow: async call => (await this.#command(call.number)).follow(call.after),
    write: async (call, bytes) => (await this.#command(call.number)).write(call, bytes),
    signal: async call => (await this.#command(call.number)).signal(call.signal),
    put: (call, bytes) => this.#put(call, bytes),
    get: call => this.#get(call),
  };

  /** `fitted` cuts a result to what a message may have. */
  constructor(id: string, target: CallTarget, fitted: (result: RunResult) => RunResult) {
    this.#id = id;
    this.#target = target;
    this.#fitted = fitted;
  }

  /** Answers one call. Never rejects. */
  async answer(call: ExecCall, bytes: Uint8Array): Promise<ExecAnswer> {
    try {
      const { value, bytes: more } = await this.#verb(call, bytes);
      return { value: { value }, bytes: more };
    } catch (error) {
      return { value: { failure: failureOf(error) } };
    }
  }

  #verb<Verb extends ExecCall['verb']>(
    call: CallOf<Verb> & { readonly verb: Verb },
    bytes: Uint8Array,
  ): Promise<ExecAnswer> {
    return this.#verbs[call.verb](call, bytes);
  }

  async #begin({ number, command, cwd, env, timeoutMs, input }: CallOf<'begin'>): Promise<ExecAnswer> {
    if (!this.#commands.has(number)) {
      this.#use(number);
      await this.#makeRoom();
      const cancel = new AbortController();
      const request: CommandRequest = {
        signal: cancel.signal,
        ...(cwd === undefined ? {} : { cwd }),
        ...(env === undefined ? {} : { env }),
        ...(timeoutMs === undefined ? {} : { timeoutMs }),
        ...(input ? {} : { stdin: '' }),
      };
      const begun = this.#target.spawn(command, request).then(
        running => new CalledCommand(running, cancel, this.#fitted),
        (error: unknown) => new CalledCommand(error, cancel, this.#fitted),
      );
      this.#commands.set(number, begun);
    }
    const begun = await within(WAIT_MS, this.#commands.get(number));
    begun?.assertBegun();
    return told('begin', {});
  }

  // Those that ended long ago make room for others; those that run do not.
  async #makeRoom(): Promise<void> {
    for (const [number, begun] of this.#commands) {
      if (this.#commands.size < MAX_COMMANDS) return;
      const command = await within(0, begun);
      if (command?.isOver === true) this.#commands.delete(number);
    }
    if (this.#commands.size >= MAX_COMMANDS) throw this.#refused(`it has ${MAX_COMMANDS} commands at once`);
  }

  async #command(number: string): Promise<CalledCommand> {
    const found = this.#commands.get(number);
    if (found) return found;
    throw this.#refused('it has no such command, or not any more');
  }

  async #put({ number, path, size, at }: CallOf<'put'>, bytes: Uint8Array): Promise<ExecAnswer> {
    const transfer = await this.#transfer(number, async () => new Transfer());
    if (transfer.have < size || !transfer.written) {
      if (at === transfer.have && at + bytes.length <= size) transfer.add(bytes);
      if (transfer.have === size) transfer.written ??= this.#target.files.writeFile(path, transfer.whole());
    }
    await transfer.written;
    return told('put', { have: transfer.have });
  }

  async #get({ number, path, at }: CallOf<'get'>): Promise<ExecAnswer> {
    const transfer = await this.#transfer(number, () => this.#read(path));
    return told('get', { size: transfer.have }, transfer.whole().subarray(at, at + PART_BYTES));
  }

  async #read(path: string): Promise<Transfer> {
    const transfer = new Transfer();
    const content: AsyncIterable<unknown> = this.#target.files.createReadStream(path);
    for await (const piece of content) {
      if (piece instanceof Uint8Array) transfer.add(piece);
      if (transfer.have > MAX_BLOB_BYTES)
        throw FLEET_ERRORS.create('ACODE-FLT-007', {
          what: 'The file',
          bytes: transfer.have,
          maxBytes: MAX_BLOB_BYTES,
        });
    }
    return transfer;
  }

  #transfer(number: string, make: () => Promise<Transfer>): Promise<Transfer> {
    const known = this.#transfers.get(number);
    if (known) return known;
    this.#use(number);
    // The oldest one was given up.
    const [oldest] = this.#transfers.keys();
    if (this.#transfers.size >= MAX_TRANSFERS && oldest !== undefined) this.#transfers.delete(oldest);
    const made = make();
    this.#transfers.set(number, made);
    made.catch(() => this.#transfers.delete(number));
    return made;
  }

  // What is older than any signature that is taken need not be known any more.
  #use(number: string): void {
    const now = Date.now();
    for (const [old, at] of this.#used) {
      if (now - at < 2 * MAX_AGE_MS) break;
      this.#used.delete(old);
    }
    if (this.#used.has(number)) throw this.#refused('the call was answered before');
    this.#used.set(number, now);
  }

  #refused(reason: string): Error {
    return FLEET_ERRORS.create('ACODE-FLT-052', { sandbox: this.#id, reason });
  }
}

/** A file on its way. */
class Transfer {
  readonly #parts: Uint8Array[] = [];
  have = 0;
  written: Promise<void> | null = null;

  add(bytes: Uint8Array): void {
    this.#parts.push(bytes.slice());
    this.have += bytes.length;
  }

  whole(): Buffer {
    const whole = Buffer.concat(this.#parts);
    this.#parts.splice(0, Infinity, whole);
    return whole;
  }
}

// An error of a file has the code of the system call, as in `node:fs`. Contexts are the operator’s: they may name paths of this machine.
function failureOf(error: unknown): object {
  if (error instanceof AcodeError) {
    const { code, message, hint, exitStatus } = error.toJSON();
    return { code, message, hint, exitStatus };
  }
  const message = error instanceof Error ? error.message : String(error);
  const code =
    error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : 'ACODE-SBX-018';
  return { code, message, hint: '', exitStatus: 125 };
}
