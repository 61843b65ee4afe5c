// What the host says about itself and its sandboxes.

import type { Command } from './command.ts';
import type { ImagePruneReport } from './images.ts';
import type { Level } from './levels.ts';
import type { EffectivePolicy } from './policy.ts';
import type { SandboxSpec } from './spec.ts';

/** How many sandboxes are kept waiting. Each of them still runs one command and is gone. */
export interface PoolOptions {
  /** Kept for the plan that was asked for last, however long nobody asks; 1 unless told otherwise. */
  min?: number;
  /** Kept at most, for all plans together; 4 unless told otherwise, at most 64. */
  max?: number;
  /** How long one waits for nobody before it is removed, in milliseconds; five minutes unless told otherwise. */
  idleMs?: number;
}

/** The state of a sandbox, as the engine reports it now. */
export type SandboxState = 'created' | 'running' | 'paused' | 'restarting' | 'removing' | 'exited' | 'dead' | 'unknown';

/** One sandbox that exists. */
export interface SandboxInfo {
  readonly sandboxId: string;
  readonly containerId: string;
  readonly name: string;
  readonly image: string;
  readonly state: SandboxState;
  /** Set where it waits in the pool of the host that was asked: it has run nothing yet. */
  readonly waiting?: boolean;
  readonly createdAt: string;
  /** When it goes, where it was kept on purpose and this user and host know until when. */
  readonly expiresAt?: string;
  readonly sessionId: string;
  readonly taskId: string;
  readonly level: Level;
  readonly labels: Readonly<Record<string, string>>;
}

