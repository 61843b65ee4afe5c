// The commands that this process has in a kept sandbox, offered to the user's other processes: who connects reads what is
// printed from its first byte on, writes, kills and waits. The command remains this process's own, with its limits and its record.

import { rm } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { AcodeError } from '../../contract/errors.ts';
import type { CommandInfo } from '../../contract/sandbox.ts';
import type { PublishedPort, RunResult } from '../../contract/result.ts';
import { listenAt, offerSocketPath } from '../../lifecycle/ownership.ts';
import type { Listening } from '../../lifecycle/ownership.ts';
import type { Host, OfferedRun } from '../../run/host.ts';
import type { Heads } from '../../run/output/capture.ts';
import { PIECE, TAKEN_MS, lines, opening, packed, say, wish, withoutOutput } from './wire.ts';
import type { Answer, Wish } from './wire.ts';

/** A command that can be offered. */
export interface Offered {
  readonly ports: readonly PublishedPort[];
  readonly result: Promise<RunResult>;
  readonly heads: Heads;
  write(data: Uint8Array): Promise<void>;
  closeStdin(): Promise<void>;
  kill(signal: string): Promise<void>;
}

/** The running commands, looked up at each request. */
export interface UnderWay {
  list(): CommandInfo[];
  find(pid: number): Offered | null;
}

const MAX_READERS = 32;
const MAX_WISHES = 64;
// Of all readers of one command together, including disconnected ones: input that it has not read remains queued.
const MAX_INPUT = 256;
const MAX_LINE = 2 * PIECE;
const OPENING_MS = 5000;
const LAST_WORD_MS = 500;
const MAX_SO_FAR = 1024 ** 2;

/** Offers the output of a run until it ends. Input and signals are for the process that started it. */
export function offerRun(
  { directories, keep }: Pick<Host, 'directories' | 'keep'>,
  { sandboxId, info, running }: OfferedRun,
): void {
  const { ports, result, heads } = running;
  const offered: Offered = { ports, result, heads, write: notYours, closeStdin: notYours, kill: notYours };
  const find = (pid: number): Offered | null => (pid === info.pid ? offered : null);
  const offer = new CommandsOffer(offerSocketPath(directories.runtime, sandboxId), { list: () => [info], find });
  keep(offer.begin());
  const end = (): void => keep(offer.end());
  result.then(end, end);
}

async function notYours(): Promise<never> {
  throw new AcodeError('ACODE-SBX-017', { field: 'pid', reason: 'the command belongs to the process that started it' });
}

/** Offers commands, from `begin` to `end`. */
export class CommandsOffer {
  readonly #commands: UnderWay;
  readonly #path: string;
  readonly #connections = new Set<Socket>();
  #listening: Promise<Listening | null> | null = null;
  #over = false;

  constructor(path: string, commands: UnderWay) {
    this.#path = path;
    this.#commands = commands;
  }

  /** Starts to listen, if it does not yet. It never blocks the caller; if the socket cannot be created, nothing is offered. */
  begin(): Promise<unknown> {
    this.#listening ??= this.#over ? Promise.resolve(null) : this.#listen().catch(() => null);
    return this.#listening;
  }

  /** Stops listening. A connected process still gets the result of its command, if that takes no longer than a moment. */
  async end(): Promise<void> {
    this.#over = true;
    const listening = await this.#listening;
    if (!listening) return;
    await rm(this.#path, { force: true });
    const hangUp = (): void => this.#connections.forEach(connection => void connection.destroy());
    const late = setTimeout(hangUp, LAST_WORD_MS);
    await new Promise<void>(resolve => void listening.server.close(() => resolve()));
    clearTimeout(late);
  }

  async #listen(): Promise<Listening> {
    const listening = await listenAt(this.#path, connection => this.#welcome(connection));
    listening.server.maxConnections = MAX_READERS;
    return listening;
  }

  #welcome(connection: Socket): void {
    this.#connections.add(connection);
    // Who reads along does not keep this process running.
    connection.unref();
    const close = (): void => void connection.destroy();
    connection.on('error', close);
    const late = setTimeout(close, OPENING_MS).unref();
    const begun = (): void => clearTimeout(late);
    const gone = new AbortController();
    connection.once('close', () => {
      this.#connections.delete(connection);
      begun();
      gone.abort();
    });
    void this.#converse(connection, begun, gone.signal).then(close, close);
  }

