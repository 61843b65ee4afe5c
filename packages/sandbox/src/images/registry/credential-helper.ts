// Asks one of the user’s credential helpers: by absolute path, from directories nobody else can write, in little time.

import { spawn } from 'node:child_process';
import { lstat, realpath, stat } from 'node:fs/promises';
import { delimiter, dirname, isAbsolute, join } from 'node:path';
import type { Clock } from '../../contract/ports.ts';
import { isWithin } from '../../workspace/within.ts';

/** Where helpers are looked for, and who asks. */
export interface HelperSurroundings {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly uid: number;
  /** What untrusted code can write: no program is taken from there. */
  readonly workspace: string;
  readonly clock: Clock;
}

/** What came of asking: an answer, that it knows of none, or why there is no answer. */
export type HelperAnswer = { readonly text: string } | { readonly unknown: true } | { readonly failed: string };

const DEADLINE_MS = 10_000;
const MAX_BYTES = 64 * 1024;
const NOT_FOUND = /credentials not found|no credentials|not found in/i;
// What keyrings and password stores of the user’s are found by; nothing else is passed on.
const PASSED_ON = [
  'HOME',
  'USER',
  'LOGNAME',
  'LANG',
  'XDG_RUNTIME_DIR',
  'DBUS_SESSION_BUS_ADDRESS',
  'DISPLAY',
  'GNUPGHOME',
  'PASSWORD_STORE_DIR',
];

/** Asks `docker-credential-<name> get` for a server. What it prints is never part of a failure: it may be the secret. */
export async function askHelper(
  name: string,
  server: string,
  around: HelperSurroundings,
  signal: AbortSignal,
): Promise<HelperAnswer> {
  const directories = await safeDirectories(around);
  const program = await findProgram(`docker-credential-${name}`, directories, around);
  if (program === null)
    return { failed: `docker-credential-${name} is in no directory of PATH that only you and root can write` };
  const env = Object.fromEntries(
    PASSED_ON.flatMap(key => {
      const value = around.env[key];
      return value === undefined ? [] : [[key, value]];
    }),
  );
  return run(program, server, { ...env, PATH: directories.join(delimiter) }, around.clock, signal);
}

// Directories of PATH that neither the workspace nor anybody else can put a program into.
async function safeDirectories({ env, uid, workspace }: HelperSurroundings): Promise<string[]> {
  const named = (env['PATH'] ?? '').split(delimiter).filter(path => isAbsolute(path));
  const found = await Promise.all(named.map(path => realpath(path).catch(() => null)));
  const real = [...new Set(found.filter(path => path !== null))];
  const safe = await Promise.all(real.map(async path => !isWithin(path, workspace) && (await isOnlyOurs(path, uid))));
  return real.filter((_, index) => safe[index]);
}

async function findProgram(
  name: string,
  directories: readonly string[],
  { uid, workspace }: HelperSurroundings,
): Promise<string | null> {
  for (const directory of directories) {
    const path = await realpath(join(directory, name)).catch(() => null);
    if (path === null || isWithin(path, workspace)) continue;
    const found = await stat(path).catch(() => null);
    if (found?.isFile() && (found.mode & 0o111) !== 0 && (await isOnlyOurs(path, uid))) return path;
  }
  return null;
}

// Whether a path and everything above it belongs to root or the user, and nobody else can exchange it.
async function isOnlyOurs(path: string, uid: number): Promise<boolean> {
  for (let here = path; ; here = dirname(here)) {
    const found = await lstat(here).catch(() => null);
    if (!found || (found.uid !== 0 && found.uid !== uid) || othersMayWrite(found, here === path)) return false;
    if (dirname(here) === here) return true;
  }
}

// In a directory with the sticky bit nobody takes away what is another’s; but anybody puts something in it. Whoever may write
// a directory above can put another one in the place of what lies in it.
function othersMayWrite({ mode, uid }: { mode: number; uid: number }, itself: boolean): boolean {
  if (!itself && (mode & 0o1000) !== 0) return false;
  // A group of root’s, such as Debian’s staff for /usr/local, is root’s own choice.
  return (mode & (uid === 0 ? 0o002 : 0o022)) !== 0;
}

function run(
  program: string,
  server: string,
  env: Readonly<Record<string, string>>,
  clock: Clock,
  signal: AbortSignal,
): Promise<HelperAnswer> {
  return new Promise(resolve => {
    const child = spawn(program, ['get'], {
      cwd: '/',
      env: { ...env },
      stdio: ['pipe', 'pipe', 'ignore'],
      detached: true,
    });
    const chunks: Buffer[] = [];
    let size = 0;
    const end = (answer: HelperAnswer): void => {
      cancel();
      signal.removeEventListener('abort', abort);
      child.stdout.destroy();
      child.stdin.destroy();
      resolve(answer);
    };
    // With everything it started: a helper may be a script.
    const kill = (failed: string): void => {
      killGroup(child.pid);
      end({ failed });
    };
    const abort = (): void => kill('it was cancelled');
    const cancel = clock.after(DEADLINE_MS, () => kill(`${program} did not answer in ${DEADLINE_MS / 1000} s`));
    signal.addEventListener('abort', abort, { once: true });
    child.once('error', () => end({ failed: `${program} could not be started` }));
    child.stdin.on('error', () => undefined);
    child.stdout.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > MAX_BYTES) kill(`${program} answered with more than ${MAX_BYTES / 1024} KiB`);
      else chunks.push(chunk);
    });
    child.once('close', code => end(answerOf(program, code, Buffer.concat(chunks).toString('utf8'))));
    child.stdin.end(`${server}\n`);
    if (signal.aborted) abort();
  });
}

function answerOf(program: string, code: number | null, text: string): HelperAnswer {
  if (code === 0) return { text };
  return NOT_FOUND.test(text) ? { unknown: true } : { failed: `${program} ended with ${code ?? 'a signal'}` };
}

function killGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended already.
  }
}
