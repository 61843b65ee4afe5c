// The keeper of a sandbox that outlives its maker: a shell that looks at its lease once a second, and becomes the program that
// removes it when the lease is over. It ends by itself when the lease is taken away.

import { spawn } from 'node:child_process';

/** What a keeper removes, and when. */
export interface KeeperTask {
  /** The engine’s socket. */
  readonly engineSocket: string;
  readonly sandboxId: string;
  readonly uid: number;
  readonly host: string;
  /** The file that says until when: it may be written anew, and is the keeper’s reason to live. */
  readonly lease: string;
  /** What else was written down about the sandbox, and goes with it. */
  readonly record: string;
  /** Where it writes down what it removed. */
  readonly journal: string;
}

const SHELL = '/bin/sh';
const NAME = 'acode-keeper';
const WAIT = [
  'lease=$1',
  'shift',
  'while read -r _ until 2>/dev/null <"$lease" && [ "$(date +%s)" -lt "$until" ]; do sleep 1; done',
  '[ -e "$lease" ] || exit 0',
  'exec "$@"',
].join('\n');

/** Starts one, with the text of its program. It outlives the terminal and this process, and holds nothing of either. */
export function startKeeper(task: KeeperTask, program: string): void {
  const words = [process.execPath, '--input-type=module', '-e', program, NAME, JSON.stringify(task)];
  const shell = spawn(SHELL, ['-c', WAIT, NAME, task.lease, ...words], {
    detached: true,
    cwd: '/',
    env: { PATH: '/usr/bin:/bin', ELECTRON_RUN_AS_NODE: '1' },
    stdio: 'ignore',
  });
  // A machine that cannot start a shell still has the sweep of the next session.
  shell.on('error', () => undefined);
  shell.unref();
}
