// Start of a worker: becomes the way to its program.

import { fork } from 'node:child_process';
import { resolve } from 'node:path';
import type { Call } from '../call.ts';
import { FAILED, errorOfFleet, programOfFleet } from './package.ts';

/** What `acode worker` is called with. */
export interface WorkerArguments {
  readonly file?: string | undefined;
  readonly keys?: true | undefined;
}

/** Runs a worker until it is stopped; returns its exit status. */
export function work(call: Call, { file, keys }: WorkerArguments): Promise<number> {
  const argv = [...(file === undefined ? [] : ['--file', resolve(call.io.cwd(), file)]), ...(keys ? ['--keys'] : [])];
  // Its own signals reach it: a terminal sends them to both, and this process passes on what is sent to it alone.
  const child = fork(programOfFleet('A worker', 'worker', 'program.js'), argv, {
    execArgv: [],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const stop = (): void => void child.kill('SIGTERM');
  call.interruption.signal.addEventListener('abort', stop, { once: true });
  let failure: unknown = null;
  child.on('message', message => (failure = message));
  return new Promise((settle, reject) => {
    child.once('error', reject);
    child.once('exit', status => {
      call.interruption.signal.removeEventListener('abort', stop);
      if (failure === null) settle(status ?? FAILED);
      else reject(errorOfFleet(failure));
    });
  });
}
