// Host reports: engine status, sandboxes, cleanup and uninstall.

import type { ForkInfo } from './forks.ts';
import type { Command } from './command.ts';
import type { ConfigProblem } from './configuration.ts';
import type { ImagePruneReport } from './images.ts';
import type { Level, Risk } from './levels.ts';
import type { MaskedPath } from './masks.ts';
import type { EffectivePolicy, Limits, Sourced } from './policy.ts';
import type { SandboxSpec } from './spec.ts';

/** Size of the warm pool. Each of its sandboxes still runs one command and is then removed. */
export interface PoolOptions {
  /** Sandboxes kept ready for the plan that was requested last, even if no further request comes. Default: 1. */
  min?: number;
  /** Most sandboxes kept ready, for all plans together. Default: 4; at most 64. */
  max?: number;
  /** How long an unused sandbox is kept before it is removed, in milliseconds. Default: five minutes. */
  idleMs?: number;
}

/** The state of a sandbox, as the engine reports it now. */
export type SandboxState = 'created' | 'running' | 'paused' | 'restarting' | 'removing' | 'exited' | 'dead' | 'unknown';

/** One sandbox that exists. */
export interface SandboxInfo {
  /** The sandbox’s UUID. */
  readonly sandboxId: string;
  /** The engine’s id of the container. */
  readonly containerId: string;
  /** The container’s name. */
  readonly name: string;
  /** The name that its creator gave it (`CreateRequest.name`); absent where there is none. */
  readonly givenName?: string;
  /** Set for a service: the name that it has inside, and the UUID of the sandbox that it belongs to. */
  readonly service?: {
    /** The name of the service. */
    readonly name: string;
    /** The sandbox whose loopback it shares. */
    readonly of: string;
  };
  /** The image, as it was asked for. */
  readonly image: string;
  /** The directory of the host that is mounted as its workspace; absent where there is none, and in lists where it is not /workspace. */
  readonly workspace?: string;
  /** The state that the engine reports. */
  readonly state: SandboxState;
  /** Set where it waits in the pool of the host that was asked: it has run nothing yet. */
  readonly waiting?: boolean;
  /** When it was created, in ISO 8601. */
  readonly createdAt: string;
  /** When it expires, if it is persistent and this user and host know its lease. */
  readonly expiresAt?: string;
  /** The session that created it. */
  readonly sessionId: string;
  /** The task that it was created for; `run` if the request named none. */
  readonly taskId: string;
  /** The isolation level. */
  readonly level: Level;
  /** Every label of the container, acode’s own and yours. */
  readonly labels: Readonly<Record<string, string>>;
}

/** What a running sandbox uses now. */
export interface SandboxUsage {
  /** The sandbox’s UUID. */
  readonly sandboxId: string;
  /** The task that it was created for; `run` if the request named none. */
  readonly taskId: string;
  /** Memory, in bytes, without the files that the kernel could drop from it at once. */
  readonly memoryBytes: number;
  /** CPU time since its start, in milliseconds: two answers show how busy it is. */
  readonly cpuMs: number;
}

/** What is on the engine for sandboxes besides themselves. A volume’s id is its name. */
export interface EngineResource {
  /** A network or a volume. */
  readonly kind: 'network' | 'volume';
  /** The engine’s id. */
  readonly id: string;
  /** The name. */
  readonly name: string;
  /** Every label it has. */
  readonly labels: Readonly<Record<string, string>>;
}

/** Sandboxes on the engine, by what is known about their owners. */
export interface SandboxCounts {
  /** Those that run now. */
  readonly running: number;
  /** All sandboxes of acode on the engine. */
  readonly total: number;
  /** Those of a session of this user that lives, or may live. */
  readonly owned: number;
  /** Those whose session has died: the next command removes them. */
  readonly orphaned: number;
  /** Those past the time they may exist: the next command removes them. */
  readonly expired: number;
  /** Those that were kept on purpose. */
  readonly kept: number;
  /** Those of other users and other hosts on the same engine, which acode never touches. */
  readonly foreign: number;
}

