// A refusal, as a caller sees it: which one, why, and what to do.

import { AcodeError } from '@acode/sandbox';

/** The parts of a refusal that an attack looks at. */
export interface Refusal {
  readonly code: string;
  readonly message: string;
  readonly hint: string;
  readonly context: Readonly<Record<string, unknown>>;
}

/** The refusal that this work ends in; anything else, success above all, is a failure of the test. */
export async function refusal(work: Promise<unknown>): Promise<Refusal> {
  let result: unknown;
  try {
    result = await work;
  } catch (error) {
    if (!(error instanceof AcodeError)) throw error;
    const { code, message, hint } = error;
    return { code, message, hint, context: { ...error.context } };
  }
  throw new Error(`was not refused: ${JSON.stringify(result)?.slice(0, 300)}`);
}
