// Entry point: runs the command in this process.

import { closeSync, fstatSync } from 'node:fs';
import { isatty } from 'node:tty';
import { fileURLToPath } from 'node:url';
import { hookStep } from './hooks/step.ts';
import type { Io } from './io.ts';
import { throughServer } from './serve/client.ts';

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
  get stdout() {
    return process.stdout;
  },
  get stderr() {
    return process.stderr;
  },
  pid: process.pid,
  env: process.env,
  signals: process,
  outputsAreOne: outputsAreOne(),
  cwd: () => process.cwd(),
  now: () => Date.now(),
  atExit(last) {
    process.on('exit', last);
    return { [Symbol.dispose]: () => void process.off('exit', last) };
  },
  leave,
};

// An uncaught error ends in one sentence, never in a stack trace.
process.on('uncaughtException', error => void fail(error));

async function fail(error: Error): Promise<void> {
  let text = `acode: ${error.message}\n`;
  try {
    text = (await import('./cli.ts')).lastWords(error);
  } catch {
    // What cannot be loaded any more cannot say it better.
  }
  process.stderr.write(text, () => leave(FAILED));
}

// The command itself is loaded where no server does the work. All output is with its reader then; an input that never ends,
// or a connection that lingers, does not keep the process.
async function perform(words: readonly string[]): Promise<void> {
  const step = await hookStep(words, io);
  if (step?.kind === 'end') return answer(step);
  const argv = step?.argv ?? words;
  const outcome = await throughServer(argv, io, terminals);
  if (outcome.kind === 'done') return leave(outcome.status);
  const { runCli } = await import('./cli.ts');
  const entry = fileURLToPath(import.meta.url);
  const alone = { note: outcome.kind === 'alone' ? outcome.note : null, entry, isHook: step !== null };
  leave(await runCli(argv, io, outcome.kind === 'lost' ? { lost: true } : alone));
}

// A reader that closed one of the streams reads no answer, and an agent takes a failed hook for none.
function answer({ status, stdout, stderr }: { status: number; stdout: string; stderr: string }): void {
  process.stdout.on('error', () => leave(FAILED));
  process.stderr.on('error', () => leave(status));
  process.stderr.write(stderr, () => process.stdout.write(stdout, () => leave(status)));
}

// No `await` here: the bundled entry is no module, because those load more slowly.
void perform(process.argv.slice(2));