/** Details of one sandbox. */
export interface SandboxDetails extends SandboxInfo {
  /** The engine’s id of its image. */
  readonly imageId: string;
  /** When it was started, in ISO 8601. */
  readonly startedAt: string;
  /** The user inside, as `uid:gid`. */
  readonly user: string;
  /** The limits the engine holds it to. */
  readonly limits: {
    /** Memory, in bytes. */
    readonly memoryBytes: number;
    /** CPUs; 0.5 is half of one. */
    readonly cpus: number;
    /** Processes and threads at once. */
    readonly pids: number;
  };
  /** Its network: `none`, or the name of one. */
  readonly network: string;
  /** What of the host is mounted in it. */
  readonly mounts: readonly {
    /** The path on the host. */
    readonly source: string;
    /** The path inside. */
    readonly target: string;
    /** Whether it cannot be written from inside. */
    readonly readOnly: boolean;
  }[];
}

/** Whether a level can be had on this host, found out by doing what it needs. */
export interface LevelStatus {
  /** The level. */
  readonly level: Level;
  /** `unknown`: it did not answer in time, which is never a reason to use a weaker one. */
  readonly state: 'available' | 'unavailable' | 'unknown';
  /** What makes its sandboxes, such as the engine’s runtime. */
  readonly by: string;
  /** Why not, or what a reader should know. */
  readonly reason?: string;
  /** What to do about it, as a sentence, where the reason does not say it. */
  readonly remedy?: string;
}

/** What `Acode.status` reports. */
export interface Status {
  /** Whether a command that asks for nothing special would run. */
  readonly available: boolean;
  /** Why not, where `available` is false. */
  readonly unavailableReason?: string;
  /** What to do about it, where `available` is false. */
  readonly hint?: string;
  /** The container engine; absent if none answers. */
  readonly engine?: {
    /** The path of its socket. */
    readonly socket: string;
    /** How the socket was found. */
    readonly source: string;
    /** Its version, such as `28.0.1`. */
    readonly version: string;
    /** The newest version of its API. */
    readonly apiVersion: string;
    /** The operating system it runs on. */
    readonly operatingSystem: string;
    /** CPUs of its host. */
    readonly cpus: number;
    /** Memory of its host, in bytes. */
    readonly memoryBytes: number;
    /** The OCI runtimes that it knows, by name. */
    readonly runtimes: readonly string[];
    /** The runtime it uses if none is named. */
    readonly defaultRuntime: string;
    /** The version of control groups: `1` or `2`. */
    readonly cgroupVersion: string;
    /** The security options it reports, such as `name=seccomp`. */
    readonly securityOptions: readonly string[];
  };
  /** How many sandboxes there are, by owner. */
  readonly sandboxes: SandboxCounts;
  /** The level at which it would run, by every layer of configuration; null where it would not. */
  readonly level: Level | null;
  /** Every level, strongest first. */
  readonly levels: readonly LevelStatus[];
  /** The image of a command that names none. */
  readonly defaultImage: string;
  /** This user’s volumes for caches of package managers that there are on the engine. */
  readonly cacheVolumes: readonly string[];
  /** The workspace, as an absolute path; null if there is none here. */
  readonly workspace: string | null;
  /** What is wrong with configuration files, so that no command runs; absent where nothing is. */
  readonly configuration?: readonly ConfigProblem[];
}

/** What `Acode.cleanup` should remove. Without options: orphans, and this user’s sandboxes that have ended. */
export interface CleanupOptions {
  /** Removes this user’s running and kept sandboxes too, but not those of another session that lives. */
  force?: boolean;
  /** Does not spare this user’s other sessions that live. */
  allSessions?: boolean;
  /** Removes volumes too that are kept from one sandbox to the next, such as caches. */
  volumes?: boolean;
  /** Removes nothing and reports what would be. */
  dryRun?: boolean;
  /** Cancels the cleanup; what it has already removed remains removed. */
  signal?: AbortSignal;
}

