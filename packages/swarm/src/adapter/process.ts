// Programs that the adapter starts: their output is bounded, and they end as a group.

import { spawn } from 'node:child_process';

/** A program that has ended. */
export interface Ended {
  /** Its exit status; 128 and the number of its signal, roughly, where it was killed. */
  readonly status: number;
  /** The end of what it printed, both streams together. */
  readonly output: string;
  /** What it printed on standard output, up to the limit. */
  readonly stdout: string;
}

/** How a program is run. */
export interface Running {
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly input?: string;
  /** Where what it prints is shown as it comes. */
  readonly show?: (bytes: Uint8Array) => void;
  readonly maxStdout?: number;
  readonly signal?: AbortSignal;
}

const TAIL = 4000;
const MAX_STDOUT = 8 * 1024 ** 2;
const KILL_AFTER_MS = 3000;
const TERMINATED = 143;
// An engine that stops ends every process of a sandbox at once: so long may the signal to the adapter take.
const OWN_SIGNAL_MS = 300;

/** Runs a program to its end, and everything that it started in its group. Never rejects because of what the program does. */
export function run(
  argv: readonly string[],
  { env, input, show, maxStdout = MAX_STDOUT, signal }: Running = {},
): Promise<Ended> {
  const [program = '', ...rest] = argv;
  return new Promise(resolve => {
    const child = spawn(program, rest, {
      env: { ...process.env, ...env },
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    let tail = '';
    let stdout = '';
    const take =
      (isStdout: boolean) =>
      (bytes: Buffer): void => {
        const text = bytes.toString('utf8');
        tail = (tail + text).slice(-TAIL);
        if (isStdout && stdout.length < maxStdout) stdout += text;
        show?.(bytes);
      };
    child.stdout.on('data', take(true));
    child.stderr.on('data', take(false));
    const end = (name: NodeJS.Signals): void => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, name);
      } catch {
        // It has ended.
      }
    };
    let timer: NodeJS.Timeout | undefined;
    const stop = (): void => {
      end('SIGTERM');
      timer = setTimeout(() => end('SIGKILL'), KILL_AFTER_MS);
    };
    signal?.addEventListener('abort', stop, { once: true });
    if (signal?.aborted) stop();
    const done = (status: number): void => {
      signal?.removeEventListener('abort', stop);
      clearTimeout(timer);
      const settle = (): void => resolve({ status, output: tail, stdout });
      if (status === TERMINATED && signal?.aborted !== true) setTimeout(settle, OWN_SIGNAL_MS);
      else settle();
    };
    child.on('error', error => {
      tail = `${tail}${error.message}`;
      done(127);
    });
    // Not `close`: a grandchild in the background may hold the streams for ever.
    child.on('exit', (code, name) => {
      const status = code ?? (name === 'SIGKILL' ? 137 : TERMINATED);
      const late = setTimeout(() => {
        end('SIGKILL');
        done(status);
      }, 500);
      child.on('close', () => {
        clearTimeout(late);
        end('SIGKILL');
        done(status);
      });
    });
    child.stdin.on('error', () => undefined);
    child.stdin.end(input ?? '');
  });
}