  async #converse(connection: Socket, begun: () => void, gone: AbortSignal): Promise<void> {
    const said = lines(connection, MAX_LINE);
    const first = await said.next();
    if (first.done) return;
    const asked = opening.parse(first.value);
    begun();
    if (asked.ask === 'list') return finish(connection, { is: 'list', commands: this.#commands.list() });
    const command = this.#commands.find(asked.pid);
    if (!command) return finish(connection, { is: 'none' });
    if (asked.ask === 'output') return finish(connection, await outputSoFar(command));
    await say(connection, { is: 'connected', ports: [...command.ports] });
    // A client that disconnects wants nothing more; the command keeps running.
    const hungUp = obey(connection, command, said);
    await Promise.race([hungUp, tell(connection, command, gone)]);
    // A connection that is closed before everything was read that came over it takes the last word with it.
    await Promise.race([hungUp, new Promise(resolve => void setTimeout(resolve, LAST_WORD_MS).unref())]);
  }
}

// The newest of what is kept: as much of each stream as the saved output of a past run has.
async function outputSoFar({ heads }: Offered): Promise<Answer> {
  const read = async (is: 'stdout' | 'stderr'): Promise<{ data: string; dropped: number }> => {
    const chunks: Uint8Array[] = [];
    // A stream that nobody waits for ends where it is now.
    for await (const chunk of heads[is](AbortSignal.abort())) chunks.push(chunk);
    const whole = Buffer.concat(chunks);
    const dropped = Math.max(0, whole.length - MAX_SO_FAR);
    return { data: whole.subarray(dropped).toString('base64'), dropped };
  };
  const [stdout, stderr] = [await read('stdout'), await read('stderr')];
  const dropped = { stdout: stdout.dropped, stderr: stderr.dropped };
  return { is: 'output', stdout: stdout.data, stderr: stderr.data, dropped };
}

async function tell(connection: Socket, command: Offered, gone: AbortSignal): Promise<void> {
  const pump = async (is: 'stdout' | 'stderr'): Promise<void> => {
    for await (const chunk of command.heads[is](gone))
      for (let at = 0; at < chunk.length; at += PIECE)
        await say(connection, { is, data: Buffer.from(chunk.subarray(at, at + PIECE)).toString('base64') });
  };
  await Promise.all([pump('stdout'), pump('stderr')]);
  if (gone.aborted) return;
  const last = await command.result.then(
    (result): Answer => ({ is: 'result', result: withoutOutput(result) }),
    (error: unknown): Answer => ({ is: 'failed', failure: packed(error) }),
  );
  await finish(connection, last);
}

const untaken = new WeakMap<Offered, number>();

// Input in its order; a signal at once, since a command that does not read would hold it back.
async function obey(connection: Socket, command: Offered, said: AsyncIterable<unknown>): Promise<void> {
  let pending = 0;
  let input: Promise<void> = Promise.resolve();
  for await (const next of said) {
    const wanted = wish.parse(next);
    pending += 1;
    if (pending > MAX_WISHES) throw new Error(`more than ${MAX_WISHES} requests at once`);
    const done =
      wanted.do === 'kill'
        ? carryOut(command, wanted)
        : counted(command, () => input.then(() => carryOut(command, wanted)));
    if (wanted.do !== 'kill') input = done.catch(() => undefined);
    void done
      .then(
        () => say(connection, { is: 'done', id: wanted.id }),
        (error: unknown) => say(connection, { is: 'done', id: wanted.id, failure: packed(error) }),
      )
      .catch(() => undefined)
      .finally(() => (pending -= 1));
  }
}

async function counted(command: Offered, work: () => Promise<void>): Promise<void> {
  const count = (by: number): number => {
    const now = (untaken.get(command) ?? 0) + by;
    untaken.set(command, now);
    return now;
  };
  try {
    if (count(1) > MAX_INPUT)
      throw new AcodeError('ACODE-SBX-017', {
        field: 'stdin',
        reason: 'the command does not take what it was sent before',
      });
    await work();
  } finally {
    count(-1);
  }
}

async function carryOut(command: Offered, wanted: Wish): Promise<void> {
  if (wanted.do === 'write') await command.write(Buffer.from(wanted.data, 'base64'));
  else if (wanted.do === 'closeStdin') await command.closeStdin();
  else await command.kill(wanted.signal);
}

async function finish(connection: Socket, last: Answer): Promise<void> {
  await say(connection, last);
  connection.setTimeout(TAKEN_MS, () => void connection.destroy());
  await new Promise<void>(resolve => {
    connection.once('close', () => resolve());
    connection.end(() => resolve());
  });
}
