// Host context: everything the steps of the pipe share on one opened host, and the plan they pass on. Composed in
// compose.ts.

import type { AuditLog } from '../records/audit/log.ts';
import type { Directories } from '../lifecycle/directories.ts';
import type { LoadedConfig } from '../policy/config/check.ts';
import type { LoadedMachine, Settings } from '../policy/config/load.ts';
import type { ArtifactRequest, Command, RunRequest } from '../contract/command.ts';
import type { EffectivePolicy, UserId } from '../contract/policy.ts';
import type { Clock } from '../contract/ports.ts';
import type { ProfileName } from '../contract/profiles.ts';
import type { ArtifactReport } from '../contract/result.ts';
import type { ContinuedScans, RestPeriod } from '../contract/scan.ts';
import type { ImageFacts, SandboxSpec } from '../contract/spec.ts';
import type { Level } from '../contract/levels.ts';
import type { Backend, Capability, EngineBackend, WaitingSandbox } from '../isolation/backend.ts';
import type { Pool } from '../isolation/pool/pool.ts';
import type { MemoryShare, Slots } from '../lifecycle/slots.ts';
import type { Session } from '../lifecycle/session.ts';
import type { SavedLogs } from '../records/saved.ts';
import type { Mode } from '../policy/layers.ts';
import type { TrustStore } from '../policy/trust.ts';
import type { Bus, Operation, Telemetry } from '../records/telemetry/operation.ts';
import type { ContainerReports } from '../records/telemetry/containers.ts';
import type { AuditHead } from '../contract/audit.ts';
import type { Capture } from './output/capture.ts';

/** A sandbox that stays until its artifacts were taken, as a run uses one. */
export interface ArtifactSandbox extends Pick<WaitingSandbox, 'id' | 'ports' | 'execute'> {
  /** Takes everything that was asked for, each for itself: one that fails says so, and the others come. */
  take(): Promise<ArtifactReport[]>;
}

/** Makes a waiting sandbox one whose artifacts can be taken after its command. */
export type WithArtifacts = (
  sandbox: WaitingSandbox,
  wanted: readonly ArtifactRequest[],
  around: { readonly spec: SandboxSpec; readonly clock: Clock; readonly signal: AbortSignal },
) => Promise<ArtifactSandbox>;

/** Where the images of runs come from. */
export interface ImageSource {
  /** The image of a run: what the engine has, or what is pulled now. */
  forRun(
    wanted: WantedImage,
    signal: AbortSignal,
  ): Promise<{ readonly image: ImageFacts; readonly notes: readonly string[] }>;
}

/** An image that a run wants. */
export interface WantedImage {
  readonly policy: Pick<EffectivePolicy, 'image' | 'pull' | 'offline' | 'mode' | 'imageTrust' | 'imageNaming'>;
  readonly correlationId: string;
  /** Whether it is only to be said what would be done. */
  readonly preview: boolean;
  /** What the engine has by that name, where it was asked already. */
  readonly found?: Promise<ImageFacts | null>;
}

