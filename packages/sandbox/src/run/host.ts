// Host context: everything that the steps of the pipeline share on one opened host, and the plan that they pass on.
// compose.ts builds it.

import type { AuditLog } from '../records/audit/log.ts';
import type { Directories } from '../lifecycle/directories.ts';
import type { LoadedConfig } from '../policy/config/check.ts';
import type { LoadedMachine, Settings } from '../policy/config/load.ts';
import type { ArtifactRequest, Command, RunRequest } from '../contract/command.ts';
import type { EgressConnection, SpentBudget } from '../contract/egress.ts';
import type { RunningNetwork } from '../contract/network-access.ts';
import type { MaskedPath } from '../contract/masks.ts';
import type { EffectivePolicy, UserId } from '../contract/policy.ts';
import type { Clock } from '../contract/ports.ts';
import type { ProfileName } from '../contract/profiles.ts';
import type { ArtifactReport, RunningCommand } from '../contract/result.ts';
import type { ContinuedScans, RestPeriod } from '../contract/scan.ts';
import type { DependencySpec, ImageFacts, SandboxSpec } from '../contract/spec.ts';
import type { Level } from '../contract/levels.ts';
import type { Backend, Capability, EngineBackend, WaitingSandbox } from '../isolation/backend.ts';
import type { EgressProxy } from '../egress/proxy/proxy.ts';
import type { EgressMounts } from '../isolation/egress.ts';
import type { Pool } from '../isolation/pool/pool.ts';
import type { Grants, TrustStore } from '../policy/trust.ts';
import type { MemoryShare } from '../lifecycle/memory-share.ts';
import type { Locks } from '../lifecycle/lock.ts';
import type { Slots } from '../lifecycle/slots.ts';
import type { Session } from '../lifecycle/session.ts';
import type { SavedLogs } from '../records/saved.ts';
import type { Mode } from '../policy/layers.ts';
import type { Bus, Operation, Telemetry, ContainerReports } from '../records/telemetry.ts';
import type { AuditHead, AuditProvision } from '../contract/audit.ts';
import type { ForkStore } from '../workspace/fork/store.ts';
import type { CommandInfo } from '../contract/sandbox.ts';
import type { Capture, Heads } from './output/capture.ts';

/** A sandbox that acode keeps after its command until its artifacts are copied out, as a run uses it. */
export interface ArtifactSandbox extends Pick<WaitingSandbox, 'id' | 'ports' | 'execute'> {
  /** Copies every requested artifact. Each one is independent: a failure is reported and does not affect the others. */
  take(): Promise<ArtifactReport[]>;
}

/** Turns a waiting sandbox into one whose artifacts can be copied out after its command. */
export type WithArtifacts = (
  sandbox: WaitingSandbox,
  wanted: readonly ArtifactRequest[],
  around: { readonly spec: SandboxSpec; readonly clock: Clock; readonly signal: AbortSignal },
) => Promise<ArtifactSandbox>;

/** A run whose output the user’s other processes may read while it goes on. */
export interface OfferedRun {
  readonly sandboxId: string;
  readonly info: CommandInfo;
  readonly running: Pick<RunningCommand, 'ports' | 'result'> & { readonly heads: Heads };
}

/** The network of a sandbox, which the user’s other processes may see and widen while it is open. */
export interface OfferedNetwork {
  readonly about: Omit<RunningNetwork, 'connections'>;
  /** The connections so far. */
  report(): Promise<readonly EgressConnection[]>;
  /** Adds what a person granted to the list; throws if it cannot be. */
  grant(granted: GrantedHost): Promise<void>;
  /** Resolves when the network has ended. */
  readonly ended: Promise<void>;
}

/** A host that a person granted. */
export interface GrantedHost {
  readonly host: string;
  readonly port: number;
  /** The entry of an allow-list that allows it. */
  readonly entry: string;
}