/** What `Acode.cleanup` did. */
export interface CleanupReport {
  /** Sandboxes that were removed; with `dryRun`, those that would be. */
  readonly removed: readonly SandboxInfo[];
  /** Sandboxes that could not be removed. */
  readonly failed: readonly {
    /** The sandbox. */
    readonly sandbox: SandboxInfo;
    /** Why it could not be removed. */
    readonly reason: string;
  }[];
  /** What was left alone, because it has not ended. */
  readonly kept: readonly SandboxInfo[];
  /** The same for networks and volumes. */
  readonly belongings: {
    /** Networks and volumes that were removed; with `dryRun`, those that would be. */
    readonly removed: readonly EngineResource[];
    /** Networks and volumes that could not be removed. */
    readonly failed: readonly {
      /** The network or volume. */
      readonly belonging: EngineResource;
      /** Why it could not be removed. */
      readonly reason: string;
    }[];
    /** Networks and volumes that were left alone. */
    readonly kept: readonly EngineResource[];
  };
  /** Forks that had expired and were removed; with `dryRun`, those that would be. */
  readonly forks: readonly ForkInfo[];
  /** Whether nothing was really removed. */
  readonly dryRun: boolean;
}

/** What `Acode.uninstall` should do. Without options it removes nothing and reports what there is. */
export interface UninstallOptions {
  /** Removes everything that is reported, except for the audit log, the user’s configuration and forks that have changes. */
  purge?: boolean;
  /** With `purge`: removes the audit log and its keys too. */
  audit?: boolean;
  /** With `purge`: removes the user’s configuration too. */
  config?: boolean;
  /** With `purge`: removes forks that have changes too. */
  forks?: boolean;
  /** Also removes sandboxes of running sessions and of this user’s other hosts, and continues without an engine. */
  force?: boolean;
  /** Cancels it; what it has already removed remains removed. */
  signal?: AbortSignal;
}

/** A directory of acode’s own. */
export interface OwnDirectory {
  /** What it holds. */
  readonly what: 'config' | 'state' | 'runtime';
  /** Its absolute path. */
  readonly path: string;
  /** How many files are in it. */
  readonly files: number;
  /** Their size in all, in bytes. */
  readonly bytes: number;
}

/** A thing of this user’s on the engine that another host made, or this one before its last restart. */
export interface Remote {
  /** A container, network or volume. */
  readonly kind: 'container' | 'network' | 'volume';
  /** Its name on the engine. */
  readonly name: string;
}

/** Something that `purge` keeps unless `audit` or `config` asks for it. */
export interface SparedTrace {
  /** The audit log, the user’s configuration, or the forks, some of which have changes. */
  readonly what: 'audit' | 'config' | 'forks';
  /** Its absolute path. */
  readonly path: string;
}

/** Every trace of acode, and whether it was removed. */
export interface UninstallReport {
  /** What is, or was, on the engine; null where there is none to ask. */
  readonly engine: CleanupReport | null;
  /** Why the engine could not be asked. */
  readonly engineProblem: string | null;
  /** Sessions of this user that live. */
  readonly sessions: number;
  /** The directories of acode’s own that exist, or existed. */
  readonly directories: readonly OwnDirectory[];
  /** What is still in those directories after they were cleared, because acode did not put it there. */
  readonly left: readonly string[];
  /** What `purge` kept because it was not asked for: the audit log, the user’s configuration, forks with changes. Empty without `purge`. */
  readonly spared: readonly SparedTrace[];
  /** What other hosts have on the engine, and may still use: removed only with `force`. */
  readonly elsewhere: readonly Remote[];
  /** Images that acode pulled or built here; one that a container of others uses is kept. Null without an engine to ask. */
  readonly images: ImagePruneReport | null;
  /** Copies of projects that builds left behind because they were killed. */
  readonly copies: readonly string[];
  /** Directories of a fleet’s worker and of the E2B server, which may run: never removed here. */
  readonly services: readonly string[];
  /** Whether all of it was removed, except what is `spared`. */
  readonly purged: boolean;
}

