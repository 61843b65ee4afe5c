// Start of a worker or of a gate: becomes the way to its program.

import { fork } from 'node:child_process';
import { resolve } from 'node:path';
import type { Call } from '../call.ts';
import { FAILED, errorOfFleet, programOfFleet } from './package.ts';

/** What `acode worker` and `acode gate` are called with. */
export interface WorkerArguments {
  readonly file?: string | undefined;
  readonly keys?: true | undefined;
  readonly metrics?: number | undefined;
}

/** Runs a worker until it is stopped; returns its exit status. */
export function work(call: Call, { file, keys, metrics }: WorkerArguments): Promise<number> {
  const argv = [...fileIn(call, file), ...(keys ? ['--keys'] : []), ...port(metrics)];
  return start(call, programOfFleet('A worker', 'worker', 'program.js'), argv);
}

/** Runs a gate until it is stopped; returns its exit status. */
export function serveGate(call: Call, { file, metrics }: Omit<WorkerArguments, 'keys'>): Promise<number> {
  return start(call, programOfFleet('A gate', 'gate', 'program.js'), [...fileIn(call, file), ...port(metrics)]);
}

function port(metrics: number | undefined): string[] {
  return metrics === undefined ? [] : ['--metrics', String(metrics)];
}

function fileIn(call: Call, file: string | undefined): string[] {
  return file === undefined ? [] : ['--file', resolve(call.io.cwd(), file)];
}

function start(call: Call, program: string, argv: readonly string[]): Promise<number> {
  // Its own signals reach it: a terminal sends them to both, and this process passes on what is sent to it alone.
  const child = fork(program, argv, {
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
