// Command request: a command, and the options around it.

import type { Readable } from 'node:stream';
import type { Risk } from './levels.ts';
import type { PolicyInput } from './policy.ts';

/** A line for the image’s shell, or an argument vector that no shell ever sees. */
export type Command = string | readonly string[];

/** A file or directory to bring out of the sandbox after the run. */
export interface ArtifactRequest {
  /** Where it is inside the sandbox; a relative path begins in `/out`, which is there for this. */
  from: string;
  /** Destination path, relative to the workspace. No link is followed on the way. */
  to: string;
}

/** Everything about one run besides its command. Every field is optional. */
export interface RunRequest {
  /** Overrides of the configured policy, clamped by the ceilings of every layer. */
  policy?: PolicyInput;
  /** Working directory, relative to the workspace. */
  cwd?: string;
  /** Environment of the command; nothing is inherited from the host. */
  env?: Record<string, string>;
  /**
   * Variables that the command gets unless `env` or its image sets them. An image without a shell gets none. For what is nice
   * to have, such as the caller’s `TERM`.
   */
  envDefaults?: Record<string, string>;
  /** What the command reads from standard input; without it, it reads end of file. */
  stdin?: string | Uint8Array | Readable;
  /** How dangerous the caller believes the command to be. */
  risk?: Risk;
  /** The session in labels, logs and audit records; the host’s own by default. */
  sessionId?: string;
  /** The task in labels, logs and audit records, and `ACODE_TASK_ID` inside; `run` by default. */
  taskId?: string;
  /** Brought out of the sandbox after the command, checked as hostile: no link, device or privilege comes along. */
  artifacts?: ArtifactRequest[];
  /** Cancels the run at any step. */
  signal?: AbortSignal;
  /** Called with each chunk as it is printed, up to the output limit. */
  onStdout?: (chunk: Uint8Array) => void;
  /** Called with each chunk as it is printed, up to the output limit. */
  onStderr?: (chunk: Uint8Array) => void;
}
