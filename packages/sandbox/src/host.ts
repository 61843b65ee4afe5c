// Everything the steps of the pipe share on one opened host: composed once, in compose.ts.

import type { AuditLog } from './audit/log.ts';
import type { Directories } from './config/directories.ts';
import type { LoadedConfig } from './config/check.ts';
import type { LoadedMachine } from './config/machine.ts';
import type { Settings } from './config/settings.ts';
import type { UserId } from './contract/policy.ts';
import type { ProfileName } from './contract/profiles.ts';
import type { ContinuedScans } from './contract/scan.ts';
import type { Level } from './contract/levels.ts';
import type { Backend, Capability, EngineBackend } from './isolation/backend.ts';
import type { Pool } from './isolation/pool.ts';
import type { MemoryShare } from './lifecycle/memory-share.ts';
import type { Session } from './lifecycle/session.ts';
import type { Slots } from './lifecycle/slots.ts';
import type { SavedLogs } from './output/saved.ts';
import type { Mode } from './policy/layers.ts';
import type { TrustStore } from './policy/trust.ts';
import type { Bus } from './telemetry/bus.ts';
import type { ContainerReports } from './telemetry/containers.ts';
import type { Telemetry } from './telemetry/operation.ts';
import type { Pulls } from './pulling.ts';

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
  /** What pulling images needs. */
  readonly pulls: Pulls;
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
