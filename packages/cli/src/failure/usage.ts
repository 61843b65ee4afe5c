// Usage error: a mistake in the command line. Nothing was run, and the hint shows the correct form.

/** A mistake of the caller. Ends with status 2. */
export class UsageError extends Error {
  readonly code = 'ACODE-CLI-001';
  readonly hint: string;
  readonly exitStatus = 2;
  /** What a person is shown instead of message and hint, where a whole help text serves better. */
  readonly help: string;
  /** The option that the mistake is about, for programs. */
  readonly option: string | undefined;

  constructor(message: string, hint: string, help = '', option?: string) {
    super(message);
    this.name = 'UsageError';
    this.hint = hint;
    this.help = help;
    this.option = option;
  }
}
