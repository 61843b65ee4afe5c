// The commands that other processes of this user have in a kept sandbox, reached through those processes.

import { rm } from 'node:fs/promises';
import { createConnection } from 'node:net';
import type { Socket } from 'node:net';
import { AcodeError } from '../../contract/errors.ts';
import type { PublishedPort, RunResult } from '../../contract/result.ts';
import type { CommandHandle, CommandInfo } from '../../contract/sandbox.ts';
import { offerSocketPaths } from '../../lifecycle/ownership.ts';
import { Capture } from '../../run/output/capture.ts';
import { PIECE, answer, asking, lines, say, unpacked, withOutput } from './wire.ts';
import type { Answer, Opening, Wish } from './wire.ts';

const ANSWER_MS = 5000;
const KILL_MS = 15_000;
const MAX_LINE = 64 * 1024 * 1024;
// As much as any policy keeps.
const MAX_OUTPUT = 256 * 1024 * 1024;

/** The commands of one kept sandbox that other processes have. */
export class CommandsElsewhere {
  readonly #runtimeDirectory: string;
  readonly #sandboxId: string;
  readonly #signal: AbortSignal;

  /** `signal` hangs up. */
  constructor(runtimeDirectory: string, sandboxId: string, signal: AbortSignal) {
    this.#runtimeDirectory = runtimeDirectory;
    this.#sandboxId = sandboxId;
    this.#signal = signal;
  }

