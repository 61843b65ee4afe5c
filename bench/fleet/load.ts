// Load of the fleet's benches: tasks one after another from many submitters, and what their ends and the workers' journals prove.

import { setMaxListeners } from 'node:events';
import { AcodeError } from '@acode/sandbox';
import type { Fleet, TaskEnd } from '@acode/fleet';
import type { JournalLine } from './hosts.ts';

// The engine was away for longer than one call waits: the submitter asks again.
const AGAIN = new Set(['ACODE-FLT-006', 'ACODE-FLT-001', 'ACODE-FLT-005']);

/** Which tasks. */
export interface LoadOptions {
  readonly fleet: Fleet;
  /** Beginning of the ids. */
  readonly prefix: string;
  readonly pool: string;
  readonly count: number;
  /** How many at once. */
  readonly inFlight: number;
  readonly commandOf: (id: string, at: number) => string | readonly string[];
  /** Whether the client makes the ids, so that a repeated call is another task. */
  readonly hasOwnIds?: boolean;
  /** No task is waited for longer than until then, in milliseconds from the beginning. */
  readonly deadlineMs: number;
}

/** One task that has ended. */
export interface Ended {
  readonly id: string;
  readonly submittedAt: number;
  readonly endedAt: number;
  readonly state: TaskEnd['state'];
  readonly attempt: number;
  readonly stdout: string;
}

/** A load that goes on. */
export class Load {
  readonly ended: Ended[] = [];
  readonly failures: string[] = [];
  readonly running = new Set<string>();
  readonly options: LoadOptions;
  readonly done: Promise<void>;
  isOver = false;
  #submitted = 0;

  constructor(options: LoadOptions) {
    this.options = options;
    const signal = AbortSignal.timeout(options.deadlineMs);
    setMaxListeners(0, signal);
    this.done = Promise.all(Array.from({ length: options.inFlight }, () => this.#submitter(signal))).then(
      () => void (this.isOver = true),
    );
  }

  async #submitter(signal: AbortSignal): Promise<void> {
    const { count, prefix, commandOf } = this.options;
    while (this.#submitted < count && !signal.aborted) {
      this.#submitted += 1;
      const at = this.#submitted;
      const id = `${prefix}-${at}`;
      const submittedAt = performance.now();
      this.running.add(id);
      try {
        const end = await this.#end(id, commandOf(id, at), signal);
        const { state, attempt, result } = end;
        this.ended.push({ id, submittedAt, endedAt: performance.now(), state, attempt, stdout: result?.stdout ?? '' });
      } catch (error) {
        this.failures.push(`${id}: ${error instanceof Error ? error.message : String(error)}`);
      }
      this.running.delete(id);
    }
  }

  async #end(id: string, command: string | readonly string[], signal: AbortSignal): Promise<TaskEnd> {
    for (;;)
      try {
        const { fleet, pool, hasOwnIds } = this.options;
        const task = await fleet.submit(command, hasOwnIds ? { pool } : { id, pool }, signal);
        return await task.end(signal);
      } catch (error) {
        if (!(error instanceof AcodeError) || !AGAIN.has(error.code) || signal.aborted) throw error;
      }
  }

  /** The longest time without an end, of those that begin or go on after each of these moments. */
  stalls(moments: readonly number[]): number[] {
    const times = this.ended.map(({ endedAt }) => endedAt).sort((one, other) => one - other);
    return moments.map((from, at) => {
      const until = moments[at + 1] ?? Infinity;
      let longest = 0;
      for (const [place, end] of times.entries()) {
        const begin = times[place - 1] ?? end;
        if (end >= from && begin < until) longest = Math.max(longest, end - begin);
      }
      return longest;
    });
  }
}

/** What is wrong with a load that is over, and what is only worth knowing. */
export interface Verdict {
  /** Tasks without an end, or that ended otherwise than they should. */
  readonly lost: number;
  /** Ends written by a worker that another had taken the task from. */
  readonly byNonHolders: number;
  /** Tasks whose end is another when it is read again. */
  readonly changed: number;
  /** Tasks that ended more than once, by the journals. */
  readonly endedTwice: number;
  /** Tasks that more than one worker began. */
  readonly begunAgain: number;
}

/** Compares the ends that were read with those that are there, and with the journals of all workers. */
export async function verdictOf(load: Load, journal: readonly JournalLine[]): Promise<Verdict> {
  const { fleet, count } = load.options;
  const right = load.ended.filter(({ id, state, stdout }) => state === 'succeeded' && stdout === `${id}\n`);
  const again: boolean[] = [];
  for (let at = 0; at < load.ended.length; at += 50)
    again.push(
      ...(await Promise.all(
        load.ended.slice(at, at + 50).map(async ({ id, state, attempt }) => {
          const found = await fleet.task(id).state();
          // A state that the servers have lost was read by its submitter in time.
          return found === null || (found.state === state && found.attempt === attempt);
        }),
      )),
    );
  const lines = groupedBy(journal);
  const ids = new Set(load.ended.map(({ id }) => id));
  const own = [...lines].filter(([id]) => ids.has(id)).map(([, of]) => of);
  return {
    lost: count - right.length,
    changed: again.filter(isSame => !isSame).length,
    byNonHolders: own.reduce((sum, of) => sum + nonHolders(of), 0),
    endedTwice: own.filter(of => of.filter(({ event }) => event === 'finished').length > 1).length,
    begunAgain: own.filter(of => of.filter(({ event }) => event === 'claimed').length > 1).length,
  };
}

function groupedBy(journal: readonly JournalLine[]): Map<string, JournalLine[]> {
  const found = new Map<string, JournalLine[]>();
  for (const line of journal) {
    if (line.id === undefined) continue;
    const of = found.get(line.id) ?? [];
    of.push(line);
    found.set(line.id, of);
  }
  return found;
}

// Its end was written, though another worker had begun it since this one had.
function nonHolders(lines: readonly JournalLine[]): number {
  return lines.filter(line => {
    if (line.event !== 'finished') return false;
    const claims = lines.filter(({ event, at }) => event === 'claimed' && at <= line.at);
    const last = claims.sort((one, other) => one.at.localeCompare(other.at)).at(-1);
    const own = claims.filter(({ worker, attempt }) => worker === line.worker && attempt === line.attempt);
    return !own.some(({ at }) => at === last?.at);
  }).length;
}