/** Source of the images that runs use. */
export interface ImageSource {
  /** The image of a run: the one on the engine, or one that is pulled now. */
  forRun(
    wanted: WantedImage,
    signal: AbortSignal,
  ): Promise<{ readonly image: ImageFacts; readonly notes: readonly string[] }>;
  /** The dependencies that a project image has for the workspace at a path, and what to say about them. */
  dependencies(
    of: { readonly imageId: string; readonly root: string; readonly target: string },
    signal: AbortSignal,
  ): Promise<{ readonly dependencies: readonly DependencySpec[]; readonly notes: readonly string[] }>;
}

/** An image that a run needs. */
export interface WantedImage {
  readonly policy: Pick<EffectivePolicy, 'image' | 'pull' | 'offline' | 'mode' | 'imageTrust' | 'imageNaming'>;
  readonly correlationId: string;
  /** Whether to only report what would be done. */
  readonly preview: boolean;
  /** The engine’s image of that name, if the engine was already asked. */
  readonly found?: Promise<ImageFacts | null>;
}

/** One opened host. */
export interface Host {
  /** The user’s own configuration. */
  readonly config: LoadedConfig;
  /** The machine’s policy; null if there is none. */
  readonly machine: LoadedMachine | null;
  /** The mode that the environment requests. */
  readonly environmentMode: Mode | null;
  readonly trust: TrustStore;
  readonly settings: Settings;
  readonly directories: Directories;
  /** The user of this process. */
  readonly uid: number;
  /** The identity of this machine, as labels carry it. */
  readonly identity: string;
  /** The profile of requests that do not name one. */
  readonly profile: ProfileName;
  /** The user that sandboxes run as. */
  readonly caller: UserId;
  /** The workspace that the caller named; otherwise the current directory of the process. */
  readonly workspace: string;
  readonly workspaceNamed: boolean;
  /** The audit log, which records each command before it runs. */
  readonly audit: Pick<AuditLog, 'append' | 'fingerprint'>;
  readonly telemetry: Telemetry;
  readonly bus: Bus;
  readonly reports: ContainerReports;
  readonly session: Session;
  readonly images: ImageSource;
  readonly withArtifacts: WithArtifacts;
  /** Lets the user’s other processes read the output of a run until it ends. */
  offer(run: OfferedRun): void;
  /** Lets the user’s other processes see the network of a sandbox, and grant it hosts, until it ends. */
  offerNetwork(network: OfferedNetwork): void;
  /** Hosts that a person granted for some time. */
  readonly grants: Grants;
  /** What sandboxes with an allow-list mount. */
  readonly egressMounts: EgressMounts;
  /** The proxy behind the allow-lists of this host. Loaded at first use. */
  egressProxy(): Promise<EgressProxy>;
  /** The forks of the user’s workspaces. */
  readonly forks: () => Promise<ForkStore>;
  /** Locks between the user’s processes. */
  readonly locks: Locks;
  readonly slots: Slots;
  /** The memory that all sandboxes of the user share. */
  readonly memory: MemoryShare;
  /** The warm pool; null if this host has none. */
  readonly pool: Pool | null;
  /** Read access to the saved output of past runs, also if the output of this host’s runs is not saved. */
  readonly pastLogs: Pick<SavedLogs, 'list' | 'find' | 'since'>;
  /** Storage for the output of this host’s runs; null if the user wants none saved. */
  readonly savedLogs: SavedLogs | null;
  /** Continues scans that exceeded the time budget of their run. */
  readonly scans: ContinuedScans;
  /** Tracks work that may outlive its caller, so that `close` waits for it. */
  keep(work: Promise<unknown>): void;
  /** Aborted by `close`. */
  readonly closing: AbortSignal;
  /**
   * The level without an engine that the doctor attacks through this host, regardless of the level that the policy
   * requires: the doctor only runs acode’s own programs. Only attack.ts sets it; no request and no configuration file
   * can.
   */
  readonly attacked?: Level;
  /**
   * Whether the workspace is a copy of a project that acode made without its secrets, so that nothing in it is masked. Only the
   * install command of a project image sets it; no request and no configuration file can.
   */
  readonly isCopy?: true;
  /** The engine that the caller or the configuration named; null if acode searches for one. */
  readonly engineNamed: string | null;
  /** The engine’s backend. Connects at first use. */
  engine(): Promise<EngineBackend>;
  /** Registers this session as the owner of its sandboxes; required once, before the first sandbox. */
  claim(): Promise<void>;
  /** What the engine’s backend can do. Queried once. */
  capability(): Promise<Capability>;
  /** The backend for a level; null if this host has none. */
  backend(level: Level): Promise<Backend | null>;
  /** Capabilities of the levels that need no engine, strongest first. */
  localCapabilities(): Promise<Capability[]>;
  /** The capability of one such level; null if this host does not have it. */
  localCapability(level: Level): Promise<Capability | null>;
}

