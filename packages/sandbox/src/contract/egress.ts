// Egress: the rules of an allow-list, the plan that the proxy of one sandbox follows, and what came of it. Plain data that goes
// through JSON and between threads.

import type { PlannedCredential } from './credentials.ts';
import type { Source } from './sourced.ts';

/**
 * What a connection must be: TLS from its first byte, plain HTTP, any bytes over TCP, or Git over SSH, which acode itself connects
 * for a named repository.
 */
export type EgressProtocol = 'tls' | 'http' | 'tcp' | 'ssh';

/**
 * What the proxy does with the bytes. `pass`: it reads the name of the server and relays the rest. `inspect`: it ends TLS with a
 * certificate authority of this sandbox, and judges each request. `base-url`: a listener inside has this one server behind it.
 */
export type EgressTreatment = 'pass' | 'inspect' | 'base-url';

/** Requests that a rule allows. */
export interface EgressRequests {
  /** Methods in upper case, such as `GET`; of a rule for Git over SSH, services such as `git-upload-pack`. */
  readonly methods: readonly string[];
  /**
   * The prefix of the path, such as `/owner/repo/`; with `$` at its end, the whole path. `*` stands for one segment. The query is
   * not compared. Of a rule for Git over SSH: the login and the repository, such as `git@owner/repo`.
   */
  readonly path: string;
  /** Whether these requests go without the credential of the rule; absent means no. */
  readonly anonymous?: boolean;
}

/** One rule of an allow-list. */
export interface EgressRule {
  /** Its name in denials and logs, such as `npm:install/registry.npmjs.org` or `allow/db.example:5432`. */
  readonly id: string;
  /** What it says about the connections that it matches. */
  readonly verdict: 'allow' | 'deny';
  /** A lower-case ASCII name, `*.suffix` for every name below, or `host` for a service of this host. */
  readonly host: string;
  /** The port; 0, for every port, in a rule that denies. */
  readonly port: number;
  /** What the connection must be. */
  readonly protocol: EgressProtocol;
  /** What the proxy does with it. */
  readonly mode: EgressTreatment;
  /** The requests that are allowed, where the proxy reads them; absent for all. */
  readonly requests?: readonly EgressRequests[];
  /** Whether a connection may become a WebSocket, where the proxy reads it; absent means no. */
  readonly websocket?: boolean;
  /** Whether the name may have a private or loopback address, because the user’s own file says so; absent means no. */
  readonly private?: boolean;
  /** The name of the credential that the proxy adds, never its value. */
  readonly credential?: string;
  /** Who set it. */
  readonly setBy: Source;
}

/** A listener inside that has one host behind it. */
export interface BaseUrl {
  /** The port on 127.0.0.1 inside. */
  readonly at: number;
  /** The host behind it. */
  readonly host: string;
  /** Its port. */
  readonly port: number;
}

/** What the connections of one sandbox may take together. */
export interface EgressLimits {
  /** Connections at once. */
  readonly connections: number;
  /** Bytes a second in each direction; absent for no limit. */
  readonly bytesPerSecond?: number;
  /** Bytes in both directions together; absent for no limit. */
  readonly bytes?: number;
  /** Requests with a credential of acode’s; absent for no limit. */
  readonly requests?: number;
  /** Tokens that the answers to them count; absent for no limit. */
  readonly tokens?: number;
  /** Bytes of the head of a request. */
  readonly headerBytes: number;
  /** How long a name may take to resolve and a server to answer, in milliseconds. */
  readonly connectMs: number;
  /** After how many milliseconds without a byte a connection ends. */
  readonly idleMs: number;
}

/** The part of a budget that is used up. */
export type SpentBudget = 'requests' | 'tokens';

/** The proxy of a company, which is asked for a tunnel to each host. Names of private hosts and services of this host go past it. */
export interface UpstreamProxy {
  readonly host: string;
  readonly port: number;
}

/** How acode runs `ssh` outside of a sandbox, for Git over SSH. Absent settings are those of ssh itself. */
export interface GitSsh {
  /** The file of known host keys, in place of the user’s and the machine’s. */
  readonly knownHosts?: string;
  /** The private key, in place of those that ssh looks for. */
  readonly identity?: string;
  /** The socket of the user’s agent. */
  readonly agent?: string;
}

