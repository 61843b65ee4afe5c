// How a host is opened: what a program says once, before anything runs.

import type { ConfigInput } from '../contract/config.ts';
import type { PoolOptions } from '../contract/host.ts';
import type { VerifySignature } from '../contract/images.ts';
import type { ProfileName } from '../contract/profiles.ts';
import type { Clock, Logger, Metrics } from '../contract/ports.ts';
import type { ScanJob, ScanReport } from '../contract/scan.ts';

/** How to open a host. Every field is optional. */
export interface AcodeOptions {
  /** The directory sandboxes are given; else the project the process stands in. */
  workspace?: string;
  /** In place of the user’s configuration file. */
  config?: ConfigInput;
  /** Another configuration file in place of the user’s own. */
  configFile?: string;
  /** The engine’s socket; else DOCKER_HOST, the docker context, the known places. Pinned for the session. */
  engine?: {
    /** The absolute path of the socket. */
    socket: string;
  };
  /** The built-in limits of requests that name none: `exec` unless told otherwise. The command line and MCP use `dev`. */
  profile?: ProfileName;
  /** The session in labels, logs and audit records; a random one by default. */
  sessionId?: string;
  /** Sandboxes at once; 4 unless configured, at most 16. */
  maxConcurrent?: number;
  /** Sandboxes kept waiting, so that commands begin within milliseconds; none unless asked for. docs/pool.md says more. */
  pool?: false | PoolOptions;
  /**
   * Takes over the scan of a workspace that its run had no time for, and says whether it does; {@link Acode.scan} does such a
   * scan, in this process or another. Without it, the host goes on with the scan until it is closed. Either way the result says
   * `scan: 'continuing'`. Must return at once.
   */
  continueScan?: (job: ScanJob) => boolean;
  /**
   * Told of files that appeared in the workspace while a sandbox of `image` waited in the pool and never had a command, if tools
   * of the host might execute or follow them. No result has these; the log and the audit log do. Must return at once.
   */
  foundWhileWaiting?: (report: ScanReport, image: string) => void;
  /** Receives log lines; none are written by default. A pino logger fits. */
  logger?: Logger;
  /** Receives counters and durations; none by default. */
  metrics?: Metrics;
  /** Time, for tests; the system’s by default. */
  clock?: Clock;
  /** Verifies who made an image before anything of it runs; without it, the repository and the digest decide. */
  verifySignature?: VerifySignature;
}