/** What is on the engine for sandboxes besides themselves. A volume’s id is its name. */
export interface EngineResource {
  readonly kind: 'network' | 'volume';
  readonly id: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** Sandboxes on the engine, by what is known about their owners. */
export interface SandboxCounts {
  readonly running: number;
  readonly total: number;
  /** Those of a session of this user that lives, or may live. */
  readonly owned: number;
  /** Those whose session is gone: the next command removes them. */
  readonly orphaned: number;
  /** Those past the time they may exist: the next command removes them. */
  readonly expired: number;
  /** Those that were kept on purpose. */
  readonly kept: number;
  /** Those of other users and other hosts on the same engine, which acode never touches. */
  readonly foreign: number;
}

/** One sandbox, looked at closely. */
export interface SandboxDetails extends SandboxInfo {
  readonly imageId: string;
  readonly startedAt: string;
  readonly user: string;
  readonly limits: { readonly memoryBytes: number; readonly cpus: number; readonly pids: number };
  readonly network: string;
  readonly mounts: readonly { readonly source: string; readonly target: string; readonly readOnly: boolean }[];
}

/** Whether a level can be had on this host, found out by doing what it needs. */
export interface LevelStatus {
  readonly level: Level;
  /** `unknown`: it did not answer in time, which is never a reason to use a weaker one. */
  readonly state: 'available' | 'unavailable' | 'unknown';
  /** What makes its sandboxes, such as the engine’s runtime. */
  readonly by: string;
  /** Why not, or what a reader should know; and what to do about it. */
  readonly reason?: string;
}

/** What `Acode.status` reports. */
export interface Status {
  /** Whether a command that asks for nothing special would run. */
  readonly available: boolean;
  /** Why not, where `available` is false. */
  readonly unavailableReason?: string;
  /** What to do about it, where `available` is false. */
  readonly hint?: string;
  readonly engine?: {
    readonly socket: string;
    /** How the socket was found. */
    readonly source: string;
    readonly version: string;
    readonly apiVersion: string;
    readonly operatingSystem: string;
    readonly cpus: number;
    readonly memoryBytes: number;
    readonly runtimes: readonly string[];
    readonly defaultRuntime: string;
    readonly cgroupVersion: string;
    readonly securityOptions: readonly string[];
  };
  readonly sandboxes: SandboxCounts;
  /** The level at which it would run, by every layer of configuration; null where it would not. */
  readonly level: Level | null;
  /** Every level, strongest first. */
  readonly levels: readonly LevelStatus[];
  readonly defaultImage: string;
  /** This user’s volumes for caches of package managers that there are on the engine. */
  readonly cacheVolumes: readonly string[];
  readonly workspace: string | null;
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
  signal?: AbortSignal;
}

/** What `Acode.cleanup` did. */
export interface CleanupReport {
  readonly removed: readonly SandboxInfo[];
  readonly failed: readonly { readonly sandbox: SandboxInfo; readonly reason: string }[];
  /** What was left alone, because it has not ended. */
  readonly kept: readonly SandboxInfo[];
  /** The same for networks and volumes. */
  readonly belongings: {
    readonly removed: readonly EngineResource[];
    readonly failed: readonly { readonly belonging: EngineResource; readonly reason: string }[];
    readonly kept: readonly EngineResource[];
  };
  readonly dryRun: boolean;
}

/** What `Acode.uninstall` should do. Without options it removes nothing and reports what there is. */
export interface UninstallOptions {
  /** Removes everything that is reported, except for the audit log and the user’s configuration. */
  purge?: boolean;
  /** With `purge`: removes the audit log and its keys too. */
  audit?: boolean;
  /** With `purge`: removes the user’s configuration too. */
  config?: boolean;
  /** Does not spare sessions that live nor what other hosts of this user made, and goes on without an engine. */
  force?: boolean;
  signal?: AbortSignal;
}

/** A directory of acode’s own. */
export interface OwnDirectory {
  readonly what: 'config' | 'state' | 'runtime';
  readonly path: string;
  readonly files: number;
  readonly bytes: number;
}

/** A thing of this user’s on the engine that another host made, or this one before its last restart. */
export interface Remote {
  readonly kind: 'container' | 'network' | 'volume';
  readonly name: string;
}

/** Something that `purge` keeps unless `audit` or `config` asks for it. */
export interface SparedTrace {
  readonly what: 'audit' | 'config';
  readonly path: string;
}

/** Every trace of acode, and whether it is gone. */
export interface UninstallReport {
  /** What is, or was, on the engine; null where there is none to ask. */
  readonly engine: CleanupReport | null;
  /** Why the engine could not be asked. */
  readonly engineProblem: string | null;
  /** Sessions of this user that live. */
  readonly sessions: number;
  readonly directories: readonly OwnDirectory[];
  /** What is still in those directories after they were cleared, because acode did not put it there. */
  readonly left: readonly string[];
  /** What `purge` kept because it was not asked for: the audit log, the user’s configuration. Empty without `purge`. */
  readonly spared: readonly SparedTrace[];
  /** What other hosts have on the engine, and may still use: removed only with `force`. */
  readonly elsewhere: readonly Remote[];
  /** Images that acode pulled or built here; one that a container of others uses is kept. Null without an engine to ask. */
  readonly images: ImagePruneReport | null;
  /** Copies of projects that builds left behind because they were killed. */
  readonly copies: readonly string[];
  /** Whether all of it was removed, except what is `spared`. */
  readonly purged: boolean;
}

/** How long one sandbox took to be ready. */
export interface KpiEvent {
  readonly phase: 'sandbox_provision';
  readonly sandboxId: string;
  readonly sandbox_provisioning_ms: number;
  readonly at: string;
}

/** Key figures of a host since it was opened. */
export interface KpiReport {
  /** The 95th percentile of how long sandboxes took to be ready; null before the first. */
  readonly sandbox_provision_latency_ms: number | null;
  readonly sandbox_provision_median_ms: number | null;
  /** One for each sandbox, the last thousand. */
  readonly kpi_events: readonly KpiEvent[];
}

/** What a command would come to, without running it. */
export interface Explanation {
  readonly command: Command;
  readonly policy: EffectivePolicy;
  readonly level: Level;
  readonly spec: SandboxSpec;
  /**
   * Variables that the command gets without `env`. Always `ACODE_SANDBOX`, which is `1`, and `ACODE_TASK_ID`, the request’s
   * `taskId` or `run`, except in an image without a shell. Without a network: those that make package managers work offline, such as
   * `{ npm_config_offline: 'true' }`. With `sandbox.network.ca_file`: those that name the CA bundle. And the request’s
   * `envDefaults`. What `env` sets is left out.
   */
  readonly environment: Readonly<Record<string, string>>;
  /** The exact request the engine would get. */
  readonly engineRequest: unknown;
  /** Whether a sandbox with this very plan waits now, so that the command would begin at once. */
  readonly warm: boolean;
  /** Why it does, or does not. */
  readonly warmReason: string;
  /** What a reader should know besides. */
  readonly notes: readonly string[];
}

/** Whether acode may keep a background process for a workspace: `sandbox.serve`, resolved from all layers. */
export interface ServeSetting {
  /** `auto` starts it after the second command within ten minutes, `always` after the first. */
  readonly value: 'auto' | 'never' | 'always';
  /** The file and line that set it; null for the default. */
  readonly setBy: string | null;
}

/** The warm pool of a host, and what a command with default options would find in it. */
export interface WarmPool {
  /** Warm sandboxes, by image. At levels without images the reference is empty. */
  readonly sandboxes: readonly { readonly image: string; readonly count: number }[];
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
  readonly name: string;
  readonly sandboxId: string;
  readonly command: string;
  readonly endedAt: string;
  readonly exitCode: number | null;
}

/** The kept output of a past run. */
export interface SavedLog extends SavedLogInfo {
  readonly stdout: string;
  readonly stderr: string;
  /** Bytes that were not kept. */
  readonly dropped: { readonly stdout: number; readonly stderr: number };
}
