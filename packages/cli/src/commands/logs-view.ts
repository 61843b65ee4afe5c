// What `acode sandbox logs` shows. Loaded by that command only.

import { formatBytes } from '@acode/sandbox';
import type { LogEvent, RunningLog, SavedLog, SavedLogInfo } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { age } from '../terminal/age.ts';
import type { Look } from '../terminal/look.ts';
import { Screen, pump } from '../terminal/pump.ts';
import { table } from '../terminal/table.ts';
import { oneLine } from '../terminal/text.ts';

const ID_LENGTH = 8;
// As many as a person reads; the newest come first.
const SHOWN = 20;
const PART = 64 * 1024;
// A saved log is shown without an engine too, and an engine that does not answer does not hold it back.
const ENGINE_MS = 5000;

/** Lists the past runs. */
export async function listLogs(call: Call): Promise<number> {
  const items = await call.withObserver(observer => observer.logs.list());
  await call.print('acode.logs/1', { items }, look => renderLogs(items, look));
  return 0;
}

/**
 * Shows what runs now in a sandbox, or else its newest saved output. In JSON both have the shape of the list, with the
 * output in each item: one schema to read.
 */
export async function showLog(call: Call, reference: string): Promise<number> {
  const items = await call.withObserver(async ({ logs }) => {
    const signal = AbortSignal.any([call.interruption.signal, AbortSignal.timeout(ENGINE_MS)]);
    const now = await logs.running(reference, { signal }).catch(() => null);
    call.interruption.signal.throwIfAborted();
    if (now && now.commands.length > 0) return now.commands;
    return [await logs.find(now?.sandboxId ?? reference)];
  });
  if (call.options.json) await call.printJson('acode.logs/1', { items });
  else for (const item of items) await replay(call, item, reference);
  return 0;
}

async function replay(call: Call, log: SavedLog | RunningLog, reference: string): Promise<void> {
  const { signal } = call.interruption;
  await Promise.all([pump(parts(log.stdout), call.stdout, signal), pump(parts(log.stderr), call.stderr, signal)]);
  const { stdout, stderr } = log.dropped;
  if (stdout + stderr > 0)
    await note(
      call,
      `${formatBytes(stdout)} of standard output and ${formatBytes(stderr)} of standard error were not saved.`,
    );
  if ('startedAt' in log)
    await note(
      call,
      `the command still runs; \`acode sandbox logs --follow ${oneLine(reference)}\` prints what comes.`,
    );
}

/** Follows a sandbox until it ends, and returns the exit status: 0, whatever its commands came to. */
export async function followLog(call: Call, reference: string | undefined): Promise<number> {
  if (reference === undefined)
    throw new UsageError(
      '--follow needs a sandbox.',
      'Name it: `acode sandbox logs --follow <ref>`. `acode sandbox list` shows the names and ids of those that exist.',
    );
  const { signal } = call.interruption;
  const shown = call.options.json ? new Collected() : new Shown(call);
  await call.withObserver(async ({ logs }) => {
    try {
      for await (const event of logs.follow(reference, { signal })) if (!(await shown.take(event))) return;
    } finally {
      shown.end();
    }
  });
  if (shown instanceof Collected && !signal.aborted) await call.printJson('acode.logs/1', { items: shown.items });
  return 0;
}

// For a person, and for a pipe: the streams as they are, and what acode says of them on standard error.
class Shown {
  readonly #call: Call;
  readonly #screens: Readonly<Record<'stdout' | 'stderr', Screen>>;

  constructor(call: Call) {
    this.#call = call;
    this.#screens = { stdout: new Screen(call.stdout), stderr: new Screen(call.stderr) };
  }

  /** False where nobody reads any more. */
  async take(event: LogEvent): Promise<boolean> {
    const { signal } = this.#call.interruption;
    if (event.kind === 'began') await note(this.#call, `following: ${oneLine(event.command)}`);
    else if (event.kind === 'waiting')
      await note(this.#call, 'no command runs in this sandbox; waiting for one. Ctrl-C ends.');
    else if (event.kind === 'ended') await note(this.#call, endOf(event));
    else return this.#screens[event.kind].write(event.data, signal);
    return !signal.aborted;
  }

  end(): void {
    this.#screens.stdout.reset();
    this.#screens.stderr.reset();
  }
}

function endOf({ exitCode, error, dropped }: Extract<LogEvent, { kind: 'ended' }>): string {
  const how =
    error === undefined
      ? `the command ${exitCode === null ? 'was killed by acode' : `ended with exit status ${exitCode}`}.`
      : `acode does not know how the command ended: ${oneLine(error)}`;
  return dropped > 0 ? `${how} ${formatBytes(dropped)} beyond its output limit were not kept.` : how;
}

interface Item {
  readonly command: string;
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number | null;
}

// One object has an end: it is printed when the sandbox has.
class Collected {
  readonly items: Item[] = [];
  readonly #chunks = { stdout: [] as [string, Uint8Array][], stderr: [] as [string, Uint8Array][] };

  async take(event: LogEvent): Promise<boolean> {
    if (event.kind === 'stdout' || event.kind === 'stderr') this.#chunks[event.kind].push([event.command, event.data]);
    else if (event.kind === 'ended') {
      const { command, exitCode } = event;
      this.items.push({
        command,
        exitCode,
        stdout: this.#text('stdout', command),
        stderr: this.#text('stderr', command),
      });
    }
    return true;
  }

  end(): void {}

  #text(stream: 'stdout' | 'stderr', command: string): string {
    const own = this.#chunks[stream].filter(([of]) => of === command);
    this.#chunks[stream] = this.#chunks[stream].filter(([of]) => of !== command);
    return Buffer.concat(own.map(([, data]) => data)).toString();
  }
}

async function note(call: Call, text: string): Promise<void> {
  await call.say(`${call.errorLook.colours.yellow('acode:')} ${text}\n`);
}

/** The kept runs for a person. */
export function renderLogs(items: readonly SavedLogInfo[], look: Look): string {
  if (items.length === 0) return 'No run has saved output.\n';
  const rows = items
    .slice(0, SHOWN)
    .map(({ name, sandboxId, endedAt, exitCode, command }) => [
      name,
      sandboxId.slice(0, ID_LENGTH),
      age(endedAt, look.now),
      exitCode === null ? 'killed' : String(exitCode),
      command,
    ]);
  const more = items.length > SHOWN ? `… and ${items.length - SHOWN} older runs; --json lists them all.\n` : '';
  return table(['NAME', 'ID', 'ENDED', 'EXIT', 'COMMAND'], rows, look) + more;
}

async function* parts(text: string): AsyncGenerator<Uint8Array, void, undefined> {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += PART) yield bytes.subarray(at, at + PART);
}
