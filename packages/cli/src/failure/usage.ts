// A mistake in how the command was called: nothing was tried, and the way to say it is known.

/** The code of every such mistake. */
export const USAGE_CODE = 'ACODE-CLI-001';

/** A mistake of the caller. Ends with status 2. */
export class UsageError extends Error {
  readonly code = USAGE_CODE;
  readonly hint: string;
  readonly exitStatus = 2;

  constructor(message: string, hint: string) {
    super(message);
    this.name = 'UsageError';
    this.hint = hint;
  }
}
