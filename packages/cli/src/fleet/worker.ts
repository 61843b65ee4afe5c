// Start of a worker: finds the package of the fleet, which acode does not bring, and becomes the way to its program.

import { fork } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { AcodeError, errorEntry } from '@acode/sandbox';
import * as z from 'zod';
import type { Call } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { ownVersion } from '../version.ts';

const FAILED = 125;
const PACKAGE = '@acode/fleet';

const failureSchema = z.object({
  code: z.string().default('ACODE-FLT-001'),
  message: z.string(),
  hint: z.string().default('Run the same with --verbose and report what it prints.'),
  exitStatus: z.int().default(FAILED),
  context: z.record(z.string(), z.unknown()).default({}),
});

/** What `acode worker` is called with. */
export interface WorkerArguments {
  readonly file?: string | undefined;
  readonly keys?: true | undefined;
}

/** Runs a worker until it is stopped; returns its exit status. */
export function work(call: Call, { file, keys }: WorkerArguments): Promise<number> {
  const argv = [...(file === undefined ? [] : ['--file', resolve(call.io.cwd(), file)]), ...(keys ? ['--keys'] : [])];
  // Its own signals reach it: a terminal sends them to both, and this process passes on what is sent to it alone.
  const child = fork(programOfFleet(), argv, { execArgv: [], stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const stop = (): void => void child.kill('SIGTERM');
  call.interruption.signal.addEventListener('abort', stop, { once: true });
  let failure: unknown = null;
  child.on('message', message => (failure = message));
  return new Promise((settle, reject) => {
    child.once('error', reject);
    child.once('exit', status => {
      call.interruption.signal.removeEventListener('abort', stop);
      if (failure === null) settle(status ?? FAILED);
      else reject(errorFrom(failure));
    });
  });
}

/** The program in the package; says how to install the package where it is missing. */
function programOfFleet(): string {
  try {
    const manifest = createRequire(import.meta.url).resolve(`${PACKAGE}/package.json`);
    return join(dirname(manifest), 'dist', 'worker', 'program.js');
  } catch {
    throw new UsageError(
      `A worker needs the package ${PACKAGE}, which is not installed.`,
      `Install it beside acode: \`npm install -g ${PACKAGE}@${ownVersion()}\`.`,
    );
  }
}

// Another package has the row of this error: its texts come with it.
function errorFrom(failure: unknown): AcodeError {
  const { code, message, hint, exitStatus, context } = failureSchema.parse(failure);
  const row = errorEntry<object>({
    title: code,
    message: () => message,
    hint: () => hint,
    exit: exitStatus,
    example: {},
  });
  return new AcodeError<string>(code, context, { row });
}
