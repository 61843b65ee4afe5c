// Output of commands that run in other processes of the user: read so far, or followed until the sandbox ends.

import { once, setMaxListeners } from 'node:events';
import { PassThrough } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { AcodeError } from '../../contract/errors.ts';
import type { LogEvent, RunningLog, SandboxInfo, SavedLog } from '../../contract/host.ts';
import type { CommandHandle, CommandInfo } from '../../contract/sandbox.ts';
import { KEEP, OWNER, isOwn } from '../../lifecycle/labels.ts';
import { offeringSandboxes, ownerState } from '../../lifecycle/ownership.ts';
import type { Host } from '../../run/host.ts';
import { printable } from '../../run/trail.ts';
import { meant } from '../connect.ts';
import { CommandsElsewhere } from './elsewhere.ts';

const POLL_MS = 250;
// Polls of the sockets for each question to the engine, once a sandbox is idle.
const SOON = 8;
const MAX_QUEUED = 64;
const ID = /^[0-9a-f-]{4,36}$/;

/** The commands that run in a sandbox now, with what they have printed. */
export async function runningLogs(
  host: Host,
  reference: string,
  signal: AbortSignal,
): Promise<{ readonly sandboxId: string | null; readonly commands: RunningLog[] }> {
  const located = await locate(host, reference, signal);
  if (!located) return { sandboxId: null, commands: [] };
  const { sandboxId } = located;
  const elsewhere = new CommandsElsewhere(host.directories.runtime, sandboxId, signal);
  const commands: RunningLog[] = [];
  for (const info of await elsewhere.list(null)) {
    const output = await elsewhere.output(info.pid);
    // It ended in this moment.
    if (!output) continue;
    const [stdout, stderr] = [text(output.stdout), text(output.stderr)];
    const { dropped } = output;
    commands.push({ sandboxId, command: lineOf(info), startedAt: info.startedAt, stdout, stderr, dropped });
  }
  return { sandboxId, commands };
}

/** Follows what is printed in a sandbox. A single-use sandbox ends with its command; a persistent one goes on. */
export async function* followLogs(
  host: Host,
  reference: string,
  callers: AbortSignal,
): AsyncGenerator<LogEvent, void, undefined> {
  const located = await locate(host, reference, callers);
  if (!located) {
    const past = await host.pastLogs.find(reference);
    if (!past) throw new AcodeError('ACODE-CTN-012', { reference, what: 'sandbox' });
    yield* eventsOf(past);
    return;
  }
  const stop = new AbortController();
  const signal = AbortSignal.any([callers, stop.signal]);
  // Each question to another process listens to it.
  setMaxListeners(0, signal);
  const events = new PassThrough({ objectMode: true, highWaterMark: MAX_QUEUED });
  const following = new Following(host, located, events, signal);
  void following.toEnd().then(
    () => events.end(),
    (error: unknown) => (callers.aborted ? events.end() : events.destroy(asError(error))),
  );
  try {
    yield* events as AsyncIterable<LogEvent>;
  } finally {
    stop.abort();
  }
}

/** A sandbox that is followed. */
interface Located {
  readonly sandboxId: string;
  readonly lives: () => Promise<boolean>;
}

class Following {
  readonly #host: Host;
  readonly #located: Located;
  readonly #events: PassThrough;
  readonly #signal: AbortSignal;
  readonly #elsewhere: CommandsElsewhere;
  /** Commands by process and start: numbers of processes are used again. */
  readonly #seen = new Set<string>();
  /** Correlation ids of the commands whose output was passed on. */
  readonly #told = new Set<string>();
  #running = 0;

  constructor(host: Host, located: Located, events: PassThrough, signal: AbortSignal) {
    this.#host = host;
    this.#located = located;
    this.#events = events;
    this.#signal = signal;
    this.#elsewhere = new CommandsElsewhere(host.directories.runtime, located.sandboxId, signal);
  }

