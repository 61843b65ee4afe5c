// Runs the fixed programs inside: each in its time, and each failure as the error that node would raise for it.

import { AcodeError } from '../../contract/errors.ts';
import type { Clock } from '../../contract/ports.ts';
import type { Inside, InsideEnd, InsideResult } from '../../isolation/backend.ts';
import { withDeadline } from '../../lifecycle/clock.ts';
import { Conversation } from './conversation.ts';
import { abortError, codeIn, fileError, isDirectoryError, nulError, typeError } from './errno.ts';
import type { Attempt } from './errno.ts';
import { argvOf, script } from './scripts.ts';
import type { Script } from './scripts.ts';

const SHORT_MS = 60_000;

/** One thing to be done inside. */
export interface Task {
  readonly script: Script;
  readonly words: readonly string[];
  /** The name of the call, for the error that the image lacks a program. */
  readonly operation: string;
  readonly attempt: Attempt;
  /** What node would have been doing where the mistake is one of these. */
  readonly unless?: Readonly<Record<string, Attempt>>;
  readonly signal?: AbortSignal | undefined;
}

/** What a task that runs to its end is given, and how much it may print and take. */
export interface Terms {
  readonly input?: Uint8Array | string;
  readonly maxBytes?: number;
  readonly withinMs?: number;
}

/** Where the programs run. */
export class Programs {
  readonly #inside: Inside;
  readonly #clock: Clock;

  constructor(inside: Inside, clock: Clock) {
    this.#inside = inside;
    this.#clock = clock;
  }

  /** Runs a task to its end, and gives what it printed. */
  async run(task: Task, { withinMs = SHORT_MS, ...terms }: Terms = {}): Promise<Buffer> {
    const call = (signal: AbortSignal): Promise<InsideResult> =>
      this.#inside.call(argvOf(task.script, task.words), { ...terms, signal });
    return (await this.#inTime(task, withinMs, call)).stdout;
  }

  /** Runs a task to its end, and hands on what it prints while it comes. What `take` raises ends the task. */
  async read(task: Task, withinMs: number, take: (chunk: Buffer) => Promise<void>): Promise<InsideEnd> {
    return this.#inTime(task, withinMs, async signal => {
      const program = await this.#inside.open(argvOf(task.script, task.words), signal);
      try {
        // One that has ended already takes no end of its input.
        await program.closeStdin().catch(() => undefined);
        for await (const chunk of program.stdout as AsyncIterable<Buffer>) await take(chunk);
      } catch (error) {
        program.ended.catch(() => undefined);
        program.destroy();
        throw error;
      }
      return program.ended;
    });
  }

  /** Starts an interactive task. The caller disposes of it. */
  async open(task: Task): Promise<Conversation> {
    assertWanted(task.signal);
    return Conversation.open(this.#inside, this.#clock, {
      argv: argvOf(task.script, task.words),
      signal: task.signal,
      failure: end => failureOf(end, task),
      stalled: () => fileError('ETIMEDOUT', task.attempt),
      translate: error => translated(error, task),
    });
  }

  async #inTime<End extends InsideEnd>(
    task: Task,
    ms: number,
    work: (signal: AbortSignal) => Promise<End>,
  ): Promise<End> {
    assertWanted(task.signal);
    const deadline = {
      clock: this.#clock,
      ms,
      signal: task.signal ?? new AbortController().signal,
      reason: () => fileError('ETIMEDOUT', task.attempt),
    };
    try {
      return await withDeadline(deadline, async signal => {
        const end = await work(signal);
        if (end.exitCode !== 0) throw failureOf(end, task);
        return end;
      });
    } catch (error) {
      throw translated(error, task);
    }
  }
}

function assertWanted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw abortError(signal.reason);
}

function translated(error: unknown, task: Task): unknown {
  if (task.signal?.aborted && error === task.signal.reason) return abortError(error);
  if (!(error instanceof AcodeError)) return error;
  if (error.is('ACODE-SBX-015')) return missing('/bin/sh', task, error);
  if (!error.is('ACODE-FIL-003')) return error;
  return new AcodeError(
    'ACODE-FIL-003',
    { path: task.attempt.path ?? '', limit: error.context.limit },
    { cause: error },
  );
}

// The error that the end of a task stands for.
function failureOf({ exitCode, stderr }: InsideEnd, task: Task): Error {
  const tool = /^acode-missing (.+)$/m.exec(stderr)?.[1];
  if (tool !== undefined) return missing(tool, task);
  if (exitCode === 127) return missing('/bin/sh', task);
  if (/^acode-directory$/m.test(stderr)) return isDirectoryError(task.attempt.path ?? '');
  const code = /^acode-errno (E[A-Z0-9]+)$/m.exec(stderr)?.[1] ?? codeIn(stderr);
  // Nothing that could be understood: the words themselves are all there is to tell.
  if (code === null) return fileError('EIO', task.attempt, new Error(`exit ${exitCode}: ${stderr.trim()}`));
  return mistakeOf(code, stderr, task);
}

function mistakeOf(code: string, stderr: string, task: Task): Error {
  const syscall = /^acode-syscall ([a-z]+)$/m.exec(stderr)?.[1];
  const attempt = task.unless?.[code] ?? task.attempt;
  return fileError(code, syscall === undefined ? attempt : { ...attempt, syscall });
}

function missing(program: string, { operation }: Task, cause?: unknown): AcodeError {
  return new AcodeError('ACODE-FIL-001', { program, operation }, cause === undefined ? {} : { cause });
}

