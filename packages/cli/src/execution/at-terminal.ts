// Terminal session: passes keys to a program in a sandbox and its screen back, until one side ends it.

import type { RunResult, TerminalHandle } from '@acode/sandbox';
import type { Call } from '../call.ts';
import type { Io } from '../io.ts';
import { LeaveKeys, RawTerminal } from '../terminal/raw-terminal.ts';
import type { ClipboardWrites, ScreenFilterOptions } from '../terminal/screen-filter.ts';
import { plural } from '../terminal/text.ts';

/** Gives the terminal to a program until it ends. Null where the user left it, which ends it. */
export async function atTerminal(
  call: Call,
  handle: TerminalHandle,
  options: ScreenFilterOptions,
): Promise<RunResult | null> {
  const input = new Input(call.io, handle);
  const terminal = new RawTerminal(call.io, call.stdout, options, data => input.answer(data));
  try {
    return await session(call, handle, input, terminal);
  } finally {
    terminal[Symbol.dispose]();
    input[Symbol.dispose]();
    await sayClipboard(call, terminal.clipboard);
  }
}

async function session(
  call: Call,
  handle: TerminalHandle,
  input: Input,
  terminal: RawTerminal,
): Promise<RunResult | null> {
  const { signal } = call.interruption;
  // Between the start of the program and now the window may have changed.
  const resize = (): void => {
    if (call.stdout.size) handle.resize(call.stdout.size).catch(() => undefined);
  };
  using _resizes = call.stdout.onResize(resize);
  resize();
  const left = input.listen(data => terminal.typed(data));
  const shown = (async () => {
    for await (const chunk of handle.stdout) if (!(await terminal.show(chunk, signal))) return;
  })();
  const ended = handle.result.then(
    result => () => result,
    (error: unknown) => () => {
      throw error;
    },
  );
  const outcome = await Promise.race([ended, left]);
  if (outcome === null) {
    await handle[Symbol.asyncDispose]();
    return null;
  }
  await shown;
  await terminal.settled();
  await call.stdout.flush(signal);
  return outcome();
}

// A program cannot tell the user of it themselves, and may not want to.
async function sayClipboard(call: Call, { written, refused }: ClipboardWrites): Promise<void> {
  if (written > 0)
    await call.say(`acode: the program wrote to your clipboard (${plural(written, 'time')}). Look before you paste.\n`);
  if (refused > 0)
    await call.say(
      'acode: the program tried to write to your clipboard, and may not.\n╰▶ hint: To let programs in your terminals do that: acode config set sandbox.terminal.clipboard write\n',
    );
}

// Answers that a program does not read are not kept without end.
const MAX_ANSWERS = 4096;

// What the program reads: what is typed, at the pace at which it is taken, and answers to what it asked the terminal.
class Input implements Disposable {
  readonly #stdin: Io['stdin'];
  readonly #handle: TerminalHandle;
  readonly #keys = new LeaveKeys();
  readonly #end = (): void => void this.#handle.closeStdin().catch(() => undefined);
  #hear: (data: Uint8Array | string) => void = () => undefined;
  #sent = Promise.resolve();
  #unread = 0;
  #closed = false;

  constructor({ stdin }: Pick<Io, 'stdin'>, handle: TerminalHandle) {
    this.#stdin = stdin;
    this.#handle = handle;
  }

  /** Passes on what is typed. Settles when the user typed the keys that leave. */
  listen(typed: (data: Uint8Array) => Uint8Array): Promise<null> {
    const left = new Promise<null>(resolve => {
      this.#hear = data => {
        const { data: keys, leave } = this.#keys.push(typed(Buffer.from(data)));
        if (leave) return resolve(null);
        this.#stdin.pause();
        void this.#send(keys).then(() => this.#resume());
      };
    });
    this.#stdin.on('data', this.#hear);
    this.#stdin.on('end', this.#end);
    this.#stdin.on('error', this.#end);
    this.#stdin.resume();
    return left;
  }

  /** Answers what the program asked the terminal. */
  answer(data: Uint8Array): void {
    if (this.#unread + data.length > MAX_ANSWERS) return;
    this.#unread += data.length;
    void this.#send(data).then(() => (this.#unread -= data.length));
  }

  [Symbol.dispose](): void {
    this.#closed = true;
    this.#stdin.off('data', this.#hear);
    this.#stdin.off('end', this.#end);
    this.#stdin.pause();
  }

  #resume(): void {
    if (!this.#closed) this.#stdin.resume();
  }

  #send(data: Uint8Array): Promise<void> {
    // A program that has ended reads no more, which its ending says.
    this.#sent = this.#sent.then(() => this.#handle.write(data)).catch(() => undefined);
    return this.#sent;
  }
}
