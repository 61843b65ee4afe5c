// Programs of this machine that acode asks for a secret: found where neither a workspace nor another user can have put them, and run
// with a deadline.

import { spawn } from 'node:child_process';
import { lstat, realpath, stat } from 'node:fs/promises';
import { delimiter, dirname, isAbsolute, join } from 'node:path';
import type { Clock } from '../contract/ports.ts';
import { isWithin } from './file-identity.ts';

/** Where a program is looked for, and what it must not lie in. */
export interface ProgramSurroundings {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly uid: number;
  readonly workspace: string;
}

/** A program that was found. */
export interface TrustedProgram {
  readonly path: string;
  /** The directories of `PATH` that count, as a value of it. */
  readonly searched: string;
}

/** What a program printed and how it ended, or why there is nothing of it. What it printed may be a secret. */
export type ProgramOutput = { readonly text: string; readonly code: number | null } | { readonly failed: string };

const DEADLINE_MS = 10_000;
const MAX_BYTES = 64 * 1024;

/** Finds a program by its name in `PATH`, or by its absolute path; null where only others than the user and root could not write it. */
export async function findProgram(name: string, around: ProgramSurroundings): Promise<TrustedProgram | null> {
  const directories = await safeDirectories(around);
  const searched = directories.join(delimiter);
  const candidates = isAbsolute(name) ? [name] : directories.map(directory => join(directory, name));
  for (const candidate of candidates) {
    const path = await realpath(candidate).catch(() => null);
    if (path === null || isWithin(path, around.workspace)) continue;
    const found = await stat(path).catch(() => null);
    if (found?.isFile() && (found.mode & 0o111) !== 0 && (await isOnlyOurs(path, around.uid)))
      return { path, searched };
  }
  return null;
}

// Directories of PATH that neither the workspace nor anybody else can put a program into.
async function safeDirectories({ env, uid, workspace }: ProgramSurroundings): Promise<string[]> {
  const named = (env['PATH'] ?? '').split(delimiter).filter(path => isAbsolute(path));
  const found = await Promise.all(named.map(path => realpath(path).catch(() => null)));
  const real = [...new Set(found.filter(path => path !== null))];
  const safe = await Promise.all(real.map(async path => !isWithin(path, workspace) && (await isOnlyOurs(path, uid))));
  return real.filter((_, index) => safe[index]);
}

// Whether a path and everything above it belongs to root or the user, and no other user can replace it.
async function isOnlyOurs(path: string, uid: number): Promise<boolean> {
  for (let here = path; ; here = dirname(here)) {
    const found = await lstat(here).catch(() => null);
    if (!found || (found.uid !== 0 && found.uid !== uid) || othersMayWrite(found, here === path)) return false;
    if (dirname(here) === here) return true;
  }
}

// In a directory with the sticky bit no user removes another’s file; but any user can add one. A user who may write
// a directory above can put another one in the place of what lies in it.
function othersMayWrite({ mode, uid }: { mode: number; uid: number }, itself: boolean): boolean {
  if (!itself && (mode & 0o1000) !== 0) return false;
  // A group of root’s, such as Debian’s staff for /usr/local, is root’s own choice.
  return (mode & (uid === 0 ? 0o002 : 0o022)) !== 0;
}

/** Runs a program and returns what it printed. It ends with the signal, and after ten seconds. */
export function runProgram(
  program: string,
  words: readonly string[],
  {
    env,
    input = '',
    clock,
  }: { readonly env: Readonly<Record<string, string | undefined>>; readonly input?: string; readonly clock: Clock },
  signal: AbortSignal,
): Promise<ProgramOutput> {
  return new Promise(resolve => {
    const child = spawn(program, words, {
      cwd: '/',
      env: { ...env },
      stdio: ['pipe', 'pipe', 'ignore'],
      detached: true,
    });
    const chunks: Buffer[] = [];
    let size = 0;
    const end = (answer: ProgramOutput): void => {
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
    child.once('close', code => end({ code, text: Buffer.concat(chunks).toString('utf8') }));
    child.stdin.end(input);
    if (signal.aborted) abort();
  });
}

function killGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended already.
  }
}
