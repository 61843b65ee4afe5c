// How a host is opened: what a program says once, before anything runs.

import type { ConfigInput } from './config/schema.ts';
import type { VerifySignature } from './contract/images.ts';
import type { Clock, Logger, Metrics } from './contract/ports.ts';

/** How to open a host. Every field is optional. */
export interface AcodeOptions {
  /** The directory sandboxes are given; else the project the process stands in. */
  workspace?: string;
  /** In place of the user’s configuration file. */
  config?: ConfigInput;
  /** Another configuration file in place of the user’s own. */
  configFile?: string;
  /** The engine’s socket; else DOCKER_HOST, the docker context, the known places. Pinned for the session. */
  engine?: { socket: string };
  sessionId?: string;
  /** Sandboxes at once; 4 unless configured, at most 16. */
  maxConcurrent?: number;
  /** Sandboxes kept waiting. Not available in this version: only `false`. */
  pool?: false | { min?: number; max?: number; idleMs?: number };
  logger?: Logger;
  metrics?: Metrics;
  clock?: Clock;
  /** Verifies who made an image before anything of it runs; without it, the repository and the digest decide. */
  verifySignature?: VerifySignature;
}
