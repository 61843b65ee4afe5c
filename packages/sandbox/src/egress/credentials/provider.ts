// A credential whose current value can be asked for: where the proxy gets values, whatever keeps them.

/** A value, and for how long it may be used without asking again. */
export interface CredentialValue {
  readonly value: string;
  /** In milliseconds from now; absent for as long as the server takes it. */
  readonly validMs?: number;
}

/** What keeps one credential. It lives in the process that owns the sandbox, and not in the thread of the proxy. */
export interface CredentialProvider {
  /**
   * The current value. `refused` is one that a server has refused (401): a provider that can renew it does, unless its current value
   * is another one already. Throws `CredentialUnavailable`.
   */
  current(asked: { readonly signal: AbortSignal; readonly refused?: string }): Promise<CredentialValue>;
}

/** The value of a credential cannot be had. Its message is a clause for people and never holds anything of the value. */
export class CredentialUnavailable extends Error {
  /** What to do, as a sentence. */
  readonly remedy: string;

  constructor(reason: string, remedy: string) {
    super(reason);
    this.name = 'CredentialUnavailable';
    this.remedy = remedy;
  }
}

/** How long a provider may take for a value. */
export const CREDENTIAL_MS = 20_000;

const MIN_LENGTH = 8;
const MAX_LENGTH = 16_384;

/** Why a value cannot be a credential, as a clause that holds nothing of it; null where it can. */
export function valueFault(value: string): string | null {
  if (value === '') return 'is empty';
  // Redaction would hide ordinary words of every answer.
  if (value.length < MIN_LENGTH) return `is shorter than ${MIN_LENGTH} characters`;
  if (value.length > MAX_LENGTH) return `is longer than ${MAX_LENGTH / 1024} KiB`;
  return /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value)
    ? null
    : 'has a line break or a sign that is not ASCII';
}