  async toEnd(): Promise<void> {
    const { sandboxId, lives } = this.#located;
    const sinceMs = Date.now();
    if ((await this.#begin()) === 0 && !(await this.#tellNewest(sandboxId)))
      await this.#put({ kind: 'waiting', sandboxId });
    for (let idle = 0; ;) {
      await pause(POLL_MS, undefined, { signal: this.#signal });
      if ((await this.#begin()) > 0) {
        idle = 0;
        continue;
      }
      // A command can begin and end between two polls: its output is saved.
      await this.#tellSaved(sandboxId, sinceMs);
      idle += 1;
      // Most sandboxes end soon after their command; a persistent one is asked for less often.
      if ((idle > SOON && idle % SOON !== 0) || (await lives())) continue;
      await this.#tellSaved(sandboxId, sinceMs);
      return;
    }
  }

  // Connects to what runs, and says how many commands are followed now.
  async #begin(): Promise<number> {
    for (const info of await this.#elsewhere.list(null)) {
      const key = `${info.pid} ${info.startedAt}`;
      if (this.#seen.has(key)) continue;
      const handle = await this.#elsewhere.connect(info.pid, null);
      if (!handle) continue;
      this.#seen.add(key);
      this.#running += 1;
      void this.#passOn(handle, info)
        .catch(() => undefined)
        .finally(() => (this.#running -= 1));
    }
    return this.#running;
  }

  async #passOn(handle: CommandHandle, info: CommandInfo): Promise<void> {
    const command = lineOf(info);
    await this.#put({ kind: 'began', sandboxId: this.#located.sandboxId, command });
    const pump = async (kind: 'stdout' | 'stderr'): Promise<void> => {
      for await (const data of handle[kind]) await this.#put({ kind, command, data });
    };
    await Promise.all([pump('stdout'), pump('stderr')]);
    const ended = await handle.result.then(
      ({ exitCode, dropped, correlationId }) => {
        this.#told.add(correlationId);
        return { exitCode, dropped: dropped.stdout + dropped.stderr };
      },
      (error: unknown) => ({ exitCode: null, dropped: 0, error: asError(error).message }),
    );
    await this.#put({ kind: 'ended', command, ...ended });
  }

  async #tellNewest(sandboxId: string): Promise<boolean> {
    const past = await this.#host.pastLogs.find(sandboxId);
    if (past) await this.#tell(past);
    return past !== null;
  }

  async #tellSaved(sandboxId: string, sinceMs: number): Promise<void> {
    for (const past of await this.#host.pastLogs.since(sandboxId, sinceMs)) await this.#tell(past);
  }

  async #tell(past: SavedLog): Promise<void> {
    const { correlationId = past.endedAt } = past;
    if (this.#told.has(correlationId)) return;
    this.#told.add(correlationId);
    for (const event of eventsOf(past)) await this.#put(event);
  }

  // At the reader’s pace.
  async #put(event: LogEvent): Promise<void> {
    if (!this.#events.write(event)) await once(this.#events, 'drain', { signal: this.#signal });
  }
}

function* eventsOf(past: SavedLog): Generator<LogEvent, void, undefined> {
  const { command, sandboxId, exitCode, dropped } = past;
  yield { kind: 'began', sandboxId, command };
  for (const kind of ['stdout', 'stderr'] as const)
    if (past[kind] !== '') yield { kind, command, data: Buffer.from(past[kind]) };
  yield { kind: 'ended', command, exitCode, dropped: dropped.stdout + dropped.stderr };
}

// Sandboxes without an engine are known by the sockets that offer their commands; so are all where the engine is away.
async function locate(host: Host, reference: string, signal: AbortSignal): Promise<Located | null> {
  const { runtime } = host.directories;
  const offering = ID.test(reference) ? await offeringSandboxes(runtime, reference) : [];
  const [sandboxId] = offering.length === 1 ? offering : [];
  try {
    const onEngine = await locateOnEngine(host, reference, signal);
    if (onEngine) return onEngine;
  } catch (error) {
    if (signal.aborted || sandboxId === undefined) throw error;
  }
  if (sandboxId === undefined) return null;
  return { sandboxId, lives: async () => (await offeringSandboxes(runtime, sandboxId)).length > 0 };
}

async function locateOnEngine(host: Host, reference: string, signal: AbortSignal): Promise<Located | null> {
  const engine = await host.engine();
  const own = async (): Promise<SandboxInfo[]> => (await engine.list(signal)).filter(one => isOwn(one, host.uid));
  const found = meant(await own(), reference, host.uid);
  if (!found) return null;
  const { sandboxId } = found;
  const lives = async (): Promise<boolean> => {
    const now = (await own()).find(one => one.sandboxId === sandboxId);
    if (now?.state !== 'running') return false;
    return now.labels[KEEP] === 'true' || (await ownerState(host.directories.runtime, now.labels[OWNER])) !== 'dead';
  };
  return { sandboxId, lives };
}

function lineOf({ command }: CommandInfo): string {
  const shown = printable(command);
  return typeof shown === 'string' ? shown : shown.join(' ');
}

function text(base64: string): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(Buffer.from(base64, 'base64'));
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
