// The guard of one sandbox: a shell that waits on a pipe for the death of this process, and then ends what it left.
//
// A client that is killed with SIGKILL cleans up nothing itself. A waiting shell costs 2 MB and no time.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';

/** What a guard ends and takes away. */
export interface Guarded {
  /** A process, or minus a process group. */
  readonly target: number;
  /** Control groups that are empty then. */
  readonly controlGroups?: readonly string[];
  /** A directory of the sandbox’s own, with everything in it. */
  readonly directory?: string;
}

const SHELL = '/bin/sh';

// One line says that there is nothing to do; end of file says that nobody is left to say so. A control group can be removed
// only when the last process has left it, which takes a moment.
const WAIT = `IFS= read -r word && exit 0
kill -s KILL -- "$1"
directory=$2
shift 2
for group; do for round in 1 2 3 4 5 6 7 8 9 10; do rmdir -- "$group" && break; sleep 0.05; done; done
[ -z "$directory" ] || rm -rf -- "$directory"`;

/** A guard that waits. */
export class Guard {
  readonly #shell: ChildProcess;

  private constructor(shell: ChildProcess) {
    this.#shell = shell;
  }

  /** Starts one. It outlives this process and holds nothing of it. */
  static start({ target, controlGroups = [], directory = '' }: Guarded): Guard {
    const shell = spawn(SHELL, ['-c', WAIT, 'acode-guard', String(target), directory, ...controlGroups], {
      detached: true,
      cwd: '/',
      env: { PATH: '/usr/bin:/bin' },
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    // Where none can be started, the end of its standard input still ends a sandbox that reads it.
    shell.on('error', () => undefined);
    shell.stdin?.on('error', () => undefined);
    shell.unref();
    return new Guard(shell);
  }

  /** Sends it home: nothing of the sandbox is left. */
  dismiss(): void {
    this.#shell.stdin?.end('done\n');
  }
}
