// A mistake in how the command was called: nothing was tried, and the way to say it is known.

/** The code of every such mistake. */
export const USAGE_CODE = 'ACODE-CLI-001';

/** A mistake of the caller. Ends with status 2. */
export class UsageError extends Error {
  readonly code = USAGE_CODE;
  readonly hint: string;
  readonly exitStatus = 2;
  /** What a person is shown instead of message and hint, where a whole help text serves better. */
  readonly help: string;

  constructor(message: string, hint: string, help = '') {
    super(message);
    this.name = 'UsageError';
    this.hint = hint;
    this.help = help;
  }
}