/** How long one sandbox took to be ready. */
export interface KpiEvent {
  /** The phase that was measured. */
  readonly phase: 'sandbox_provision';
  /** The sandbox’s UUID. */
  readonly sandboxId: string;
  /** How long it took to be ready, in milliseconds. */
  readonly sandbox_provisioning_ms: number;
  /** When it was ready, in ISO 8601. */
  readonly at: string;
  /** Whether it came from the warm pool; then the time is that of the check and the hand-over. */
  readonly warm: boolean;
}

/** Key figures of a host since it was opened. */
export interface KpiReport {
  /** The 95th percentile of how long sandboxes took to be ready; null before the first. */
  readonly sandbox_provision_latency_ms: number | null;
  /** The median of how long sandboxes took to be ready; null before the first. */
  readonly sandbox_provision_median_ms: number | null;
  /** One for each sandbox, the last thousand. */
  readonly kpi_events: readonly KpiEvent[];
}

/** The rules behind a policy: what may be asked for here, and who set that. */
export interface PolicyRules {
  /** Whether a run may ask for the network bridge. */
  readonly bridge: Sourced<boolean>;
  /** The networks of the engine that a run may ask for by name. */
  readonly networks: Sourced<readonly string[]>;
  /** The hosts and presets of the user’s own list, which a model may ask for. */
  readonly hosts: Sourced<readonly string[]>;
  /** The risks that need level docker or stronger, by each layer that lists some. */
  readonly requireFor: readonly Sourced<readonly Risk[]>[];
  /** Commands that are riskier than they look, by each layer that lists some. */
  readonly riskRules: readonly Sourced<
    readonly {
      /** The text of a command, with `*` for anything. */
      readonly match: string;
      /** The risk that it has at least. */
      readonly risk: Risk;
    }[]
  >[];
  /** The strictest ceiling of each limit, and of the time of a command in milliseconds. */
  readonly ceilings: { readonly [Name in keyof Limits | 'timeoutMs']: Sourced<number> };
}

/** What a command would come to, without running it. */
export interface Explanation {
  /** The command that was explained. */
  readonly command: Command;
  /** The effective policy: every value with the layer that set it. */
  readonly policy: EffectivePolicy;
  /** What else may be asked for here, and who set that. */
  readonly rules: PolicyRules;
  /** The isolation level it would run at. */
  readonly level: Level;
  /** The plan of its sandbox. */
  readonly spec: SandboxSpec;
  /**
   * Variables that the command gets without `env`. Always `ACODE_SANDBOX`, which is `1`, and `ACODE_TASK_ID`, the request’s
   * `taskId` or `run`, except in an image without a shell. Without a network: those that make package managers work offline, such as
   * `{ npm_config_offline: 'true' }`. With `sandbox.network.ca_file`: those that name the CA bundle. And the request’s
   * `envDefaults`. What `env` sets is left out.
   */
  readonly environment: Readonly<Record<string, string>>;
  /** Files and directories of the workspace that are present and empty inside, each with the rule that says so. */
  readonly masked: readonly MaskedPath[];
  /** The exact request the engine would get. */
  readonly engineRequest: unknown;
  /** Whether a sandbox with this very plan waits now, so that the command would begin at once. */
  readonly warm: boolean;
  /** Why it does, or does not. */
  readonly warmReason: string;
  /** `no pool` where this host has no pool at all; absent otherwise. */
  readonly warmCause?: 'no pool';
  /** What a reader should know besides. */
  readonly notes: readonly string[];
}

/** Whether acode may keep a background process for a workspace: `sandbox.serve`, resolved from all layers. */
export interface ServeSetting {
  /** `auto` starts it after the second command within ten minutes, `always` after the first. */
  readonly value: 'auto' | 'never' | 'always';
  /** The file and line that set it; null for the default. */
  readonly setBy: string | null;
  /**
   * Variables of the caller’s environment that credentials are read from; absent for none. A background process has another
   * environment, and runs no command then.
   */
  readonly variables?: readonly string[];
}

