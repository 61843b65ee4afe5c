// Access to hosts as a person sees and grants it: presets, a decision without a connection, what waits for a person, grants.

import type { EgressConnection, EgressProtocol, EgressRefusal, EgressRequests, EgressTreatment } from './egress.ts';
import type { Consent } from './configuration.ts';
import type { PolicyInput } from './policy.ts';
import type { Source } from './sourced.ts';

/** A preset, to be shown. */
export interface PresetInfo {
  /** How a list names it; a value in angle brackets is the user’s to fill in. */
  readonly name: string;
  /** Grows with each change of what it allows. */
  readonly version: number;
  /** What it is for. */
  readonly title: string;
  /** What it does not prevent. */
  readonly risk: string;
  /** Its hosts. */
  readonly hosts: readonly {
    /** The name. */
    readonly host: string;
    /** The port. */
    readonly port: number;
    /** What the connection must be. */
    readonly protocol: EgressProtocol;
    /** What the proxy does with it. */
    readonly mode: EgressTreatment;
    /** The requests that are allowed; absent for all. */
    readonly requests?: readonly EgressRequests[];
    /** The name of the credential that it needs; absent for none. */
    readonly credential?: string;
  }[];
}

/** A request that a sandbox could make. */
export interface AccessQuestion {
  /** A URL such as `https://registry.npmjs.org/left-pad`, or a host, with a port unless it is 443. */
  readonly target: string;
  /** The method of the request, `GET` by default. Counts where acode reads the requests of the host. */
  readonly method?: string;
  /** The network of the command; by default, what the configuration gives one without options. */
  readonly network?: PolicyInput['network'];
  /** Whether to resolve the name, check its addresses and connect. By default nothing is resolved or dialled. */
  readonly connect?: boolean;
  /** Cancels it. */
  readonly signal?: AbortSignal;
}

/** What would become of such a request. */
export interface AccessAnswer {
  /** Whether it would be let through. */
  readonly allowed: boolean;
  /** The host. */
  readonly host: string;
  /** The port. */
  readonly port: number;
  /** The network of the command: only an allow-list decides about hosts. */
  readonly network: 'none' | 'allow' | 'bridge' | 'named';
  /** The entries of the list; empty for any other network. */
  readonly list: readonly string[];
  /** The id of the rule that decided; absent where none matched. */
  readonly rule?: string;
  /** Who set that rule; without one, who set the network. */
  readonly setBy: Source;
  /** Why it is refused. */
  readonly reason?: EgressRefusal | 'no-network';
  /** What happens and what to do, in sentences. */
  readonly text: string;
  /** The entry that would allow it; absent where it is allowed, or no entry would. */
  readonly entry?: string;
  /** Whether acode reads the requests of the host. */
  readonly inspected: boolean;
  /** The addresses that the name has, all of them checked; only if it was asked to connect. */
  readonly addresses?: readonly string[];
}

/** A host that was refused to a command, or that a model asks for, and that a person can allow. */
export interface PendingAccess {
  /** Its id, for {@link NetworkAccess.allow}. */
  readonly id: string;
  /** The host, in ASCII. */
  readonly host: string;
  /** The port. */
  readonly port: number;
  /** The entry of an allow-list that allows it: a preset where one has the host. */
  readonly entry: string;
  /** Who wants it: a command that was refused, or a model by `request_access`. */
  readonly by: 'command' | 'model';
  /** Why a model asks for it, in its own words; absent for a command. */
  readonly why?: string;
  /** How often it was refused; 0 for a model’s request. */
  readonly count: number;
  /** The command; absent where it is not known. */
  readonly command?: readonly string[];
  /** The workspace, as an absolute path; absent where it is not known. */
  readonly workspace?: string;
  /** The task of the command, if it has one. */
  readonly taskId?: string;
  /** The sandbox that wants it; absent for a model’s request. */
  readonly sandboxId?: string;
  /** Whether that sandbox still runs, so that its list can be changed now. */
  readonly isRunning: boolean;
  /** When it was recorded, in ISO 8601. */
  readonly at: string;
}

/** The network of a sandbox that runs now. */
export interface RunningNetwork {
  /** The sandbox’s UUID. */
  readonly sandboxId: string;
  /** What it was made for. */
  readonly command: readonly string[];
  /** The workspace, as an absolute path; null if it has none. */
  readonly workspace: string | null;
  /** The task, if there is one. */
  readonly taskId: string | null;
  /** When its network was opened, in ISO 8601. */
  readonly startedAt: string;
  /** The connections so far. */
  readonly connections: readonly EgressConnection[];
}

/** For how long a host is granted. */
export interface AccessGrantRequest {
  /**
   * `once`: the sandbox that asked, while it runs; after its end, the next command in its workspace within an hour. `task`: that
   * sandbox, and for eight hours every command of its task, or of its workspace if it has no task.
   */
  readonly for: 'once' | 'task';
  /** How a person agreed. */
  readonly consent: Consent;
  /** Cancels it. */
  readonly signal?: AbortSignal;
}

/** What a grant came to. */
export interface GrantedAccess {
  /** What was granted. */
  readonly access: PendingAccess;
  /** Whether the list of the running sandbox has it now. */
  readonly isInEffect: boolean;
  /** Until when commands that start later get it, in ISO 8601; absent where none does. */
  readonly until?: string;
}

/** Access of sandboxes to hosts. Works without an engine. */
export interface NetworkAccess {
  /** The presets of allow-lists, each with its version and its residual risk. */
  presets(): Promise<readonly PresetInfo[]>;
  /**
   * What would become of a request, by the decision that the proxy makes.
   *
   * @example
   * const { allowed, text } = await acode.network.test({ target: 'https://pypi.org/simple/', network: { allow: ['pypi'] } });
   * console.log(allowed, text);
   */
  test(question: AccessQuestion): Promise<AccessAnswer>;
  /** What waits for a person: hosts that running commands and those of the last hour were refused, newest first; at most 20 of a task. */
  pending(): Promise<PendingAccess[]>;
  /** The networks of sandboxes that run now, with their connections so far. */
  running(): Promise<RunningNetwork[]>;
  /**
   * Asks a person for a host. Nothing changes before one allows it by {@link NetworkAccess.allow}; at most 20 requests of a session
   * are recorded.
   */
  request(wanted: {
    /** The full name of the host. */
    readonly host: string;
    /** The port; 443 by default. */
    readonly port?: number;
    /** What it is for. */
    readonly why: string;
    /** The session that asks; this host’s own by default. */
    readonly sessionId?: string;
  }): Promise<PendingAccess>;
  /** Allows what is pending. It loosens, and so is recorded with the consent before it takes effect. */
  allow(id: string, grant: AccessGrantRequest): Promise<GrantedAccess>;
}
