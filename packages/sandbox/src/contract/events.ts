// Events that a host program can listen to.

import type { RuleId } from './denials.ts';
import type { SecurityViolation } from './error-table.ts';
import type { PullProgress } from './images.ts';
import type { BackendName, Level } from './levels.ts';
import type { ChangeCounts, LimitName, RiskyChange } from './result.ts';

/**
 * Why something of ours was removed.
 *
 * - `finished`: its own session was done with it
 * - `orphaned`: its session had died, and another session removed it
 * - `expired`: it was past the time it may exist
 * - `asked`: the user ran a cleanup
 * - `reaped`: its session had died, and that session’s reaper removed it; the next session reports it
 */
export type RemovalReason = 'finished' | 'orphaned' | 'expired' | 'asked' | 'reaped';

/** Every event, by type. */
export interface AcodeEvents {
  /** A sandbox is ready for its command. */
  SandboxProvisioned: {
    /** The sandbox’s UUID. */
    sandboxId: string;
    /** The backend that made it, such as `docker`. */
    backend: BackendName;
    /** `reduced` where the level is no security boundary. */
    isolationLevel: 'strict' | 'reduced';
    /** The isolation level. */
    level: Level;
  };
  /** A sandbox has ended and is removed. */
  SandboxTeardown: {
    /** The sandbox’s UUID. */
    sandboxId: string;
    /** The backend that made it. */
    backend: BackendName;
    /** Why it ended, as a phrase. */
    reason: string;
  };
  /** The engine has created a container. */
  ContainerCreated: {
    /** The sandbox’s UUID. */
    sandboxId: string;
    /** The engine’s id of the container. */
    containerId: string;
    /** The container’s name. */
    name: string;
    /** How long the engine took, in milliseconds. */
    durationMs: number;
  };
  /** The engine has started a container. */
  ContainerStarted: {
    /** The sandbox’s UUID. */
    sandboxId: string;
    /** The engine’s id of the container. */
    containerId: string;
    /** The container’s name. */
    name: string;
  };
  /** The first process of a container has ended. */
  ContainerExited: {
    /** The sandbox’s UUID. */
    sandboxId: string;
    /** The engine’s id of the container. */
    containerId: string;
    /** The exit status; null if acode killed it. */
    exitCode: number | null;
  };
  /** A container was removed. */
  ContainerRemoved: {
    /** The sandbox’s UUID. */
    sandboxId: string;
    /** The engine’s id of the container. */
    containerId: string;
    /** Why it was removed. */
    reason: RemovalReason;
    /** How long the removal took, in milliseconds; absent if another process did it. */
    durationMs?: number;
  };
  /** A network that acode created was removed. */
  NetworkRemoved: {
    /** The engine’s id of the network. */
    networkId: string;
    /** The network’s name. */
    name: string;
    /** Why it was removed. */
    reason: RemovalReason;
  };
  /** A volume that acode created was removed. */
  VolumeRemoved: {
    /** The volume’s name, which is also its id. */
    name: string;
    /** Why it was removed. */
    reason: RemovalReason;
  };
  /** An image is being pulled: at most about ten times a second, and once at the end. */
  ImagePullProgress: PullProgress;
  /** An image was pulled. */
  ImagePulled: {
    /** The image as it was asked for, such as `node:20-alpine`. */
    reference: string;
    /** The engine’s id of the image. */
    id: string;
    /** The digest in its registry; the id if it has none. */
    digest: string;
    /** The digest that the same reference had before, if it was another: the tag has moved. */
    previousDigest?: string;
  };
  /** A command hit a limit. */
  LimitExceeded: {
    /** The sandbox’s UUID. */
    sandboxId: string;
    /** The limit, by name. */
    limit: LimitName;
  };
  /** A command was denied the network. */
  NetworkDenied: {
    /** The sandbox’s UUID. */
    sandboxId: string;
    /** The id of the rule that denied it. */
    rule: RuleId;
    /** The line of output that shows the attempt, if there is one. */
    suspected?: string;
  };
  /**
   * The background scan after a run has ended. Emitted for each run whose result has `scan: 'continuing'`, unless
   * {@link AcodeOptions.continueScan} took the scan over. `riskyChanges` has the findings that the result does not have.
   */
  WorkspaceScanned: {
    /** The sandbox’s UUID. */
    sandboxId: string;
    /** The workspace, as an absolute path. */
    workspace: string;
    /** Risky changes that the result of the run does not have. */
    riskyChanges: readonly RiskyChange[];
    /** Counts of all files that the run made or changed. */
    changed: ChangeCounts;
    /** False if not everything was scanned, such as after 60 seconds or at `close()`; `riskyChanges` then says why. */
    complete: boolean;
  };
  /** The engine’s event stream is lost: the engine was stopped, is being restarted, or crashed. */
  EngineLost: {
    /** The engine’s socket. */
    socket: string;
    /** What the connection reported. */
    reason: string;
  };
  /** A lost engine answers again. */
  EngineFound: {
    /** The engine’s socket. */
    socket: string;
    /** How long it was gone, in milliseconds. */
    lostMs: number;
  };
  /** A protection was found broken; the sandbox was removed. */
  SecurityViolation: {
    /** The sandbox’s UUID. */
    sandboxId: string;
    /** The engine’s id of the container, if there was one. */
    containerId?: string;
    /** The kind of violation. */
    violation: SecurityViolation;
    /** What was found, as a sentence. */
    detail: string;
  };
}

/** The type of an event. */
export type AcodeEventType = keyof AcodeEvents;

/** An event with the operation it belongs to. */
export type AcodeEvent<Type extends AcodeEventType = AcodeEventType> = {
  [T in AcodeEventType]: {
    /** The type of the event. */
    readonly type: T;
    /** The operation that it belongs to; the same id is in its log lines, result and audit records. */
    readonly correlationId: string;
    /** When it happened, in ISO 8601. */
    readonly at: string;
  } & Readonly<AcodeEvents[T]>;
}[Type];

/**
 * Events as they happen.
 *
 * @example
 * using _ = acode.events.on('SecurityViolation', event => alert(event.detail));
 */
export interface EventBus {
  /** Listens to one type of event until the returned subscription is disposed. */
  on<Type extends AcodeEventType>(type: Type, listener: (event: AcodeEvent<Type>) => void): Disposable;
}