/** The warm pool of a host, and what a command with default options would find in it. */
export interface WarmPool {
  /** Warm sandboxes, by image. At levels without images the reference is empty. */
  readonly sandboxes: readonly {
    /** The image they were made of. */
    readonly image: string;
    /** How many there are. */
    readonly count: number;
    /** The engine’s ids of their containers. */
    readonly ids: readonly string[];
  }[];
  /** `making`: the first sandbox is being created. `none`: none can be created now; `reason` says why. */
  readonly state: 'ready' | 'making' | 'none';
  /** What prevents warm sandboxes, if the caller can do something about it. */
  readonly cause: 'no image' | 'caches' | null;
  /** Why the state is what it is. */
  readonly reason: string;
  /** The image of a command with default options; null if it would be refused, or its level has no images. */
  readonly image: string | null;
}

/** A run whose output was kept. */
export interface SavedLogInfo {
  /** The name of the sandbox that ran it. */
  readonly name: string;
  /** The sandbox’s UUID. */
  readonly sandboxId: string;
  /** The command as one line; secrets are masked. */
  readonly command: string;
  /** When it ended, in ISO 8601. */
  readonly endedAt: string;
  /** The exit status; null if acode killed it. */
  readonly exitCode: number | null;
  /** The correlation id of the command; absent if an earlier version of acode saved it. */
  readonly correlationId?: string | undefined;
}

/** The kept output of a past run. */
export interface SavedLog extends SavedLogInfo {
  /** What it printed to standard output, up to the output limit. */
  readonly stdout: string;
  /** What it printed to standard error, up to the output limit. */
  readonly stderr: string;
  /** Bytes that were not kept. */
  readonly dropped: {
    /** Bytes of standard output that were not kept. */
    readonly stdout: number;
    /** Bytes of standard error that were not kept. */
    readonly stderr: number;
  };
}

/** A command that runs now, and what it has printed so far. */
export interface RunningLog {
  /** The sandbox’s UUID. */
  readonly sandboxId: string;
  /** The command as one line; secrets are masked. */
  readonly command: string;
  /** When it was started, in ISO 8601. */
  readonly startedAt: string;
  /** What it has printed to standard output: the newest mebibyte. */
  readonly stdout: string;
  /** What it has printed to standard error: the newest mebibyte. */
  readonly stderr: string;
  /** Bytes before that. */
  readonly dropped: {
    /** Bytes of standard output before that. */
    readonly stdout: number;
    /** Bytes of standard error before that. */
    readonly stderr: number;
  };
}

/** What happens in a sandbox that is followed. Events of commands that run at the same time are told apart by `command`. */
export type LogEvent =
  | {
      /** Nothing runs in the sandbox yet; what comes is followed. */
      readonly kind: 'waiting';
      /** The sandbox’s UUID. */
      readonly sandboxId: string;
    }
  | {
      /** A command that is followed from its first byte on. */
      readonly kind: 'began';
      /** The sandbox’s UUID. */
      readonly sandboxId: string;
      /** The command as one line; secrets are masked. */
      readonly command: string;
    }
  | {
      /** Output of a command. */
      readonly kind: 'stdout' | 'stderr';
      /** The command as one line; secrets are masked. */
      readonly command: string;
      /** The bytes. */
      readonly data: Uint8Array;
    }
  | {
      /** The end of a command. */
      readonly kind: 'ended';
      /** The command as one line; secrets are masked. */
      readonly command: string;
      /** The exit status; null if acode killed it, or if its process does not answer any more. */
      readonly exitCode: number | null;
      /** The reason, if acode does not know how it ended. */
      readonly error?: string;
      /** Bytes beyond the output limit, of both streams. */
      readonly dropped: number;
    };
