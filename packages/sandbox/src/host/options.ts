// Options for opening a host.

import type { ConfigInput } from '../contract/config.ts';
import type { PoolOptions } from '../contract/host.ts';
import type { VerifySignature } from '../contract/images.ts';
import type { ProfileName } from '../contract/profiles.ts';
import type { Clock, Logger, Metrics } from '../contract/ports.ts';
import type { ScanJob, ScanReport } from '../contract/scan.ts';

/** Options for opening a host. All are optional. */
export interface AcodeOptions {
  /** The workspace; by default, the project that contains the current directory. */
  workspace?: string;
  /** Configuration values that replace the user’s configuration file. */
  config?: ConfigInput;
  /** Path of a configuration file to use instead of the user’s own. */
  configFile?: string;
  /**
   * The engine’s socket; by default DOCKER_HOST, the docker context, then the well-known paths. Fixed for the session.
   */
  engine?: {
    /** The absolute path of the socket. */
    socket: string;
  };
  /** The built-in limits for requests that name no profile; `exec` by default. The command line and MCP use `dev`. */
  profile?: ProfileName;
  /** The session id for labels, logs and audit records; random by default. */
  sessionId?: string;
  /**
   * How many sandboxes may run at once, at most 128; by default the configured number, which is at most 16, otherwise 4. All sandboxes
   * of a user together have three quarters of the memory, however many they are.
   */
  maxConcurrent?: number;
  /**
   * The warm pool: pre-started sandboxes, so that commands begin within milliseconds. None by default. See
   * docs/pool.md.
   */
  pool?: false | PoolOptions;
  /**
   * Accepts a workspace scan that exceeded its run’s time budget, and returns whether it does; {@link Acode.scan}
   * performs such a scan, in this process or another. Without this option, the host continues the scan until it is
   * closed. Either way, the result has `scan: 'continuing'`. Must return immediately.
   */
  continueScan?: (job: ScanJob) => boolean;
  /**
   * Called with files that appeared in the workspace while a warm sandbox of `image` waited and never received a
   * command, if tools on this machine might execute or follow them. No result contains these; the log and the audit log
   * do. Must return immediately.
   */
  foundWhileWaiting?: (report: ScanReport, image: string) => void;
  /**
   * How often the host removes what dead sessions left on the engine, in milliseconds, 1000 or more. By default it does that
   * once, beside its first command; `acode serve` and `acode mcp` repeat it every ten minutes.
   */
  sweepEveryMs?: number;
  /** Receives log lines; none by default. A pino logger fits. */
  logger?: Logger;
  /** Receives counters and durations; none by default. */
  metrics?: Metrics;
  /** The clock, for tests; the system clock by default. */
  clock?: Clock;
  /**
   * Verifies the publisher of an image before anything of it runs; by default, acode decides by repository and digest.
   */
  verifySignature?: VerifySignature;
}
