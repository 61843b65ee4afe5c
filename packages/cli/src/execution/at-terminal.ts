// Terminal session: passes keys to a program in a sandbox and its screen back, until one side ends it.

import type { RunResult, TerminalHandle } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { LeaveKeys, RawTerminal } from '../terminal/raw-terminal.ts';
import type { ScreenFilterOptions } from '../terminal/screen-filter.ts';

/** Gives the terminal to a program until it ends. Null where the user left it, which ends it. */
export async function atTerminal(
  call: Call,
  handle: TerminalHandle,
  options: ScreenFilterOptions,
): Promise<RunResult | null> {
  const { signal } = call.interruption;
  using terminal = new RawTerminal(call.io, call.stdout, options);
  // Between the start of the program and now the window may have changed.
  const resize = (): void => {
    if (call.stdout.size) handle.resize(call.stdout.size).catch(() => undefined);
  };
  using _resizes = call.stdout.onResize(resize);
  resize();
  using keys = new Keys(call, handle);
  const shown = (async () => {
    for await (const chunk of handle.stdout) if (!(await terminal.show(chunk, signal))) return;
  })();
  const ended = handle.result.then(
    result => () => result,
    (error: unknown) => () => {
      throw error;
    },
  );
  const outcome = await Promise.race([ended, keys.left]);
  if (outcome === null) {
    await handle[Symbol.asyncDispose]();
    return null;
  }
  await shown;
  await call.stdout.flush(signal);
  return outcome();
}

// What is typed, at the pace at which it is taken.
class Keys implements Disposable {
  /** Settles when the user typed the keys that leave. */
  readonly left: Promise<null>;
  readonly #call: Call;
  readonly #handle: TerminalHandle;
  readonly #keys = new LeaveKeys();
  readonly #hear = (data: Uint8Array | string): void => void this.#take(Buffer.from(data));
  readonly #end = (): void => void this.#handle.closeStdin().catch(() => undefined);
  #leave: () => void = () => undefined;

  constructor(call: Call, handle: TerminalHandle) {
    this.#call = call;
    this.#handle = handle;
    this.left = new Promise(resolve => (this.#leave = () => resolve(null)));
    const { stdin } = call.io;
    stdin.on('data', this.#hear);
    stdin.on('end', this.#end);
    stdin.on('error', this.#end);
    stdin.resume();
  }

  [Symbol.dispose](): void {
    const { stdin } = this.#call.io;
    stdin.off('data', this.#hear);
    stdin.off('end', this.#end);
    stdin.pause();
  }

  async #take(typed: Buffer): Promise<void> {
    const { stdin } = this.#call.io;
    const { data, leave } = this.#keys.push(typed);
    if (leave) return this.#leave();
    stdin.pause();
    // A program that has ended reads no more, which its ending says.
    await this.#handle.write(data).catch(() => undefined);
    stdin.resume();
  }
}
