// The entry: gives the command this process.

import { closeSync, fstatSync } from 'node:fs';
import { isatty } from 'node:tty';
import { runCli } from './cli.ts';
import { reportOn } from './failure/report.ts';
import type { Io } from './io.ts';

const FAILED = 125;
const STREAMS = [0, 1, 2];
const terminals = STREAMS.filter(stream => isatty(stream));

// Node gives a terminal back the mode it had, and aborts where it cannot, as on one that was closed meanwhile. So what is no
// terminal any more is closed here first.
function leave(status: number): void {
  for (const stream of terminals) if (!isatty(stream)) closeSync(stream);
  process.exit(status);
}

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
  leave,
};

// Whatever nobody caught ends in one sentence, never in a stack trace.
process.on('uncaughtException', error => {
  process.stderr.write(`acode: ${reportOn(error).message}\n`, () => leave(FAILED));
});

// All output is with its reader; an input that never ends, or a connection that lingers, does not keep the process.
leave(await runCli(process.argv.slice(2), io));
