// A run as the steps of the pipe hand it on: what was decided before its sandbox exists, and what it is made of once that waits.

import type { RestPeriod } from '../contract/scan.ts';
import type { AuditHead } from '../contract/audit.ts';
import type { Command, RunRequest } from '../contract/command.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { ArtifactReport } from '../contract/result.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import type { Host } from './host.ts';
import type { Backend, WaitingSandbox } from '../isolation/backend.ts';
import type { Capture } from './output/capture.ts';
import type { Operation } from '../records/telemetry/operation.ts';

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
