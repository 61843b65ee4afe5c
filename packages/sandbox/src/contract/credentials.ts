// Credentials that the proxy of an allow-list adds to requests: where they come from, how they are added, and to which hosts. Never
// their values.

import type { Source } from './sourced.ts';

/**
 * How the proxy adds a credential to a request: as `Authorization: Bearer …`, as a header of its own, as a password of `Authorization:
 * Basic …` with a user name, or as a key of the query.
 */
export type CredentialForm =
  | 'bearer'
  | {
      /** The name of the header, such as `x-api-key`. */
      readonly header: string;
    }
  | {
      /** The user name, such as `x-access-token`. */
      readonly basic: string;
    }
  | {
      /** The key of the query, such as `api_key`. */
      readonly query: string;
    };

/**
 * Where acode reads the value of a credential. It does so in the process that owns the sandbox, when the sandbox gets its network,
 * and again after the server has refused the value.
 */
export type CredentialSource =
  | {
      /** A variable of the environment of acode’s own process. */
      readonly env: string;
    }
  | {
      /** The absolute path of a file that only the user can read and write. Space at its ends is left out. */
      readonly file: string;
    }
  | {
      /** A program of this machine, by its absolute path or its name in `PATH`, and its arguments. It prints the value. */
      readonly command: readonly string[];
    }
  | {
      /** Attributes of an entry of the desktop’s secret service, which `secret-tool lookup` finds. */
      readonly secretService: Readonly<Record<string, string>>;
    }
  | {
      /** A login of acode’s own, made by `acode login`, by its name. acode refreshes its tokens; no other program has them. */
      readonly login: string;
    };

/** Where a login is made and refreshed: an authorisation server, as OAuth 2.0 has them, and what acode is to it. */
export interface LoginDefinition {
  /** The page that the user opens in a browser. Only `acode login` needs it. */
  readonly authorizeUrl?: string | undefined;
  /** Where codes and refresh tokens are exchanged for tokens. */
  readonly tokenUrl: string;
  /** The public client that acode is to the server. */
  readonly clientId: string;
  /** What is asked for, such as `models.read`. */
  readonly scopes?: readonly string[] | undefined;
  /**
   * Where the browser is sent with the code. At an address of this host’s loopback acode listens; any other page shows the code, and
   * the user pastes it.
   */
  readonly redirectUri?: string | undefined;
  /** How exchanges are written: `form`, as the standard says and by default, or `json`. */
  readonly tokenRequest?: 'form' | 'json' | undefined;
  /** Where `acode logout` ends the login at the server. Refused inside a sandbox. */
  readonly revokeUrl?: string | undefined;
  /** More addresses that would end the login, such as one to log out. Refused inside a sandbox. */
  readonly refusedUrls?: readonly string[] | undefined;
}

/** A credential that the proxy adds to requests of a sandbox: everything about it except its value. */
export interface EgressCredential {
  /** Its name, such as `anthropic`. */
  readonly name: string;
  /** The hosts that get it, such as `registry.example` or `registry.example:8443`; absent for those of the presets that name it. */
  readonly hosts?: readonly string[];
  /** How it is added. */
  readonly as: CredentialForm;
  /** Where its value comes from. */
  readonly from: CredentialSource;
  /** The variable that holds its placeholder inside; absent for none. */
  readonly variable?: string;
  /** The form of the placeholder: each `*` becomes a letter or a digit. */
  readonly placeholder: string;
  /** The variable that holds the base URL inside, where its hosts are reached by one; absent for none. */
  readonly baseUrlVariable?: string;
  /** What follows the origin in the base URL, such as `/v1`; absent for nothing. */
  readonly basePath?: string;
  /** The server of its login, where its value comes from one; absent otherwise. */
  readonly login?: LoginDefinition;
  /** The variable that holds the placeholder of the refresh token inside; absent for none. */
  readonly refreshVariable?: string;
  /** Who set it. */
  readonly setBy: Source;
}

/** An address of a login’s server. */
export interface LoginEndpoint {
  readonly host: string;
  readonly port: number;
  readonly path: string;
}

/** What the proxy knows of a login: where its tokens are refreshed, which it does itself, and what it refuses. */
export interface PlannedLogin {
  /** Where a sandbox asks for new tokens. It is answered here, with placeholders. */
  readonly token: LoginEndpoint;
  /** What would end the login. */
  readonly refused: readonly LoginEndpoint[];
  /** What stands for the refresh token inside this sandbox. */
  readonly refreshPlaceholder: string;
}

/** What the proxy knows of a credential besides its value. */
export interface PlannedCredential {
  /** Its name, as rules have it. */
  readonly name: string;
  /** How it is added. */
  readonly as: CredentialForm;
  /** What stands for its value inside this sandbox, and is worth nothing elsewhere. */
  readonly placeholder: string;
  /** Its login; absent where its value comes from elsewhere. */
  readonly login?: PlannedLogin;
}

/** A credential of a request. What is absent is as presets have it for `anthropic`, `openai`, `google-ai` and `github`. */
export interface CredentialRequest {
  /** Where its value comes from. */
  from: CredentialSource;
  /** Hosts that get it, which the list has to allow: `registry.example`, `registry.example:8443`. */
  hosts?: readonly string[] | undefined;
  /** How it is added; `bearer` by default. */
  as?: CredentialForm | undefined;
  /** The variable that holds its placeholder inside. */
  variable?: string | undefined;
  /** The form of the placeholder, such as `npm_********`: each `*` becomes a letter or a digit. */
  placeholder?: string | undefined;
  /**
   * How the sandbox reaches the hosts. `inspect`, the default: by their names, over TLS that the proxy ends. `base-url`: by a URL of
   * the sandbox’s own loopback, which `baseUrlVariable` holds; then their names lead nowhere.
   */
  mode?: 'inspect' | 'base-url' | undefined;
  /** The variable that holds the base URL inside, in mode `base-url`. */
  baseUrlVariable?: string | undefined;
  /** The server of the login that it comes from, where the user’s configuration has none under that name. */
  login?: LoginDefinition | undefined;
  /** The variable that holds the placeholder of the refresh token inside, for programs that want one. */
  refreshVariable?: string | undefined;
}
