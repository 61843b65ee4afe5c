// Logins of acode’s own, as a caller makes, lists and ends them. Never their tokens.

import type { LoginDefinition } from './credentials.ts';

/** A login that acode keeps. */
export interface LoginInfo {
  /** Its name, as `from: { login: … }` of a credential has it. */
  readonly name: string;
  /** The host of its server. */
  readonly server: string;
  /** `valid`: it can be used. `expired`: it has expired and cannot be refreshed. `ended`: its server refused to refresh it. */
  readonly state: 'valid' | 'expired' | 'ended';
  /** When its tokens were given. */
  readonly obtainedAt: string;
  /** When the access token expires, which acode refreshes; null where the server did not say. */
  readonly expiresAt: string | null;
  /** Why it has ended, as the server put it; absent while it has not. */
  readonly reason?: string;
}

/** Options of a login. */
export interface LoginOptions {
  /** Its server, where the user’s configuration has none under the name. */
  server?: LoginDefinition;
  /** Ends the attempt. */
  signal?: AbortSignal;
}

/**
 * A login that has begun. The user opens `url` and logs in there; then either the browser comes to an address of this host, where
 * acode waits for it, or the server’s page shows a code, which the user hands over.
 */
export interface LoginAttempt extends AsyncDisposable {
  /** What the user opens in a browser. */
  readonly url: string;
  /** Where acode waits for the browser; null where the server’s page shows a code. */
  readonly waitsAt: string | null;
  /** The login, once the browser has come; never where acode does not wait. */
  readonly done: Promise<LoginInfo>;
  /** Finishes it with the code that the page showed, or with the whole address that the browser was sent to. */
  enter(code: string): Promise<LoginInfo>;
}

/** What came of ending a login. */
export interface LogoutReport {
  /** The name of the login. */
  readonly name: string;
  /** Whether there was a login to remove from this host. */
  readonly removed: boolean;
  /** Whether its server was told; null where it has no address for that. */
  readonly revoked: boolean | null;
}

/** Logins of this user, which acode keeps and refreshes. */
export interface LoginsOfUser {
  /** The logins that there are. */
  list(): Promise<LoginInfo[]>;
  /**
   * Begins a login: the authorisation code flow of OAuth 2.0 with PKCE. No sandbox and no program of the server’s takes part.
   *
   * @example
   * await using attempt = await acode.logins.begin('corp');
   * console.log('Open', attempt.url);
   * await attempt.done;
   */
  begin(name: string, options?: LoginOptions): Promise<LoginAttempt>;
  /** Ends a login: tells its server, where the definition has an address for that, and removes the tokens. */
  end(name: string, options?: LoginOptions): Promise<LogoutReport>;
}
