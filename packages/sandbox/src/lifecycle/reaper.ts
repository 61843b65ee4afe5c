// The reaper: a shell that waits on a pipe for the death of this process, and then becomes the program that cleans up.
//
// A waiting shell costs 2 MB and no time; a waiting Node would cost 45 MB and 125 ms of CPU for every command.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';

/** What a reaper cleans up when its session is gone. */
export interface ReaperTask {
  /** The engine’s socket. */
  readonly engineSocket: string;
  readonly owner: string;
  readonly uid: number;
  readonly host: string;
  /** The owner’s own socket, which goes last. */
  readonly ownerSocket: string;
  /** Where it writes down what it removed. */
  readonly journal: string;
  /** How long an engine may take for a create that was under way. */
  readonly createMs: number;
}

const SHELL = '/bin/sh';
const NAME = 'acode-reaper';
// Each line says what is being made now, the last one that there is nothing to do; end of file says that nobody is left to
// say so.
const WAIT = 'while IFS= read -r word; do [ "$word" = done ] && exit 0; making=$word; done; exec "$@" "$making"';

/** A reaper that waits. */
export class Reaper {
  readonly #shell: ChildProcess;

  private constructor(shell: ChildProcess) {
    this.#shell = shell;
  }

  /**
   * Starts one, with the text of its program: nothing but Node itself is read from disk when it is needed. It outlives the
   * terminal and this process, and holds nothing of either.
   */
  static start(task: ReaperTask, program: string): Reaper {
    const words = [process.execPath, '--input-type=module', '-e', program, NAME, JSON.stringify(task)];
    const shell = spawn(SHELL, ['-c', WAIT, NAME, ...words], {
      detached: true,
      cwd: '/',
      env: { PATH: '/usr/bin:/bin', ELECTRON_RUN_AS_NODE: '1' },
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    // A machine that cannot start a shell still has the sweep of the next session.
    shell.on('error', () => undefined);
    shell.stdin?.on('error', () => undefined);
    shell.unref();
    // The pipe is a socket, although its type does not say so; it must not keep this process running either.
    const { stdin } = shell;
    if (stdin && 'unref' in stdin && typeof stdin.unref === 'function') Reflect.apply(stdin.unref, stdin, []);
    return new Reaper(shell);
  }

  /** The process that waits; undefined where none could be started. */
  get pid(): number | undefined {
    return this.#shell.pid;
  }

  /** Tells it the nonces of what is being made now. */
  expect(nonces: readonly string[]): void {
    const { stdin } = this.#shell;
    if (stdin?.writable) stdin.write(`${nonces.join(',')}\n`);
  }

  /** Lets it do its work now. */
  release(): void {
    this.#shell.stdin?.end();
  }

  /** Sends it home: everything of the session is gone already. */
  dismiss(): void {
    this.#shell.stdin?.end('done\n');
  }
}
