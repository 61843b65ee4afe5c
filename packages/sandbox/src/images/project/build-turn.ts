// One build of a project’s image at a time, in all processes of a user: two at once would take the name from each other.

import { AcodeError } from '../../contract/errors.ts';
import { LockTimeoutError } from '../registry/turn.ts';
import type { Turns } from '../registry/turn.ts';

/** Whose turn is waited for. */
export interface BuildTurn {
  readonly turns: Pick<Turns, 'during'>;
  /** The engine that it is built on. */
  readonly engine: string;
  readonly reference: string;
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
}

/** Looks what there is and builds while nobody else does the same. */
export async function buildInTurn<Value>(turn: BuildTurn, work: () => Promise<Value>): Promise<Value> {
  const { turns, engine, reference, deadlineMs, signal } = turn;
  try {
    return await turns.during(`build:${engine} ${reference}`, { deadlineMs, signal }, work);
  } catch (error) {
    if (!(error instanceof LockTimeoutError)) throw error;
    throw new AcodeError(
      'ACODE-IMG-001',
      {
        image: reference,
        reason: `another process builds it, and did not end: ${error.message}`,
        remedy: 'Try again when it has ended, or give it more time.',
      },
      { cause: error },
    );
  }
}
