// The entry: gives the command this process.

import { fstatSync } from 'node:fs';
import { runCli } from './cli.ts';
import { reportOn } from './failure/report.ts';
import type { Io } from './io.ts';

const FAILED = 125;

function outputsAreOne(): boolean {
  try {
    const [out, err] = [fstatSync(1), fstatSync(2)];
    return out.dev === err.dev && out.ino === err.ino;
  } catch {
    return false;
  }
}

const io: Io = {
  get stdin() {
    return process.stdin;
  },
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
  signals: process,
  outputsAreOne: outputsAreOne(),
  cwd: () => process.cwd(),
  now: () => Date.now(),
  leave: status => process.exit(status),
};

// Whatever nobody caught ends in one sentence, never in a stack trace.
process.on('uncaughtException', error => {
  process.stderr.write(`acode: ${reportOn(error).message}\n`, () => process.exit(FAILED));
});

// All output is with its reader; an input that never ends, or a connection that lingers, does not keep the process.
process.exit(await runCli(process.argv.slice(2), io));
