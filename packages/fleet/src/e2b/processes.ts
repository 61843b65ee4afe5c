// Commands of one sandbox as E2B’s `process.Process` has them: started, listed, followed by any number of callers, written to, ended.

import type { CommandHandle, RunResult, Sandbox, TerminalHandle } from '@acode/sandbox';
import * as z from 'zod';
import { FLEET_ERRORS } from '../errors.ts';
import { invalid, refusalOf } from './wire.ts';
import type { MessageStream } from './wire.ts';

const MAX_PROCESSES = 256;

const integer = z.coerce.number().int().min(0);
const configSchema = z.object({
  cmd: z.string().min(1).max(4096),
  args: z.array(z.string()).default([]),
  envs: z.record(z.string(), z.string()).default({}),
  cwd: z.string().optional(),
});
const sizeSchema = z.object({ cols: integer.default(80), rows: integer.default(24) });
const ptySchema = z.object({ size: sizeSchema.default({ cols: 80, rows: 24 }) });
const selectorSchema = z.object({ pid: integer.optional(), tag: z.string().optional() });
const BASE64 = z.string().transform(text => Buffer.from(text, 'base64'));

/** A call that starts a command. */
export const startSchema = z.object({
  process: configSchema,
  pty: ptySchema.optional(),
  tag: z.string().max(256).optional(),
  // Programs of before this field was there write to every command.
  stdin: z.boolean().default(true),
});
/** A call about one command. */
export const selectSchema = z.object({ process: selectorSchema });
/** A call that writes to a command. */
export const inputSchema = z.object({
  process: selectorSchema,
  input: z.object({ stdin: BASE64.optional(), pty: BASE64.optional() }),
});
/** A call that changes a terminal. */
export const updateSchema = z.object({ process: selectorSchema, pty: ptySchema.optional() });
/** A call that sends a signal. */
export const signalSchema = z.object({
  process: selectorSchema,
  signal: z.union([z.string(), z.number()]).transform(signal => {
    if (signal === 'SIGNAL_SIGTERM' || signal === 15) return 'SIGTERM';
    if (signal === 'SIGNAL_SIGKILL' || signal === 9) return 'SIGKILL';
    throw invalid('signal', 'is neither SIGTERM nor SIGKILL');
  }),
});

type Selector = z.infer<typeof selectorSchema>;
type Config = z.infer<typeof configSchema>;

interface Process {
  readonly pid: number;
  readonly config: Config;
  readonly tag: string | undefined;
  readonly handle: CommandHandle;
  readonly terminal: TerminalHandle | null;
  readonly takesInput: boolean;
  readonly followers: Set<MessageStream>;
  /** Settles when it has ended and its followers have been told. */
  over: Promise<void>;
}

/** Commands of one sandbox. */
export class Processes {
  readonly #sandbox: Sandbox;
  readonly #hasBash: () => Promise<boolean>;
  readonly #running = new Map<number, Process>();

  constructor(sandbox: Sandbox, hasBash: () => Promise<boolean>) {
    this.#sandbox = sandbox;
    this.#hasBash = hasBash;
  }

