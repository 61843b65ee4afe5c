// What happens, as events that a host program can listen to.

import type { SecurityViolation } from './errors.ts';
import type { PullProgress } from './images.ts';
import type { BackendName, Level } from './levels.ts';
import type { ChangeCounts, LimitName, RiskyChange } from './result.ts';

/**
 * Why something of ours was removed.
 *
 * - `finished`: its own session was done with it
 * - `orphaned`: its session was gone, and another one removed it
 * - `expired`: it was past the time it may exist
 * - `asked`: somebody cleaned up by hand
 * - `reaped`: its session was gone, and the session’s reaper removed it; told by the next session
 */
export type RemovalReason = 'finished' | 'orphaned' | 'expired' | 'asked' | 'reaped';

/** Every event, by type. */
export interface AcodeEvents {
  SandboxProvisioned: {
    sandboxId: string;
    backend: BackendName;
    /** `reduced` where the level is no security boundary. */
    isolationLevel: 'strict' | 'reduced';
    level: Level;
  };
  SandboxTeardown: { sandboxId: string; backend: BackendName; reason: string };
  ContainerCreated: { sandboxId: string; containerId: string; name: string; durationMs: number };
  ContainerStarted: { sandboxId: string; containerId: string; name: string };
  ContainerExited: { sandboxId: string; containerId: string; exitCode: number | null };
  ContainerRemoved: { sandboxId: string; containerId: string; reason: RemovalReason; durationMs?: number };
  NetworkRemoved: { networkId: string; name: string; reason: RemovalReason };
  VolumeRemoved: { name: string; reason: RemovalReason };
  /** An image is being pulled: at most about ten times a second, and once at the end. */
  ImagePullProgress: PullProgress;
  ImagePulled: { reference: string; id: string; digest: string; previousDigest?: string };
  LimitExceeded: { sandboxId: string; limit: LimitName };
  NetworkDenied: { sandboxId: string; rule: string; detail?: string };
  /**
   * The background scan after a run has ended. Emitted for each run whose result has `scan: 'continuing'`, unless
   * {@link AcodeOptions.continueScan} took the scan over. `riskyChanges` has the findings that the result does not have.
   */
  WorkspaceScanned: {
    sandboxId: string;
    workspace: string;
    riskyChanges: readonly RiskyChange[];
    /** Counts of all files that the run made or changed. */
    changed: ChangeCounts;
    /** False if not everything was scanned, such as after 60 seconds or at `close()`; `riskyChanges` then says why. */
    complete: boolean;
  };
  SecurityViolation: { sandboxId: string; containerId?: string; violation: SecurityViolation; detail: string };
}

/** The type of an event. */
export type AcodeEventType = keyof AcodeEvents;

/** An event with the operation it belongs to. */
export type AcodeEvent<Type extends AcodeEventType = AcodeEventType> = {
  [T in AcodeEventType]: { readonly type: T; readonly correlationId: string; readonly at: string } & Readonly<
    AcodeEvents[T]
  >;
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