/** One opened host. */
export interface Host {
  /** The user’s own configuration. */
  readonly config: LoadedConfig;
  /** The machine’s policy; null where there is none. */
  readonly machine: LoadedMachine | null;
  /** What the environment asks for. */
  readonly environmentMode: Mode | null;
  readonly trust: TrustStore;
  readonly settings: Settings;
  readonly directories: Directories;
  /** The user of this process. */
  readonly uid: number;
  /** The identity of this machine, as labels carry it. */
  readonly identity: string;
  /** The profile of requests that name none. */
  readonly profile: ProfileName;
  /** The user sandboxes run as. */
  readonly caller: UserId;
  /** The directory the caller named, or stood in. */
  readonly workspace: string;
  readonly workspaceNamed: boolean;
  /** Where what runs is written down before it runs. */
  readonly audit: Pick<AuditLog, 'append' | 'fingerprint'>;
  readonly telemetry: Telemetry;
  readonly bus: Bus;
  readonly reports: ContainerReports;
  readonly session: Session;
  readonly images: ImageSource;
  readonly withArtifacts: WithArtifacts;
  readonly slots: Slots;
  /** The memory that all sandboxes of the user share. */
  readonly memory: MemoryShare;
  /** The sandboxes that wait for commands; null where none are kept. */
  readonly pool: Pool | null;
  /** What was kept of past runs, to be read; whatever becomes of this one. */
  readonly pastLogs: Pick<SavedLogs, 'list' | 'find'>;
  /** Where the output of this host’s runs is kept; null where the user wants none kept. */
  readonly savedLogs: SavedLogs | null;
  /** Where a scan goes on that its run had no time for. */
  readonly scans: ContinuedScans;
  /** Remembers work that may outlive its caller, so that `close` waits for it. */
  keep(work: Promise<unknown>): void;
  /** Aborted by `close`. */
  readonly closing: AbortSignal;
  /**
   * The level without an engine that the doctor attacks through this host, whatever the policy requires of commands: it runs
   * programs of acode’s own. Set by attack.ts alone; nothing a caller or a file says can name one.
   */
  readonly attacked?: Level;
  /** The engine that somebody named; null where it is looked for. */
  readonly engineNamed: string | null;
  /** The engine’s backend, connected at first use. */
  engine(): Promise<EngineBackend>;
  /** Makes this session the owner of what it makes; before its first sandbox, and once. */
  claim(): Promise<void>;
  /** What the engine’s backend can do, asked once. */
  capability(): Promise<Capability>;
  /** The backend for a level; null where this host has none for it. */
  backend(level: Level): Promise<Backend | null>;
  /** What the levels that need no engine can do here, strongest first. */
  localCapabilities(): Promise<Capability[]>;
  /** What one of them can do; null where this host has no such level. */
  localCapability(level: Level): Promise<Capability | null>;
}

/** A host with the way to close it. */
export interface OpenHost extends Host {
  close(): Promise<void>;
}

/** How a further host is opened; without a socket, on no engine in particular. */
export type OpenFurther = (options: {
  readonly workspace: string;
  readonly socket: string | null;
}) => Promise<OpenHost>;

/** Everything that was decided before a sandbox exists. */
export interface Planned {
  readonly policy: EffectivePolicy;
  readonly spec: SandboxSpec;
  readonly backend: Backend;
  /** Hash of the request the backend was made, where it was made ahead. */
  readonly requestHash?: string;
  /** What a reader of the plan should know besides. */
  readonly notes: readonly string[];
  /** The memory of the machine it is made on. */
  readonly machineBytes: number;
  /** What only an explanation says: it changes nothing that a command was promised. */
  readonly asides?: readonly string[];
}

/** What a run is made of once its sandbox waits. */
export interface RunningParts {
  readonly host: Host;
  readonly operation: Operation;
  readonly planned: Planned;
  readonly sandbox: Pick<WaitingSandbox, 'id' | 'ports' | 'execute'>;
  /** What becomes of the sandbox when the command has ended: begun before the result is looked at, and never awaited for it. */
  readonly dispose: () => Promise<void>;
  /** Takes what was asked for out of the sandbox, before it goes. */
  readonly take?: () => Promise<ArtifactReport[]>;
  /** Set where the sandbox goes on without the command. */
  readonly stays?: boolean;
  /** Whether it waited before the command was known. */
  readonly warm: boolean;
  /** The record that says what was about to run. */
  readonly intent: AuditHead;
  readonly signal: AbortSignal;
  /** Gives the run up; `signal` follows it. */
  readonly stop: AbortController;
  readonly command: Command;
  readonly request: RunRequest;
  readonly as?: 'exec';
  /** Whether the caller writes to standard input itself. */
  readonly stdinStaysOpen: boolean;
  readonly timings: { readonly queueMs: number; readonly obtainMs: number };
  /** When nothing of the sandbox existed yet, by the clock of the kernel: from here on, changes are taken for the run’s. */
  readonly sinceMs: number;
  /** When it waited for the command and nothing of it ran. */
  readonly rest?: RestPeriod | undefined;
  readonly captures: { readonly stdout: Capture; readonly stderr: Capture };
  readonly cwd: string;
  readonly nonce: string;
}
