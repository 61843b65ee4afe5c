// The reaper: a shell that waits on a pipe for the death of this process, and then becomes the program that cleans up.
//
// A waiting shell costs 2 MB and no time; a waiting Node would cost 45 MB and 125 ms of CPU for every command.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { reaperProgram } from './reaper-program.ts';

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
}

const SHELL = '/bin/sh';
// One line says that there is nothing to do; end of file says that nobody is left to say so.
const WAIT = 'IFS= read -r word && exit 0; exec "$@"';

/** A reaper that waits. */
export class Reaper {
  readonly #shell: ChildProcess;

  private constructor(shell: ChildProcess) {
    this.#shell = shell;
  }

  /** Starts one. It outlives the terminal and this process, and holds nothing of either. */
  static start(task: ReaperTask): Reaper {
    const program = [process.execPath, reaperProgram(), JSON.stringify(task)];
    const shell = spawn(SHELL, ['-c', WAIT, 'acode-reaper', ...program], {
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

  /** Lets it do its work now. */
  release(): void {
    this.#shell.stdin?.end();
  }

  /** Sends it home: everything of the session is gone already. */
  dismiss(): void {
    this.#shell.stdin?.end('done\n');
  }
}