  /**
   * Starts a command and tells the caller what it prints, until its end. A caller who goes away before it has begun cancels it; later,
   * it goes on.
   */
  async start(asked: z.infer<typeof startSchema>, stream: MessageStream, timeoutMs: number | null): Promise<void> {
    if (this.#running.size >= MAX_PROCESSES)
      throw FLEET_ERRORS.create('ACODE-FLT-045', {
        what: 'commands of this sandbox',
        limit: MAX_PROCESSES,
        remedy: 'End one, or wait until one ends.',
      });
    const begun = await this.#begin(asked, stream.gone, timeoutMs);
    begun.followers.add(stream);
    this.#running.set(begun.pid, begun);
    await stream.send(eventOf({ start: { pid: begun.pid } }));
    begun.over = this.#pump(begun);
    await this.#untilOver(begun, stream);
  }

  /** Tells a caller what a command prints from now on. */
  async connect(selector: Selector, stream: MessageStream): Promise<void> {
    const found = this.#find(selector);
    await stream.send(eventOf({ start: { pid: found.pid } }));
    found.followers.add(stream);
    await this.#untilOver(found, stream);
  }

  /** The commands under way. */
  list(): object[] {
    return [...this.#running.values()].map(({ pid, config, tag }) => ({
      pid,
      config,
      ...(tag === undefined ? {} : { tag }),
    }));
  }

  /** Writes to a command or a terminal. */
  async write(selector: Selector, input: z.infer<typeof inputSchema>['input']): Promise<void> {
    const { terminal, handle, takesInput } = this.#find(selector);
    const bytes = input.pty ?? input.stdin;
    if (!bytes) throw invalid('input', 'has neither stdin nor pty');
    if (!terminal && !takesInput)
      throw invalid('input', 'is for a command that was started without it', 'Start the command with `stdin: true`.');
    await (terminal ?? handle).write(bytes);
  }

  /** Ends the input of a command. */
  async closeInput(selector: Selector): Promise<void> {
    await this.#find(selector).handle.closeStdin();
  }

  /** Gives a terminal another size. */
  async resize(selector: Selector, size: z.infer<typeof sizeSchema>): Promise<void> {
    const { terminal } = this.#find(selector);
    if (!terminal) throw invalid('process', 'is a command without a terminal');
    await terminal.resize({ columns: size.cols, rows: size.rows });
  }

  /** Sends a signal to a command. */
  async kill(selector: Selector, signal: string): Promise<void> {
    await this.#find(selector).handle.kill(signal);
  }

  #find({ pid, tag }: Selector): Process {
    const found =
      pid === undefined
        ? [...this.#running.values()].find(one => one.tag === tag && tag !== undefined)
        : this.#running.get(pid);
    if (found) return found;
    throw Object.assign(new Error(`No command runs as ${pid ?? tag ?? 'nothing'}.`), { code: 'ENOENT' });
  }

  async #begin(asked: z.infer<typeof startSchema>, gone: AbortSignal, timeoutMs: number | null): Promise<Process> {
    const { process: config, pty, tag, stdin } = asked;
    const hasBash = await this.#hasBash();
    // A caller who has gone cancels what has not begun, and nothing else.
    const cancel = new AbortController();
    const left = (): void => cancel.abort(new Error('the caller has gone'));
    if (gone.aborted) left();
    gone.addEventListener('abort', left, { once: true });
    const request = {
      env: config.envs,
      signal: cancel.signal,
      ...(config.cwd === undefined || config.cwd === '' ? {} : { cwd: config.cwd }),
      ...(timeoutMs === null ? {} : { timeoutMs }),
    };
    try {
      const argv = argvOf(config, hasBash);
      const { commands } = this.#sandbox;
      const terminal = pty
        ? await commands.terminal(argv, { ...request, size: { columns: pty.size.cols, rows: pty.size.rows } })
        : null;
      const handle =
        terminal ?? (await commands.run(argv, { ...request, background: true, ...(stdin ? {} : { stdin: '' }) }));
      const { pid } = handle;
      return { pid, config, tag, handle, terminal, takesInput: stdin, followers: new Set(), over: Promise.resolve() };
    } finally {
      gone.removeEventListener('abort', left);
    }
  }

  async #untilOver(process: Process, stream: MessageStream): Promise<void> {
    const gone = new Promise<void>(resolve => {
      stream.gone.addEventListener('abort', () => resolve(), { once: true });
      if (stream.gone.aborted) resolve();
    });
    await Promise.race([process.over, gone]);
    process.followers.delete(stream);
  }

  async #pump(process: Process): Promise<void> {
    const { handle, terminal, followers } = process;
    const tell = async (name: 'stdout' | 'stderr' | 'pty', source: AsyncIterable<Uint8Array>): Promise<void> => {
      for await (const bytes of source) {
        const data = eventOf({ data: { [name]: Buffer.from(bytes).toString('base64') } });
        await Promise.all(Array.from(followers, one => one.send(data)));
      }
    };
    try {
      if (terminal) await tell('pty', terminal.stdout);
      else await Promise.all([tell('stdout', handle.stdout), tell('stderr', handle.stderr)]);
      const result = await handle.result;
      this.#running.delete(process.pid);
      await this.#tellEnd(process, result);
    } catch (error) {
      this.#running.delete(process.pid);
      for (const one of followers) one.end(refusalOf(error));
    }
  }

  async #tellEnd({ followers, terminal }: Process, result: RunResult): Promise<void> {
    if (result.timedOut) {
      const late = {
        status: 504,
        code: 'deadline_exceeded',
        message: 'The command was ended at its time limit: raise it with timeoutMs, or take it away with 0.',
        acode: null,
      } as const;
      for (const one of followers) one.end(late);
      return;
    }
    const end = eventOf({ end: endOf(result, terminal !== null) });
    await Promise.all(Array.from(followers, one => one.send(end)));
    for (const one of followers) one.end();
  }
}

function eventOf(event: object): object {
  return { event };
}

function endOf({ exitCode, oomKilled, dropped }: RunResult, isTerminal: boolean): object {
  // Who reads a terminal has all of it.
  const isCut = !isTerminal && dropped.stdout + dropped.stderr > 0;
  const cut = isCut ? 'its output was longer than the limit, and the rest is not here' : null;
  const status = exitCode === null ? 'signal: killed' : `exit status ${exitCode}`;
  const fault = exitCode === 0 ? null : oomKilled ? `${status}: out of memory` : status;
  const error = [fault, cut].filter(one => one !== null).join('; ');
  return { exitCode: exitCode ?? -1, exited: exitCode !== null, status, ...(error === '' ? {} : { error }) };
}

// E2B’s programs start every line with a login shell of bash. A login shell would replace the PATH of the image with its own.
function argvOf({ cmd, args }: Config, hasBash: boolean): string[] {
  if (cmd !== '/bin/bash') return [cmd, ...args];
  const shell = hasBash ? cmd : '/bin/sh';
  const [first, second, line] = args;
  if (args.length === 3 && first === '-l' && second === '-c' && line !== undefined) return [shell, '-c', line];
  if (!hasBash && args.join(' ') === '-i -l') return [shell, '-i'];
  return [shell, ...args];
}