/** path: takes an archive on standard input */
export const UNPACK = script(`
need mkdir tar
mkdir -p -- "$1" || at mkdir
exec tar -x -o -f - -C "$1"
`);

// It arrives beside and takes its name when all of it is there. What has several names, is a link or lies where nothing can be made is
// written in place. The sender may die in the middle: so the program gets the expected size, and removes a shorter file.
/** path, the directory it is in, bits that the mode does not have, bits to run it, the path beside, how much comes */
export const PLACE_FILE = script(`
need mkdir dd chmod stat mv rm
mkdir -p -- "$2" || at mkdir
usual=$(umask)
runnable() { chmod "$(printf %o "$((0$1 & ~0$usual))")" "$2"; }
beside() {
  case $1 in */) return 1 ;; esac
  [ -w "$2" ] || return 1
  if [ -f "$1" ] && [ ! -L "$1" ]; then
    [ -w "$1" ] && [ -O "$1" ] && [ "$(stat -c %h -- "$1")" = 1 ]
    return
  fi
  case $(stat -c '' -- "$1" 2>&1) in *': No such file or directory') ;; *) return 1 ;; esac
}
if ! beside "$1" "$2"; then
  narrow "$3"
  dd of="$1" bs=65536 || exit 1
  [ -z "$4" ] || runnable "$4" "$1"
  exit
fi
bits=
[ ! -e "$1" ] || bits=$(stat -c %a -- "$1")
part=$5
trap 'rm -f -- "$part"' EXIT
narrow "$3"
dd of="$part" bs=65536 || exit 1
[ "$(stat -c %s -- "$part")" = "$6" ] || fault EIO
if [ -n "$4" ]; then runnable "$4" "$part"
elif [ -n "$bits" ]; then chmod "$(printf %o "$((0$bits & 0777))")" "$part"
fi || exit 1
mv -f -T -- "$part" "$1" 2>/dev/null || dd if="$part" of="$1" bs=65536 || exit 1
`);

/** Path of a partial file whose sender ended in the middle */
export const REMOVE_PART = script(`
need rm
exec rm -f -- "$1"
`);

// Says first what it is: a directory comes as an archive, a file as it is. An engine passes on each piece that is written by
// itself, and busybox’s tar writes several of a few hundred bytes for each file: so they are gathered.
/** path */
export const PACK = script(`
need stat cat
reached "$1" || exit 1
if [ -d "$1" ]; then
  need tar
  [ -r "$1" ] || at scandir
  gnu=
  if tar --hard-dereference --version >/dev/null 2>&1; then gnu=yes; else need dd; fi
  echo directory
  [ -z "$gnu" ] || exec tar -c --hard-dereference -b 128 -f - -C "$1" .
  { ended=$({ { tar -c -f - -C "$1" . 3>&- 4>&-; echo $? >&4; } | dd ibs=65536 obs=65536 2>/dev/null >&3; } 4>&1); } 3>&1
  exit "$ended"
fi
[ -f "$1" ] || { echo special; exit 0; }
[ -r "$1" ] || fault EACCES
echo "file $(stat -L -c '%a %s' -- "$1")"
exec cat -- "$1"
`);

// With the NUL at its end, what the kernel takes.
const MAX_LENGTH = 4095;

/** A path as the caller wrote it, and as programs inside get it. */
export interface Place {
  readonly written: string;
  readonly inside: string;
}

/** How a path is called in errors about it, and what is to be done with it. */
export interface Naming {
  readonly syscall: string;
  readonly argument?: string;
}

/**
 * The place of a path. It is not tidied up: `..` after a link means what the kernel says it means, and a slash at the end
 * asks for a directory.
 */
export function placeOf(path: string, workdir: string, { syscall, argument = 'path' }: Naming): Place {
  assertPath(path, argument);
  // Nothing is at the empty path, where appending it to the directory would be the directory.
  if (path === '') throw fileError('ENOENT', { syscall, path });
  const inside = path.startsWith('/') ? path : `${workdir.replace(/\/+$/, '')}/${path}`;
  // Some programs go a long way step by step, where the kernel would not take the path at all.
  if (Buffer.byteLength(inside) > MAX_LENGTH) throw fileError('ENAMETOOLONG', { syscall, path });
  return { written: path, inside };
}

/** Checks what is to be a path, or the target of a link. */
export function assertPath(path: unknown, argument: string): asserts path is string {
  if (typeof path !== 'string') throw typeError(argument, 'of type string', path);
  if (path.includes('\0')) throw nulError(argument, path);
}

/** The directory that holds a place. */
export function parentOf(inside: string): string {
  const plain = inside.replace(/\/+$/, '');
  return plain.slice(0, plain.lastIndexOf('/')) || '/';
}

/** What the names of a directory’s entries begin with, as `find` prints them. */
export function prefixOf(inside: string): string {
  return `${inside.replace(/\/+$/, '')}/`;
}

/** Whether a path ends in a name that stands for a directory and is none of its entries. */
export function endsInDots(inside: string): boolean {
  return /(?:^|\/)\.{1,2}\/*$/.test(inside);
}

/** Whether names lead from a directory to something below it, and nowhere else. */
export function leadsBelow(way: string): boolean {
  // Most are one name, and need no search.
  if (!way.includes('/')) return way !== '' && way !== '.' && way !== '..';
  return !/(?:^|\/)\.{0,2}(?:\/|$)/.test(way);
}
