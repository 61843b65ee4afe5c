// Runs the fixed programs inside: each in its time, and each failure as the error that node would raise for it.

import { AcodeError } from '../../contract/errors.ts';
import type { Clock } from '../../contract/ports.ts';
import type { Inside, InsideEnd, InsideResult } from '../../isolation/inside.ts';
import { withDeadline } from '../../lifecycle/deadline.ts';
import { Conversation } from './conversation.ts';
import { abortError, codeIn, fileError, isDirectoryError } from './errno.ts';
import type { Attempt } from './errno.ts';
import { argvOf } from './scripts.ts';
import type { Script } from './scripts.ts';

const SHORT_MS = 60_000;

/** One thing to be done inside. */
export interface Task {
  readonly script: Script;
  readonly words: readonly string[];
  /** The name of the call, for who is told that the image lacks a program. */
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

  /** Starts a task that is talked with while it runs. Whoever opens it disposes of it. */
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