/** A name with a loopback address of its own inside the sandbox. */
export interface EgressName {
  /** The name. */
  readonly host: string;
  /** Its address inside, in 127.8.0.0/16. */
  readonly address: string;
  /** The ports that answer there. */
  readonly ports: readonly number[];
}

/** What the proxy of one sandbox follows. */
export interface EgressPlan {
  /** Grows with each change; connections of an older one are closed. */
  readonly generation: number;
  /** All rules. {@link EgressRule.setBy} tells their layers apart. */
  readonly rules: readonly EgressRule[];
  /** The limits. */
  readonly limits: EgressLimits;
  /** The proxy through which connections leave this host; absent for none. */
  readonly upstream?: UpstreamProxy;
  /** How Git over SSH is connected; absent where no rule allows it. */
  readonly ssh?: GitSsh;
  /** The exact names. One below a `*.suffix` gets its address when it is asked for. */
  readonly names: readonly EgressName[];
  /** The credentials that rules name; absent for none. */
  readonly credentials?: readonly PlannedCredential[];
  /** The listeners of hosts that are reached by a base URL; absent for none. */
  readonly baseUrls?: readonly BaseUrl[];
}

/** Why a connection or a request was refused. */
export type EgressRefusal = (typeof EGRESS_REFUSALS)[number];

// Every reason for a refusal, to be stored and compared; sentences are made of them elsewhere.
const EGRESS_REFUSALS = [
  /** No rule allows the host. */
  'not-listed',
  /** The host is listed, with another port. */
  'other-port',
  /** A rule denies the host. */
  'denied-by-rule',
  /** The host is not a name: an address, or text that no resolver should see. */
  'bad-host',
  /** The name has no address. */
  'unresolved',
  /** The name has a private, loopback, link-local or metadata address, or one of this host. */
  'private-address',
  /** The server did not answer. */
  'unreachable',
  /** The certificate of the server is not valid for it, where the proxy ends TLS. */
  'untrusted-server',
  /** The connection is not TLS, and the rule says TLS. */
  'not-tls',
  /** The connection is not HTTP, and the rule says HTTP. */
  'not-http',
  /** The TLS server name is another than the one asked for. */
  'sni-differs',
  /** The Host header is another than the one asked for. */
  'host-differs',
  /** The request cannot be read in one way only. */
  'bad-request',
  /** The rule does not allow the method. */
  'method',
  /** The rule does not allow the path. */
  'path',
  /** The rule allows no WebSocket and no other protocol. */
  'upgrade',
  /** The request carries a credential that is not the broker’s. */
  'foreign-credential',
  /** The rule allows Git over SSH, and no other connection. */
  'git-only',
  /** The rule does not allow the repository. */
  'repository',
  /** The rule does not allow what was asked of the repository: to push, or something that is not a service of Git. */
  'service',
  /** acode could not read the credential that it adds. */
  'no-credential',
  /** The request would end or replace a login that acode keeps. */
  'login-kept',
  /** The host is reached by its base URL only. */
  'base-url-only',
  /** The server compressed its answer, in which acode could not find the credential. */
  'compressed-answer',
  /** A limit of the sandbox is reached. */
  'limit',
  /** The budget of requests or tokens is used up. */
  'budget',
] as const;

/** The connections of one sandbox to one host and port that had the same outcome. */
export interface EgressConnection {
  /** The host that was asked for. */
  readonly host: string;
  /** The port. */
  readonly port: number;
  /** The outcome. */
  readonly verdict: 'allowed' | 'denied';
  /** The id of the rule that decided; absent where none matched. */
  readonly rule?: string;
  /** How many connections or requests. */
  readonly count: number;
  /** Bytes that the sandbox received. */
  readonly bytesIn: number;
  /** Bytes that it sent. */
  readonly bytesOut: number;
  /** How long the connections were open, added up, in milliseconds. */
  readonly ms: number;
  /**
   * Tokens that the answers of a language model counted, where the requests had a credential of acode’s; absent where there were none.
   */
  readonly tokens?: number;
  /** Why, of those that were denied. */
  readonly reason?: EgressRefusal;
}