  /** What they have under way, besides those of `own`. */
  async list(own: string | null): Promise<CommandInfo[]> {
    const paths = await this.#paths(own);
    const lists = await Promise.all(paths.map(path => this.#listed(path)));
    return lists.flat();
  }

  /** One of them by its process; null if no process has it. */
  async connect(pid: number, own: string | null): Promise<CommandHandle | null> {
    const paths = await this.#paths(own);
    const found = await Promise.all(paths.map(path => this.#connected(path, pid)));
    const [first = null, ...others] = found.filter(one => one !== null);
    // The number of a command whose end is not reported yet may already be another's.
    for (const other of others) await other.disconnect();
    return first;
  }

  /** What one of them has printed so far; null if no process has it. */
  async output(pid: number): Promise<OutputSoFar | null> {
    for (const path of await this.#paths(null)) {
      const asked = await this.#ask(path, asking.output(pid));
      asked?.socket.destroy();
      if (asked?.first.is === 'output') return asked.first;
    }
    return null;
  }

  async #paths(own: string | null): Promise<string[]> {
    this.#signal.throwIfAborted();
    return (await offerSocketPaths(this.#runtimeDirectory, this.#sandboxId)).filter(path => path !== own);
  }

  async #listed(path: string): Promise<CommandInfo[]> {
    const asked = await this.#ask(path, asking.list);
    asked?.socket.destroy();
    return asked?.first.is === 'list' ? asked.first.commands : [];
  }

  async #connected(path: string, pid: number): Promise<CommandHandle | null> {
    const asked = await this.#ask(path, asking.connect(pid));
    if (asked?.first.is !== 'connected') {
      asked?.socket.destroy();
      return null;
    }
    return new HandleElsewhere({ ...asked, pid, ports: asked.first.ports, sandboxId: this.#sandboxId });
  }

  // A socket without a listener offers no command; the socket of a killed process is removed.
  async #ask(path: string, words: Opening): Promise<Asked | null> {
    const socket = createConnection({ path, signal: this.#signal });
    socket.on('error', () => undefined);
    const late = setTimeout(() => socket.destroy(new Error('no answer')), ANSWER_MS);
    try {
      await new Promise<void>((resolve, reject) => void socket.once('connect', resolve).once('error', reject));
      await say(socket, words);
      const said = lines(socket, MAX_LINE);
      const next = await said.next();
      if (next.done) return null;
      return { socket, said, first: answer.parse(next.value) };
    } catch (error) {
      socket.destroy();
      this.#signal.throwIfAborted();
      if (error instanceof Error && 'code' in error && error.code === 'ECONNREFUSED')
        await rm(path, { force: true }).catch(() => undefined);
      return null;
    } finally {
      clearTimeout(late);
    }
  }
}

type OutputSoFar = Extract<Answer, { readonly is: 'output' }>;

interface Asked {
  readonly socket: Socket;
  readonly said: AsyncIterable<unknown>;
  readonly first: Answer;
}

interface HandleParts extends Asked {
  readonly pid: number;
  readonly ports: readonly PublishedPort[];
  readonly sandboxId: string;
}

/** A command of another process. Leaving it disconnects; the command keeps running. */
class HandleElsewhere implements CommandHandle {
  readonly pid: number;
  readonly ports: readonly PublishedPort[];
  readonly stdout: AsyncIterable<Uint8Array>;
  readonly stderr: AsyncIterable<Uint8Array>;
  readonly result: Promise<RunResult>;
  readonly #socket: Socket;
  readonly #wishes = new Map<number, (error: Error | null) => void>();
  #count = 0;
  #input: Promise<void> | null = null;
  #over: { readonly failure: Error | null } | null = null;

  constructor({ socket, said, pid, ports, sandboxId }: HandleParts) {
    this.#socket = socket;
    this.pid = pid;
    this.ports = ports;
    // As much as the other process keeps of it, which its policy bounds.
    const captures = { stdout: new Capture(MAX_OUTPUT), stderr: new Capture(MAX_OUTPUT) };
    this.stdout = { [Symbol.asyncIterator]: () => captures.stdout.follow() };
    this.stderr = { [Symbol.asyncIterator]: () => captures.stderr.follow() };
    this.result = this.#follow(said, captures)
      .catch((error: unknown) => {
        if (error instanceof AcodeError) throw error;
        const reason = `the process that has its command ${pid} does not answer any more`;
        throw new AcodeError('ACODE-SBX-026', { sandbox: sandboxId, reason, remedy: REMEDY }, { cause: error });
      })
      .finally(() => {
        captures.stdout.end();
        captures.stderr.end();
        socket.destroy();
      });
    this.result.then(
      () => this.#end(null),
      (error: Error) => this.#end(error),
    );
  }

  async write(data: Uint8Array | string): Promise<void> {
    const bytes = Buffer.from(data);
    await this.#inOrder(async () => {
      for (let at = 0; at < bytes.length; at += PIECE)
        await this.#wish(id => ({ id, do: 'write', data: bytes.subarray(at, at + PIECE).toString('base64') }));
    });
  }

  async closeStdin(): Promise<void> {
    await this.#inOrder(() => this.#wish(id => ({ id, do: 'closeStdin' })));
  }

  // The other process has less time for it; one that is stopped has no answer.
  async kill(signal = 'SIGTERM'): Promise<void> {
    const late = setTimeout(() => void this.#socket.destroy(), KILL_MS);
    try {
      await this.#wish(id => ({ id, do: 'kill', signal }));
    } finally {
      clearTimeout(late);
    }
  }

  wait(): Promise<RunResult> {
    return this.result;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.disconnect();
  }

  async disconnect(): Promise<void> {
    this.#socket.destroy();
    await this.result.catch(() => undefined);
  }

  async #follow(
    said: AsyncIterable<unknown>,
    to: { readonly stdout: Capture; readonly stderr: Capture },
  ): Promise<RunResult> {
    for await (const next of said) {
      const message = answer.parse(next);
      if (message.is === 'stdout' || message.is === 'stderr') to[message.is].push(Buffer.from(message.data, 'base64'));
      else if (message.is === 'done') this.#done(message.id, message.failure ? unpacked(message.failure) : null);
      else if (message.is === 'failed') throw unpacked(message.failure, to);
      else if (message.is === 'result') return withOutput(message.result, to);
    }
    throw new Error('the connection has ended');
  }

  #done(id: number, error: Error | null): void {
    this.#wishes.get(id)?.(error);
    this.#wishes.delete(id);
  }

  // What has ended needs no input and no signal, and says so by its result.
  #end(failure: Error | null): void {
    this.#over = { failure };
    for (const settle of this.#wishes.values()) settle(failure);
    this.#wishes.clear();
  }

  // Callers who do not wait for one call before the next have their pieces in the order of the calls all the same.
  async #inOrder(work: () => Promise<void>): Promise<void> {
    const mine = this.#input ? this.#input.then(work) : work();
    const settled = mine
      .catch(() => undefined)
      .finally(() => {
        if (this.#input === settled) this.#input = null;
      });
    this.#input = settled;
    await mine;
  }

  async #wish(of: (id: number) => Wish): Promise<void> {
    const id = (this.#count += 1);
    await new Promise<void>((resolve, reject) => {
      const settle = (error: Error | null): void => (error ? reject(error) : resolve());
      if (this.#over) return settle(this.#over.failure);
      this.#wishes.set(id, settle);
      // Where it cannot be said any more, the end of the conversation settles it.
      say(this.#socket, of(id)).catch(() => undefined);
    });
  }
}

const REMEDY = 'The command may still run; `ps` inside shows it, and it ends with the sandbox at the latest.';