/** A host that can be closed. */
export interface OpenHost extends Host {
  close(): Promise<void>;
}

/** Opens an additional host. Without a socket, it is not bound to a particular engine. */
export type OpenFurther = (options: {
  readonly workspace: string;
  readonly socket: string | null;
}) => Promise<OpenHost>;

/** Everything that is decided before the sandbox exists. */
export interface Planned {
  readonly policy: EffectivePolicy;
  readonly spec: SandboxSpec;
  readonly backend: Backend;
  /** Hash of the request that the backend received, if the sandbox was created ahead of its command. */
  readonly requestHash?: string;
  /** The id of the fork that the command writes. */
  readonly fork?: string | undefined;
  /** The masked paths of the workspace, with their rules. */
  readonly masked: readonly MaskedPath[];
  /** What layers of earlier commands take of the fork’s disk limit. */
  readonly earlierBytes?: number | undefined;
  /** Notes for the user about the plan. */
  readonly notes: readonly string[];
  /** The memory of the machine that runs the sandbox, in bytes. */
  readonly machineBytes: number;
  /** Notes that only `explain` prints: they do not affect what the command was promised. */
  readonly asides?: readonly string[];
}

/** Everything a run consists of once its sandbox is waiting. */
export interface RunningParts {
  readonly host: Host;
  readonly operation: Operation;
  readonly planned: Planned;
  readonly sandbox: Pick<WaitingSandbox, 'id' | 'ports' | 'execute'>;
  /**
   * Disposes of the sandbox after the command has ended. It starts before the result is evaluated, and the result never
   * waits for it.
   */
  readonly dispose: () => Promise<void>;
  /** Its network, if it has an allow-list. */
  readonly egress?:
    | undefined
    | {
        /** What its forwarder could not bind; null if nothing is known. */
        readonly fault: string | null;
        /** Resolves when a budget of the sandbox is used up; never where it is not. */
        readonly spent: Promise<SpentBudget>;
        /** Ends every connection, and the network. */
        cut(): Promise<void>;
        /** The connections that the command had. The network of a single-use sandbox ends with it. */
        close(): Promise<readonly EgressConnection[]>;
      };
  /** Copies the requested artifacts out of the sandbox before it is removed. */
  readonly take?: () => Promise<ArtifactReport[]>;
  /** Set if the sandbox outlives the command. */
  readonly stays?: boolean;
  /** Whether the sandbox came from the warm pool. */
  readonly warm: boolean;
  /** How long the sandbox took to be ready, if it was obtained for this command. */
  readonly provision?: AuditProvision;
  /** The audit record of the intent to run the command. */
  readonly intent: AuditHead;
  readonly signal: AbortSignal;
  /** Cancels the run; `signal` follows it. */
  readonly stop: AbortController;
  readonly command: Command;
  readonly request: RunRequest;
  readonly as?: 'exec';
  /** Whether the caller writes to standard input itself. */
  readonly stdinStaysOpen: boolean;
  readonly timings: { readonly queueMs: number; readonly obtainMs: number };
  /** A moment before the sandbox existed, by the kernel’s clock: the scan attributes later changes to the run. */
  readonly sinceMs: number;
  /** The period in which the sandbox waited for its command and nothing in it ran. */
  readonly rest?: RestPeriod | undefined;
  readonly captures: { readonly stdout: Capture; readonly stderr: Capture };
  readonly cwd: string;
  readonly nonce: string;
}
